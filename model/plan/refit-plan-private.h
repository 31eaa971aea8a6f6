#pragma once

/* Shared by the files that build, check and release plans; not for other modules. */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

/* What refit_plan_free releases: a plan and the rank sets its obligations point into. */
typedef struct {
    RefitPlan plan;
    GPtrArray *rank_sets; /* GBytes */
} RefitPlanStorage;

/* How a class is put into batches. */
typedef struct {
    guint n_sections;
    RefitRegion *regions; /* per section, owned; NULL: one, the whole tensor */
    guint *batches;       /* per section and member; G_MAXUINT until assigned */
} RefitPlanMembers;

struct _RefitPlanBuilder {
    const RefitProblem *problem;
    const char *strategy;
    guint peers; /* 0: by the number of senders */
    guint least_depth;
    guint64 logical_bytes;
    gboolean logical_overflow;
    GArray *stages;  /* RefitStage; n_offsets is set at the end */
    GArray *batches; /* RefitBatch */
    GPtrArray *regions;
    GHashTable *region_numbers; /* RefitRegion -> 1 + number */
    GArray *volumes;            /* guint64 per region: elements */
    GArray *transfers;          /* RefitTransfer; `pair` holds the hop depth until the end */
    GArray *deps;
    RefitPlanMembers *members; /* per class */
    GArray *obligations;       /* RefitObligation */
    GPtrArray *rank_sets;      /* GBytes, distinct */
    GHashTable *rank_bytes;    /* GBytes -> itself; borrowed from rank_sets */
};

/*
 * Stable counting sort of item numbers: reorders `order` (n entries) by keys[item], which is below
 * n_keys. `scratch` has n entries. Costs nothing more than a scan when already in order.
 */
void refit_counting_sort(const guint *keys, guint n_keys, guint *order, guint *scratch, guint n);

/* ---- refit-plan-sections.c ---- */

/* `problem` of the builder is set. */
void refit_plan_members_init(RefitPlanBuilder *builder);
void refit_plan_members_free(RefitPlanBuilder *builder);
/* Fills the plan's sections, and which members of each are in which batch. */
void refit_plan_place_members(RefitPlan *plan, const RefitPlanBuilder *builder);
/* Sections follow each other from the first byte of their tensor to the last. The plan's other
 * arrays need not be right. */
gboolean refit_plan_check_sections(const RefitPlan *plan, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* The link class of a transfer between two ranks. */
RefitLink refit_plan_link(const RefitTopology *topology, guint src, guint dst);

/* SHA-256 of the canonical form (see refit-plan-digest.c). Caller frees. */
char *refit_plan_digest(const RefitPlan *plan);

G_END_DECLS
