#pragma once

/*
 * Predicted times of a schedule through an executor that predicts:
 *
 *   wire      network and NVLink only (every profile term off)
 *   pipeline  with the profile's terms: until the last byte has arrived, been unpacked or copied
 *   step      until everything is installed, and the pause: what the training step waits for
 *
 * Installs and the host's work for them are part of the schedule, so they delay what needs their
 * memory and run beside what does not. The pipeline time is never below the wire time: where
 * software costs happen to delay messages into an order that shares links better, the wire time
 * counts.
 *
 * Sides that hold another form than that on the wire cast (docs/model.md).
 */

#include "model/predict/refit-executor.h"
#include "model/problem/refit-bound.h"

G_BEGIN_DECLS

typedef struct {
    double wire_s, pipeline_s, step_s;
    /* Of the destination rank that installs longest: its copies, and its host's work for them; most
     * of it beside the pipeline. The pause is what the step has on top. */
    double install_s, host_s, pause_s;
    /* Busiest resource of the wire run: "network in", "network out", "nvlink in", "nvlink out",
     * or "local"; static string. */
    const char *limited_by;
    guint limited_rank;
    double limited_busy; /* share of wire_s that resource moved bytes at full rate, 0..1 */
    guint64 event_bytes[REFIT_N_LINKS]; /* moved, counted from the event stream */
    guint64 n_items;
    double time_resolution_s;
} RefitPrediction;

typedef struct {
    gboolean exact; /* turn by turn; see refit-executor.h */
    /* Of the run with the profile's terms, in their order; NULL: nobody wants them. */
    RefitEventFunc func;
    gpointer user_data;
} RefitPredictionOptions;

/*
 * Bytes of a copy that takes as long as a copy of `bytes` with a cast: a copy reads and writes each
 * byte once, a cast reads or writes `cast` bytes for each on the wire (refit_case_cast_ratios();
 * 0: none).
 */
double refit_cast_bytes(double bytes, double cast);
/* Seconds of an install: its copies, and the host's work for its tensors. */
double refit_install_copy_s(const RefitProfile *profile, double cast,
                            const RefitScheduleInstall *install);
double refit_install_host_s(const RefitProfile *profile, const RefitScheduleInstall *install);

/*
 * Runs `executor` on `schedule` with the case's topology and profile. `options` may be NULL.
 * REFIT_ERROR_BACKEND when the executor's event stream disagrees with the plan's bytes per link
 * class.
 */
gboolean refit_predict(const RefitExecutor *executor, const RefitSchedule *schedule,
                       const RefitPredictionOptions *options, RefitPrediction *prediction_out,
                       GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
