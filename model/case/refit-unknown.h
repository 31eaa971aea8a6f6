#pragma once

/*
 * Tensors of foreign files that no family of models knows. How an engine cuts them cannot be told
 * from their names, so a case says it under `unknown:`, or they must not weigh:
 *
 *   unknown: whole                       # every rank of a stage holds all of each
 *   unknown:                             # or what they are for, the first pattern that fits
 *   - {tensors: "*.experts.gate_up_proj", role: expert_gate_up_halves_t}
 *   - {tensors: "visual.*", role: other} # held whole
 */

#include "model/layout/refit-layout.h"

G_BEGIN_DECLS

/* A case in which they are more of the bytes is refused unless it states how they are held. */
#define REFIT_UNKNOWN_LIMIT_PERCENT 1

typedef struct {
    gboolean stated;  /* the case says how all of them are held */
    RefitNode *roles; /* the list, or NULL */
} RefitUnknown;

/* Reads the value of `unknown:`, which may be NULL. */
gboolean refit_unknown_read(RefitNode *node, RefitUnknown *unknown_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * REFIT_ERROR_INVALID at `place` when `side`, the mapping of a side, cuts by what tensors are for,
 * more than the limit of the bytes of `model` are unknown, and nothing is stated. What is wrong
 * with the side itself is left to its reader.
 */
gboolean refit_unknown_check(const RefitUnknown *unknown, const RefitModel *model, RefitNode *side,
                             const RefitNode *place, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
