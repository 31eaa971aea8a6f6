/*
 * Pipeline stages: which of them has which decoder layer.
 *
 * Either the number of layers of each stage is stated, or all stages have as many but for the two
 * ends, whose number may be stated. An interleaved pipeline cuts every stage in `vpp` chunks of
 * equal depth, or of stated depth: the chunks follow each other chunk by chunk over all stages, so
 * virtual stage v is chunk v / pp of stage v % pp. Cost: linear in layers and virtual stages.
 */

#include "model/layout/refit-layout-private.h"

/* Depths of the end stages that leave the middle ones equal and all nearly so. */
static char *suggest_stages(guint layers, guint pp) {
    guint depth = (layers + pp - 1) / pp;

    if (layers < pp)
        return g_strdup_printf("use pp up to %u, or stage_layers with stages of 0", layers);
    if (layers < depth * (pp - 2) + 2)
        depth = layers / pp;
    guint ends = layers - depth * (pp - 2);
    return g_strdup_printf("state first_stage_layers %u and last_stage_layers %u", ends - ends / 2,
                           ends / 2);
}

/* Layers of every stage from those of the ends. */
static gboolean share_out(const RefitModel *model, const RefitPipeline *pipeline, guint *depths,
                          GError **error) {
    const RefitSize *first = &pipeline->first, *last = &pipeline->last;
    guint layers = refit_model_n_layers(model), pp = pipeline->pp.value;
    guint ends = (first->stated ? 1u : 0u) + (last->stated ? 1u : 0u);
    guint64 stated = (guint64)first->value + last->value;
    const RefitSize *end = first->stated ? first : last;

    if (ends > 0 && pp < 2) {
        refit_node_error(end->place, REFIT_ERROR_INVALID, error,
                         "%s needs a pipeline; state pp of at least 2 or leave it out", end->name);
        return FALSE;
    }
    if (stated > layers) {
        refit_node_error(end->place, REFIT_ERROR_INVALID, error,
                         "the end stages take %" G_GUINT64_FORMAT
                         " layers, but model %s has %u; use fewer",
                         stated, refit_model_name(model), layers);
        return FALSE;
    }
    guint rest = layers - (guint)stated, middle = pp - ends;
    if (middle == 0 ? rest != 0 : rest % middle != 0) {
        g_autofree char *advice = suggest_stages(layers, pp);
        refit_node_error(pipeline->pp.place, REFIT_ERROR_INVALID, error,
                         "%u of %u layers are left, which %u other stages cannot share evenly; %s",
                         rest, layers, middle, advice);
        return FALSE;
    }
    for (guint i = 0; i < pp; i++)
        depths[i] = middle == 0 ? 0 : rest / middle;
    if (first->stated)
        depths[0] = first->value;
    if (last->stated)
        depths[pp - 1] = last->value;
    return TRUE;
}

/* Every chunk of a stage is as deep as the others. */
static gboolean cut_chunks(const RefitPipeline *pipeline, guint *depths, GError **error) {
    guint pp = pipeline->pp.value, vpp = pipeline->vpp.value;

    for (guint i = 0; i < pp; i++) {
        if (depths[i] % vpp != 0) {
            refit_node_error(pipeline->vpp.place, REFIT_ERROR_INVALID, error,
                             "vpp %u does not divide the %u layers of stage %u; use a divisor of "
                             "%u, or stage_layers with a number for each chunk",
                             vpp, depths[i], i, depths[i]);
            return FALSE;
        }
        depths[i] /= vpp;
    }
    return TRUE;
}

static guint *read_table(const RefitModel *model, const RefitPipeline *pipeline, GError **error) {
    const RefitSize *end = pipeline->first.stated ? &pipeline->first : &pipeline->last;
    guint layers = refit_model_n_layers(model);
    guint64 n = (guint64)pipeline->pp.value * pipeline->vpp.value;
    guint64 sum = 0;

    if (end->stated) {
        refit_node_error(end->place, REFIT_ERROR_INVALID, error,
                         "%s and stage_layers both say how deep a stage is; keep one", end->name);
        return NULL;
    }
    if (!refit_node_expect(pipeline->table, REFIT_NODE_SEQUENCE, error))
        return NULL;
    if (refit_node_size(pipeline->table) != n) {
        refit_node_error(pipeline->table, REFIT_ERROR_INVALID, error,
                         "length %u, but pp %u * vpp %u is %" G_GUINT64_FORMAT
                         "; write a number for each stage, with vpp for each chunk of each stage "
                         "in the order of the layers",
                         refit_node_size(pipeline->table), pipeline->pp.value, pipeline->vpp.value,
                         n);
        return NULL;
    }
    g_autofree guint *depths = g_new(guint, n);
    for (guint i = 0; i < n; i++) {
        guint64 depth = 0;

        if (!refit_node_uint(refit_node_at(pipeline->table, i), 0, layers, &depth, error))
            return NULL;
        depths[i] = (guint)depth;
        sum += depth;
    }
    if (sum != layers) {
        refit_node_error(pipeline->table, REFIT_ERROR_INVALID, error,
                         "the stages take %" G_GUINT64_FORMAT
                         " layers, but model %s has %u; make them add up",
                         sum, refit_model_name(model), layers);
        return NULL;
    }
    return g_steal_pointer(&depths);
}

gboolean refit_layout_read_pipeline(RefitNode *node, RefitPipeline *pipeline_out, GError **error) {
    *pipeline_out = (RefitPipeline){.table = refit_node_get(node, "stage_layers")};
    return refit_layout_read_size(node, "pp", 1, &pipeline_out->pp, error) &&
           refit_layout_read_size(node, "vpp", 1, &pipeline_out->vpp, error) &&
           refit_layout_read_size(node, "first_stage_layers", 0, &pipeline_out->first, error) &&
           refit_layout_read_size(node, "last_stage_layers", 0, &pipeline_out->last, error);
}

guint *refit_layout_solve_stages(const RefitModel *model, const RefitPipeline *pipeline,
                                 GError **error) {
    guint layers = refit_model_n_layers(model), pp = pipeline->pp.value, vpp = pipeline->vpp.value;

    if (vpp > 1 && pp < 2) {
        refit_node_error(pipeline->vpp.place, REFIT_ERROR_INVALID, error,
                         "vpp needs a pipeline; state pp of at least 2 or leave it out");
        return NULL;
    }
    if (vpp > MAX(layers, 1)) {
        refit_node_error(pipeline->vpp.place, REFIT_ERROR_INVALID, error,
                         "vpp %u is more than the %u layers of model %s; use fewer chunks", vpp,
                         layers, refit_model_name(model));
        return NULL;
    }
    g_autofree guint *depths = NULL; /* of every virtual stage, or of every stage's chunks */
    guint64 n = (guint64)pp * vpp, n_depths = pipeline->table != NULL ? n : pp;
    if (pipeline->table != NULL) {
        depths = read_table(model, pipeline, error);
        if (depths == NULL)
            return NULL;
    } else {
        depths = g_new0(guint, pp);
        if (!share_out(model, pipeline, depths, error) || !cut_chunks(pipeline, depths, error))
            return NULL;
    }
    guint *stages = g_new(guint, MAX(layers, 1)), layer = 0;
    for (guint64 i = 0; layer < layers; i++) {
        for (guint left = depths[i % n_depths]; left > 0; left--)
            stages[layer++] = (guint)(i % pp);
    }
    return stages;
}
