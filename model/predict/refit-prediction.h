#pragma once

/*
 * Predicted times of a plan through an executor that predicts:
 *
 *   wire      network and NVLink only (every profile term off)
 *   pipeline  with the profile's operation, run, pack, unpack and bucket terms
 *   step      pipeline + install + host + pause: what the training step waits for
 *
 * The pipeline time is never below the wire time: where software costs happen to delay messages
 * into an order that shares links better, the wire time counts.
 *
 *   step = pipeline + max over destination ranks of
 *            (bytes out of buckets / install + tensors out of buckets x host) + pause
 *
 * Sides that hold another form than that on the wire cast at these rates (docs/model.md).
 */

#include "model/predict/refit-executor.h"
#include "model/problem/refit-bound.h"

G_BEGIN_DECLS

typedef struct {
    double wire_s, pipeline_s, step_s;
    double install_s, host_s, pause_s; /* the parts of step - pipeline */
    /* Busiest resource of the wire run: "network in", "network out", "nvlink in", "nvlink out",
     * or "local"; static string. */
    const char *limited_by;
    guint limited_rank;
    double limited_busy; /* share of wire_s that resource moved bytes at full rate, 0..1 */
    guint64 event_bytes[REFIT_N_LINKS]; /* moved, counted from the event stream */
    guint64 n_flows;
    double time_resolution_s;
} RefitPrediction;

/*
 * Runs `executor` on `plan` with the case's topology and profile. REFIT_ERROR_BACKEND when the
 * executor's event stream disagrees with the plan's bytes per link class.
 */
gboolean refit_predict(const RefitExecutor *executor, const RefitPlan *plan,
                       RefitPrediction *prediction_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
