/*
 * FSDP layouts: fully sharded data parallelism as in FSDP2, optionally in replica groups (HSDP) and
 * over tensor parallelism.
 *
 * Rank order, innermost first: tp, shard, replicate. Every parameter with at least one dim is cut
 * along dim 0 into `shard` chunks, ceil sizes first, so that short and empty tails are common (a
 * [5] bias over 8 ranks leaves three of them empty). Over tensor parallelism the tp cut comes
 * first, for packed projections segment by segment, and FSDP cuts what it left, the strided order;
 * a scalar is held by all ranks.
 *
 * Cost: one array lookup per tensor; a mesh is built once per kind of cut, and per packed tensor.
 */

#include "model/layout/refit-layout-private.h"

typedef struct {
    RefitLayout *layout;
    RefitSize replicate, shard, tp;
    const RefitSharding *made[REFIT_N_EVEN_KINDS]; /* of tensors with dims, by the tp cut */
    const RefitSharding *scalar;
} Fsdp;

static const char *const keys[] = {
    "shard\tranks a parameter is cut over; follows from gpus when absent",
    "replicate\treplica groups, HSDP (1)",
    "tp\ttensor parallel size below FSDP (1)",
    NULL,
};

static const RefitSharding *place(Fsdp *self, const RefitTensor *tensor, GError **error) {
    RefitCut cut = refit_layout_cut(tensor);
    RefitAxis axes[] = {
        {.size = self->replicate.value, .stride = self->shard.value * self->tp.value},
        {.size = self->shard.value, .stride = self->tp.value},
        {.size = self->tp.value, .stride = 1},
    };
    const RefitSharding **made = &self->scalar;

    if (tensor->n_dims > 0) {
        axes[1].placement = (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD, .order = 1};
        if (cut != REFIT_CUT_NONE && cut != REFIT_CUT_COLUMNS)
            cut = REFIT_CUT_ROWS; /* nothing is fused or padded here */
        if (refit_layout_is_packed(tensor, cut, &self->tp)) {
            g_auto(RefitListedCut) packed = {.lists = NULL};

            if (!refit_layout_packed(tensor, &self->tp, FALSE, &packed, error))
                return NULL;
            axes[2].placement = packed.placement;
            return refit_layout_share_part(self->layout, 0, axes, G_N_ELEMENTS(axes), error);
        }
        if (!refit_layout_even(tensor, cut, &self->tp, &axes[2].placement, error))
            return NULL;
        made = &self->made[refit_layout_even_kind(&axes[2].placement)];
    }
    if (*made == NULL)
        *made = refit_layout_share_part(self->layout, 0, axes, G_N_ELEMENTS(axes), error);
    return *made;
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    Fsdp self = {.layout = layout};
    GString *text;

    if (!refit_layout_read_size(node, "tp", 1, &self.tp, error) ||
        !refit_layout_read_size(node, "replicate", 1, &self.replicate, error) ||
        !refit_layout_read_size(node, "shard", 1, &self.shard, error) ||
        !refit_node_finish(node, error))
        return FALSE;
    RefitSize sizes[] = {self.tp, self.replicate};
    if (!refit_layout_solve_dp(layout, node, sizes, G_N_ELEMENTS(sizes), &self.shard, error) ||
        !refit_layout_check_heads(model, &self.tp, error) ||
        !refit_layout_check_kv_heads(model, &self.tp, error))
        return FALSE;
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);

        if (tensor->scale) /* follows its tensor, see refit_layout_parse() */
            continue;
        const RefitSharding *sharding = place(&self, tensor, error);
        if (sharding == NULL)
            return FALSE;
        refit_layout_assign(layout, i, sharding);
    }
    text = g_string_new("fsdp");
    g_string_append_printf(text, " shard%u", self.shard.value);
    if (self.replicate.value > 1)
        g_string_append_printf(text, " replicate%u", self.replicate.value);
    if (self.tp.value > 1)
        g_string_append_printf(text, " tp%u", self.tp.value);
    refit_layout_set_summary(layout, g_string_free(text, FALSE));
    return TRUE;
}

/* Only tp looks at roles; what is wrong with its value is said later. */
static gboolean by_role(RefitNode *node) {
    guint tp = 1;

    return refit_node_get_uint(node, "tp", 1, G_MAXUINT, &tp, NULL) && tp > 1;
}

const RefitFramework refit_framework_fsdp = {
    .name = "fsdp",
    .summary = "FSDP2: every parameter in chunks of dim 0, HSDP replicas, over tensor parallelism",
    .keys = keys,
    .by_role = by_role,
    .generate = generate,
};
