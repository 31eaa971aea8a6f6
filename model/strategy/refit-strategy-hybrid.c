/*
 * Strategy `hybrid`: the published path of NeMo RL. FFN projections (dense gate, up, down and
 * routed experts) go by ring; when that is done everywhere, all other tensors follow by gather and
 * broadcast, so that every destination rank receives all of them in full.
 */

#include "model/strategy/refit-strategy-private.h"

static gboolean build(RefitPlanBuilder *builder, const RefitProblem *problem, GError **error) {
    refit_ring_build(builder, problem, REFIT_SELECT_BULK);
    return refit_gather_broadcast_build(builder, problem, REFIT_SELECT_MISC, TRUE, error);
}

const RefitStrategy refit_strategy_hybrid = {
    .name = "hybrid",
    .summary = "FFN projections by ring, all else afterwards by gather and broadcast",
    .sends = REFIT_SENDS_BOTH,
    .build = build,
};
