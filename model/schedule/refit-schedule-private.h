#pragma once

/* Shared by the files that make schedules; not for other modules. */

#include "model/plan/refit-plan-deps.h"
#include "model/schedule/refit-schedule.h"

G_BEGIN_DECLS

/* Bytes between tensors in a slot of landings: coarse enough for every element and for 16-byte
 * accesses. */
#define REFIT_SCHEDULE_TENSOR_ALIGN 16

typedef struct _RefitProgramIndex RefitProgramIndex; /* refit-program-private.h */

/* What refit_schedule_free() releases. */
typedef struct {
    RefitSchedule schedule;
    RefitPlanDeps *deps;
    guint *slices; /* per batch and stage */
    RefitProgramIndex *index;
} RefitScheduleStorage;

RefitProgramIndex *refit_program_index_new(const RefitPlan *plan);
void refit_program_index_free(RefitProgramIndex *index);
const RefitProgramIndex *refit_schedule_index(const RefitSchedule *schedule);

/* Links whose messages are cut in chunks, as positions of arrays: NVLink, network. */
#define REFIT_SCHEDULE_CUT_LINKS (REFIT_N_LINKS - 1)
#define REFIT_SCHEDULE_CUT_LINK(link) ((link)-1)

/* Messages that all ranks cut alike: of one step, or of one batch of a sliced stage. */
typedef struct {
    RefitCutting cuttings[REFIT_SCHEDULE_CUT_LINKS];
} RefitScheduleGroup;

typedef struct _RefitScheduleDirect RefitScheduleDirect;

typedef struct {
    const RefitPlan *plan;
    RefitScheduleStorage *storage;
    RefitPlanDeps *deps;
    guint n_streams;
    guint *message_offsets; /* per rank: slice of rank_messages */
    guint *rank_messages;   /* of the plan, ascending; a local one once */
    guint *group_of;        /* per message */
    GArray *groups;         /* RefitScheduleGroup */
    guint8 *used;           /* per stream: some rank has messages */
    guint8 *landings_of;    /* per pair: a bit per RefitLanding that its transfers have */
    RefitScheduleDirect *direct;
    guint *step_offsets;
    GArray *steps, *exchanges, *messages, *installs, *waits; /* of the schedule */
    guint *landing_offsets;
    GArray *landings; /* of the schedule */
    RefitScheduleRank *ranks;
    guint64 *packed;     /* per stream: most bytes that a rank packs and unpacks */
    guint64 *least;      /* per stream: a slot with the smallest chunks */
    guint *exchanges_of; /* per stream: most of a step */
    guint64 pool;        /* bytes of wire memory for chunks; see refit-schedule.h */
} RefitScheduleBuild;

/* ---- refit-schedule-parts.c ---- */

/* Decides slices, and puts each message into its group. */
void refit_schedule_choose_slices(RefitScheduleBuild *build);
/* ---- refit-schedule-chunks.c ---- */

/* The group of a step of messages. */
RefitScheduleGroup *refit_schedule_group_of(const RefitScheduleBuild *build,
                                            const RefitScheduleStep *step);
/* Sums what steps, groups and streams ask of chunks: `packed` and `least`. */
void refit_schedule_survey(RefitScheduleBuild *build);
/* Decides how all groups are cut. The pool is known, and the steps are surveyed. */
void refit_schedule_choose_chunks(RefitScheduleBuild *build);

/* ---- refit-schedule-direct.c ---- */

RefitScheduleDirect *refit_schedule_direct_new(const RefitPlan *plan);
void refit_schedule_direct_free(RefitScheduleDirect *direct);
/* Whether a message goes straight from the sender's memory, or into the receiver's. */
gboolean refit_schedule_is_direct(RefitScheduleDirect *direct, guint message, guint slices,
                                  gboolean sends);

/* ---- refit-schedule-landings.c ---- */

/* Fills the landings of all ranks. */
gboolean refit_schedule_list_landings(RefitScheduleBuild *build, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Gives them slots, so many for each lane, and fills landing_bytes. */
gboolean refit_schedule_place_slots(RefitScheduleBuild *build, guint n_slots, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Whether what a message brings lands one piece behind the other, as in the message. */
gboolean refit_schedule_lands_in_block(RefitLanding landing);

/* ---- refit-schedule-installs.c ---- */

typedef struct _RefitScheduleInstalls RefitScheduleInstalls;
/* NULL when nothing is installed. */
RefitScheduleInstalls *refit_schedule_installs_new(const RefitPlan *plan);
void refit_schedule_installs_free(RefitScheduleInstalls *installs);
/* What a rank installs in each batch; then what it does in one of them. */
void refit_schedule_installs_sum(RefitScheduleInstalls *installs, guint rank);
const RefitScheduleInstall *refit_schedule_installs_get(const RefitScheduleInstalls *installs,
                                                        guint batch);

/* ---- refit-schedule-steps.c ---- */

/* Steps and exchanges of all ranks, without chunks and waits. */
void refit_schedule_list_steps(RefitScheduleBuild *build);
/* Chunks, turns and wire memory of all steps. */
gboolean refit_schedule_count_turns(RefitScheduleBuild *build, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-schedule-waits.c ---- */

void refit_schedule_list_waits(RefitScheduleBuild *build);

G_END_DECLS
