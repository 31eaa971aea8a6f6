/*
 * Explicit layouts: the case says which tensors lie on which mesh, for frameworks without a
 * generator and for shapes none of them has.
 *
 *   rules:
 *     - {tensors: "*.norm.weight", place: [replicate]}
 *     - tensors: ["*.up_proj.weight", "*.gate_proj.weight"]
 *       mesh: [2, 4]                   # row-major over `ranks`; one axis when absent
 *       ranks: [0-7]                   # positions in this side's list; all when absent
 *       place: [{shard: 0, order: 1}, {shard: 0, order: 0}]    # refit-layout-place.c
 *     - tensors: embed                 # held twice, independently
 *       parts: [{ranks: [0-1], place: ["shard(0)"]}, {ranks: [6-7], place: ["shard(0)"]}]
 *       padded: {0: 51200}             # cuts act on so many rows
 *       shape: [50257, 768]            # what this side believes, to be checked
 *       local: {0: [25600, 768]}
 *     - fused: [...]                   # refit-layout-fused.c
 *   absent: ["mtp.*"]
 *
 * `absent` goes first, then the first rule with a matching name. A tensor that neither names is an
 * error, and so is a rule that decides nothing: both are how a misspelt name shows. Scales lie as
 * their tensors do (refit_layout_place_scales) unless a rule of their own takes them. Cost: tensors
 * times globs.
 */

#include "model/layout/refit-layout-explicit.h"

#include <string.h>

typedef struct {
    RefitNode *node;
    GPtrArray *globs;      /* of GPatternSpec; NULL for a fused rule */
    RefitFusedRule *fused; /* NULL for any other */
    const RefitSharding *sharding;
    RefitExplicitNeeds needs;
    RefitStatedShapes *stated;
    gboolean used;
    /* The last shape that was found to fit: most tensors of a rule are alike. */
    guint fits_n_dims;
    guint64 fits[REFIT_MAX_DIMS];
} Rule;

static const char *const keys[] = {
    "rules\tlist of {tensors: glob or globs, mesh: [sizes], ranks: [positions], place: [one per "
    "mesh axis]}; the first match holds. place: replicate, shard(DIM), or {shard: DIM, split: "
    "chunk|balanced|sizes|strided|lists|segments, sizes: [..], chunks: N, lists: [[places], ..], "
    "segments: [{extent, ways}, ..], order: N}. parts: [{mesh, ranks, place}, ..] for copies on "
    "several meshes. padded: {DIM: EXTENT}. fused: [names], blocks: [rows], parameter: name, "
    "instead of tensors, for one parameter of several tensors. shape: [..] and local: {POSITION: "
    "[..]} are checked",
    "absent\tlist of globs of tensors that this side does not hold",
    NULL,
};

static void rule_free(gpointer data) {
    Rule *rule = data;

    g_clear_pointer(&rule->globs, g_ptr_array_unref);
    refit_fused_rule_free(rule->fused);
    refit_stated_shapes_free(rule->stated);
    g_free(rule);
}

static gboolean matches(const GPtrArray *globs, const char *name) {
    for (guint i = 0; i < globs->len; i++) {
        if (g_pattern_spec_match_string(g_ptr_array_index(globs, i), name))
            return TRUE;
    }
    return FALSE;
}

static gboolean read_glob(RefitNode *node, GPtrArray *globs, GError **error) {
    const char *text;

    if (!refit_node_string(node, &text, error))
        return FALSE;
    g_ptr_array_add(globs, g_pattern_spec_new(text));
    return TRUE;
}

/* One glob or a list of them. */
static GPtrArray *read_globs(RefitNode *node, GError **error) {
    g_autoptr(GPtrArray) globs =
        g_ptr_array_new_with_free_func((GDestroyNotify)g_pattern_spec_free);

    if (refit_node_kind(node) == REFIT_NODE_SCALAR) {
        if (!read_glob(node, globs, error))
            return NULL;
        return g_steal_pointer(&globs);
    }
    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return NULL;
    for (guint i = 0; i < refit_node_size(node); i++) {
        if (!read_glob(refit_node_at(node, i), globs, error))
            return NULL;
    }
    return g_steal_pointer(&globs);
}

/* ---- stated shapes ---- */

typedef struct {
    guint rank, position;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
} StatedLocal;

struct _RefitStatedShapes {
    RefitNode *shape_node, *local_node;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    GArray *locals; /* of StatedLocal */
};

void refit_stated_shapes_free(RefitStatedShapes *stated) {
    if (stated == NULL)
        return;
    g_array_unref(stated->locals);
    g_free(stated);
}

static gboolean read_shape(RefitNode *node, guint *n_dims_out, guint64 *shape, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(node) > REFIT_MAX_DIMS) {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "%u dims; the limit is %d",
                         refit_node_size(node), REFIT_MAX_DIMS);
        return FALSE;
    }
    for (guint d = 0; d < refit_node_size(node); d++) {
        if (!refit_node_uint(refit_node_at(node, d), 0, G_MAXINT64, &shape[d], error))
            return FALSE;
    }
    *n_dims_out = refit_node_size(node);
    return TRUE;
}

static gboolean read_local(const RefitLayout *layout, RefitNode *node, GArray *locals,
                           GError **error) {
    guint n_ranks = refit_layout_n_ranks(layout);

    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    for (guint i = 0; i < refit_node_size(node); i++) {
        const char *key = refit_node_key_at(node, i);
        RefitNode *value = refit_node_get(node, key);
        StatedLocal local = {0};
        guint64 position;
        if (!g_ascii_string_to_unsigned(key, 10, 0, n_ranks - 1, &position, NULL)) {
            refit_node_error(value, REFIT_ERROR_INVALID, error,
                             "\"%s\" is not a position: this side has %u; use 0 to %u", key,
                             n_ranks, n_ranks - 1);
            return FALSE;
        }
        if (!read_shape(value, &local.n_dims, local.shape, error))
            return FALSE;
        local.position = (guint)position;
        local.rank = refit_layout_ranks(layout)[position];
        g_array_append_val(locals, local);
    }
    return TRUE;
}

gboolean refit_stated_shapes_read(const RefitLayout *layout, RefitNode *node,
                                  RefitStatedShapes **stated_out, GError **error) {
    RefitNode *shape = refit_node_get(node, "shape"), *local = refit_node_get(node, "local");

    if (shape == NULL && local == NULL)
        return TRUE;
    RefitStatedShapes *stated = g_new0(RefitStatedShapes, 1);
    stated->shape_node = shape;
    stated->local_node = local;
    stated->locals = g_array_new(FALSE, FALSE, sizeof(StatedLocal));
    if ((shape != NULL && !read_shape(shape, &stated->n_dims, stated->shape, error)) ||
        (local != NULL && !read_local(layout, local, stated->locals, error))) {
        refit_stated_shapes_free(stated);
        return FALSE;
    }
    *stated_out = stated;
    return TRUE;
}

static char *shape_to_string(guint n_dims, const guint64 *shape) {
    GString *text = g_string_new("[");

    for (guint d = 0; d < n_dims; d++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, d > 0 ? ", " : "", shape[d]);
    g_string_append_c(text, ']');
    return g_string_free(text, FALSE);
}

static gboolean same_shape(guint n_a, const guint64 *a, guint n_b, const guint64 *b) {
    return n_a == n_b && memcmp(a, b, n_a * sizeof *a) == 0;
}

/* A rank in several parts has several buffers, and states one of them. */
static gboolean check_local(const RefitStatedShapes *stated, const StatedLocal *local,
                            const RefitSharding *sharding, const char *name, guint n_dims,
                            const guint64 *shape, GError **error) {
    g_autofree char *here = shape_to_string(local->n_dims, local->shape);
    g_autofree char *there = NULL;

    for (guint part = 0; part < refit_sharding_n_parts(sharding); part++) {
        g_auto(RefitRegion) region = {0};
        g_autoptr(GError) inner = NULL;
        guint64 buffer[REFIT_MAX_DIMS];
        if (!refit_sharding_local(sharding, part, local->rank, n_dims, shape, &region, buffer,
                                  &inner)) {
            if (inner == NULL)
                continue;
            refit_node_error(stated->local_node, (RefitError)inner->code, error, "tensor %s: %s",
                             name, inner->message);
            return FALSE;
        }
        if (same_shape(n_dims, buffer, local->n_dims, local->shape))
            return TRUE;
        g_free(there);
        there = shape_to_string(n_dims, buffer);
    }
    if (there == NULL) {
        refit_node_error(stated->local_node, REFIT_ERROR_LOCAL_SHAPE, error,
                         "tensor %s: position %u states local shape %s, but the rule gives it no "
                         "part; correct ranks or leave the position out",
                         name, local->position, here);
    } else {
        refit_node_error(stated->local_node, REFIT_ERROR_LOCAL_SHAPE, error,
                         "tensor %s: position %u states local shape %s, but the rule gives it %s; "
                         "correct the placement or the global shape",
                         name, local->position, here, there);
    }
    return FALSE;
}

gboolean refit_stated_shapes_check(const RefitStatedShapes *stated, const RefitSharding *sharding,
                                   const char *name, guint n_dims, const guint64 *shape,
                                   GError **error) {
    if (stated == NULL)
        return TRUE;
    if (stated->shape_node != NULL && !same_shape(n_dims, shape, stated->n_dims, stated->shape)) {
        g_autofree char *here = shape_to_string(stated->n_dims, stated->shape);
        g_autofree char *there = shape_to_string(n_dims, shape);
        refit_node_error(stated->shape_node, REFIT_ERROR_SHAPE_MISMATCH, error,
                         "tensor %s has shape %s, but this side states %s; give both sides the "
                         "same model",
                         name, there, here);
        return FALSE;
    }
    for (guint i = 0; i < stated->locals->len; i++) {
        if (!check_local(stated, &g_array_index(stated->locals, StatedLocal, i), sharding, name,
                         n_dims, shape, error))
            return FALSE;
    }
    return TRUE;
}

/* ---- rules ---- */

static gboolean read_rule(RefitLayout *layout, RefitNode *node, GPtrArray *rules, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    Rule *rule = g_new0(Rule, 1);
    rule->node = node;
    g_ptr_array_add(rules, rule);
    if (refit_node_get(node, "fused") != NULL) {
        rule->fused = refit_fused_rule_read(node, error);
        if (rule->fused == NULL)
            return FALSE;
    } else {
        RefitNode *tensors = refit_node_require(node, "tensors", error);
        rule->globs = tensors != NULL ? read_globs(tensors, error) : NULL;
        if (rule->globs == NULL)
            return FALSE;
    }
    RefitSharding *sharding = refit_explicit_read_sharding(layout, node, &rule->needs, error);
    if (sharding == NULL)
        return FALSE;
    rule->sharding = refit_layout_share(layout, sharding);
    return refit_stated_shapes_read(layout, node, &rule->stated, error);
}

static gboolean check_fit(Rule *rule, const RefitTensor *tensor, GError **error) {
    if (rule->used && tensor->n_dims == rule->fits_n_dims &&
        memcmp(tensor->shape, rule->fits, tensor->n_dims * sizeof *rule->fits) == 0)
        return TRUE;
    if (!refit_explicit_check_fit(rule->node, &rule->needs, rule->sharding, tensor->name,
                                  tensor->n_dims, tensor->shape, error) ||
        !refit_stated_shapes_check(rule->stated, rule->sharding, tensor->name, tensor->n_dims,
                                   tensor->shape, error))
        return FALSE;
    rule->fits_n_dims = tensor->n_dims;
    memcpy(rule->fits, tensor->shape, sizeof rule->fits);
    return TRUE;
}

static Rule *find_rule(const GPtrArray *rules, const RefitModel *model, guint tensor) {
    const char *name = refit_model_tensor(model, tensor)->name;

    for (guint i = 0; i < rules->len; i++) {
        Rule *rule = g_ptr_array_index(rules, i);
        if (rule->fused != NULL ? refit_fused_rule_take(rule->fused, model, tensor)
                                : matches(rule->globs, name))
            return rule;
    }
    return NULL;
}

static gboolean assign_tensor(RefitLayout *layout, RefitNode *list, const GPtrArray *rules,
                              guint index, Rule **rule_of, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    const RefitTensor *tensor = refit_model_tensor(model, index);
    Rule *rule = rule_of[index] = find_rule(rules, model, index);

    /* A scale follows its tensor, unless a rule takes it that does not take the tensor. */
    if (tensor->scale &&
        (rule == NULL || (rule->fused == NULL && rule == rule_of[tensor->scale_of])))
        return TRUE;
    if (rule == NULL) {
        refit_node_error(list, REFIT_ERROR_INVALID, error,
                         "no rule matches tensor %s; add one or list it under absent",
                         tensor->name);
        return FALSE;
    }
    if (rule->fused == NULL) {
        if (!check_fit(rule, tensor, error))
            return FALSE;
        refit_layout_assign(layout, index, rule->sharding);
    }
    rule->used = TRUE;
    return TRUE;
}

static gboolean finish_rule(RefitLayout *layout, const Rule *rule, GError **error) {
    if (!rule->used) {
        refit_node_error(rule->node, REFIT_ERROR_INVALID, error,
                         "no tensor of model %s is left for this rule; correct its names or "
                         "put it before the rule that takes them",
                         refit_model_name(refit_layout_model(layout)));
        return FALSE;
    }
    return rule->fused == NULL || refit_fused_rule_finish(rule->fused, layout, &rule->needs,
                                                          rule->sharding, rule->stated, error);
}

/* No two parameters, fused or not, may have one name. */
static gboolean check_names(const RefitLayout *layout, RefitNode *list, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GHashTable) members = g_hash_table_new(NULL, NULL);
    guint n_fused = refit_layout_n_fused(layout);

    for (guint i = 0; i < n_fused; i++) {
        const RefitFused *fused = refit_layout_fused(layout, i);
        for (guint m = 0; m < fused->n_members; m++)
            g_hash_table_add(members, GUINT_TO_POINTER(fused->members[m]));
    }
    for (guint i = 0; n_fused > 0 && i < refit_model_n_tensors(model); i++) {
        if (refit_layout_sharding(layout, i) != NULL &&
            !g_hash_table_contains(members, GUINT_TO_POINTER(i)))
            g_hash_table_add(names, (char *)refit_model_tensor(model, i)->name);
    }
    for (guint i = 0; i < n_fused; i++) {
        const char *name = refit_layout_fused(layout, i)->name;
        if (g_hash_table_add(names, (char *)name))
            continue;
        refit_node_error(list, REFIT_ERROR_NAME_COLLISION, error,
                         "two parameters are called %s; give each fused one a name of its own",
                         name);
        return FALSE;
    }
    return TRUE;
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GPtrArray) rules = g_ptr_array_new_with_free_func(rule_free);
    g_autoptr(GPtrArray) absent = NULL;

    RefitNode *list = refit_node_require(node, "rules", error);
    RefitNode *absent_node = refit_node_get(node, "absent");
    if (list == NULL || !refit_node_expect(list, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    for (guint i = 0; i < refit_node_size(list); i++) {
        if (!read_rule(layout, refit_node_at(list, i), rules, error))
            return FALSE;
    }
    if (absent_node != NULL) {
        absent = read_globs(absent_node, error);
        if (absent == NULL)
            return FALSE;
    }
    if (!refit_node_finish(node, error))
        return FALSE;

    g_autofree Rule **rule_of = g_new0(Rule *, MAX(refit_model_n_tensors(model), 1));
    for (guint pass = 0; pass < 2; pass++) {
        for (guint i = 0; i < refit_model_n_tensors(model); i++) {
            const RefitTensor *tensor = refit_model_tensor(model, i);
            if (tensor->scale != (pass == 1) || (absent != NULL && matches(absent, tensor->name)))
                continue;
            if (!assign_tensor(layout, list, rules, i, rule_of, error))
                return FALSE;
        }
    }
    for (guint i = 0; i < rules->len; i++) {
        if (!finish_rule(layout, g_ptr_array_index(rules, i), error))
            return FALSE;
    }
    if (!check_names(layout, list, error))
        return FALSE;
    refit_layout_set_summary(
        layout, g_strdup_printf("explicit, %u rule%s", rules->len, rules->len == 1 ? "" : "s"));
    return TRUE;
}

const RefitFramework refit_framework_explicit = {
    .name = "explicit",
    .summary = "rules that name tensors, meshes and placements",
    .keys = keys,
    .generate = generate,
};
