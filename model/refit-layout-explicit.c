/*
 * Explicit layouts: the case says which tensors lie on which mesh, for frameworks without a
 * generator and for shapes none of them has.
 *
 *   rules:
 *     - {tensors: "*.norm.weight", place: [replicate]}
 *     - tensors: ["*.up_proj.weight", "*.gate_proj.weight"]
 *       mesh: [2, 4]                   # row-major over `ranks`; one axis when absent
 *       ranks: [0-7]                   # positions in this side's list; all when absent
 *       place: [{shard: 0, order: 1}, {shard: 0, order: 0}]
 *     - tensors: embed                 # held twice, independently
 *       parts: [{ranks: [0-1], place: ["shard(0)"]}, {ranks: [6-7], place: ["shard(0)"]}]
 *   absent: ["mtp.*"]
 *
 * `absent` goes first, then the first rule with a matching glob. A tensor that neither names is an
 * error, and so is a rule that decides nothing: both are how a misspelt name shows. When two axes
 * cut one dim their order is stated, never guessed. Cost: tensors times globs.
 */

#include "refit-layout-private.h"

#include <string.h>

typedef struct {
    RefitNode *node;
    GPtrArray *globs; /* of GPatternSpec */
    const RefitSharding *sharding;
    guint n_dims;       /* the tensors need at least so many */
    gboolean has_sizes; /* stated sizes must fit each tensor */
    gboolean used;
} Rule;

static const char *const keys[] = {
    "rules\tlist of {tensors: glob or globs, mesh: [sizes], ranks: [positions], place: [one per "
    "mesh axis]}; the first match holds. place: replicate, shard(DIM), or {shard: DIM, split: "
    "chunk|balanced|sizes, sizes: [..], order: N}. parts: [{mesh, ranks, place}, ..] for copies "
    "on several meshes",
    "absent\tlist of globs of tensors that this side does not hold",
    NULL,
};

static void rule_free(gpointer data) {
    Rule *rule = data;

    g_ptr_array_unref(rule->globs);
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

/* ---- placements ---- */

typedef struct {
    RefitPlacement placements[REFIT_MAX_AXES];
    gboolean ordered[REFIT_MAX_AXES];
    GArray *sizes; /* of guint64, all axes in turn */
    guint first_size[REFIT_MAX_AXES];
} Places;

static gboolean read_place_text(RefitNode *node, RefitPlacement *placement, GError **error) {
    const char *text;
    guint64 dim;

    if (!refit_node_string(node, &text, error))
        return FALSE;
    if (g_str_equal(text, "replicate"))
        return TRUE;
    if (g_str_has_prefix(text, "shard(") && g_str_has_suffix(text, ")")) {
        g_autofree char *inside = g_strndup(text + 6, strlen(text) - 7);
        if (g_ascii_string_to_unsigned(inside, 10, 0, REFIT_MAX_DIMS - 1, &dim, NULL)) {
            placement->kind = REFIT_PLACEMENT_SHARD;
            placement->dim = (guint)dim;
            return TRUE;
        }
    }
    refit_node_error(node, REFIT_ERROR_INVALID, error,
                     "\"%s\" is not a placement; write replicate, shard(DIM) with a dim from 0 to "
                     "%u, or {shard: DIM, split: ..., sizes: [...], order: N}",
                     text, REFIT_MAX_DIMS - 1);
    return FALSE;
}

static gboolean read_sizes(RefitNode *node, guint axis_size, GArray *sizes, GError **error) {
    guint64 sum = 0;

    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(node) != axis_size) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "%u sizes for a mesh axis of %u ranks; state one size per rank",
                         refit_node_size(node), axis_size);
        return FALSE;
    }
    for (guint i = 0; i < axis_size; i++) {
        guint64 size;
        if (!refit_node_uint(refit_node_at(node, i), 0, G_MAXINT64, &size, error) ||
            !refit_checked_add(sum, size, "sum of shard sizes", &sum, error))
            return FALSE;
        g_array_append_val(sizes, size);
    }
    return TRUE;
}

static gboolean read_place(RefitNode *node, guint axis, guint axis_size, Places *places,
                           GError **error) {
    static const char *const splits[] = {"chunk", "balanced", "sizes", NULL};
    static const RefitSplit split_of[] = {REFIT_SPLIT_CHUNK, REFIT_SPLIT_BALANCED,
                                          REFIT_SPLIT_SIZES};
    RefitPlacement *placement = &places->placements[axis];
    guint64 dim;
    guint split = 0;

    places->first_size[axis] = places->sizes->len;
    if (refit_node_kind(node) == REFIT_NODE_SCALAR)
        return read_place_text(node, placement, error);
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    RefitNode *shard = refit_node_require(node, "shard", error);
    RefitNode *how = refit_node_get(node, "split"), *sizes = refit_node_get(node, "sizes");
    places->ordered[axis] = refit_node_get(node, "order") != NULL;
    if (shard == NULL || !refit_node_uint(shard, 0, REFIT_MAX_DIMS - 1, &dim, error) ||
        (how != NULL && !refit_node_choice(how, splits, &split, error)) ||
        !refit_node_get_uint(node, "order", 0, G_MAXUINT32, &placement->order, error))
        return FALSE;
    placement->kind = REFIT_PLACEMENT_SHARD;
    placement->dim = (guint)dim;
    placement->split = sizes != NULL && how == NULL ? REFIT_SPLIT_SIZES : split_of[split];
    if ((placement->split == REFIT_SPLIT_SIZES) != (sizes != NULL)) {
        refit_node_error(
            node, REFIT_ERROR_INVALID, error,
            "split: sizes goes with a list sizes: [...], one per rank of the axis, and "
            "no other split does");
        return FALSE;
    }
    if (sizes != NULL) {
        placement->n_sizes = axis_size;
        return read_sizes(sizes, axis_size, places->sizes, error);
    }
    return TRUE;
}

static gboolean check_order(RefitNode *node, const Places *places, guint n_axes, GError **error) {
    for (guint i = 0; i < n_axes; i++) {
        const RefitPlacement *a = &places->placements[i];
        for (guint j = i + 1; j < n_axes; j++) {
            const RefitPlacement *b = &places->placements[j];
            if (a->kind != REFIT_PLACEMENT_SHARD || b->kind != REFIT_PLACEMENT_SHARD ||
                a->dim != b->dim ||
                (places->ordered[i] && places->ordered[j] && a->order != b->order))
                continue;
            refit_node_error(node, REFIT_ERROR_INVALID, error,
                             "dim %u is cut by mesh axes %u and %u; say which cuts first with "
                             "different order: values on both",
                             a->dim, i, j);
            return FALSE;
        }
    }
    return TRUE;
}

/* ---- rules ---- */

static gboolean read_mesh(RefitNode *node, guint n_ranks, guint *sizes, guint *n_axes_out,
                          GError **error) {
    guint64 product = 1; /* divides n_ranks, so the next factor cannot overflow it */
    guint n = 0;

    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    gboolean fits = refit_node_size(node) >= 1 && refit_node_size(node) <= REFIT_MAX_AXES;
    for (; fits && n < refit_node_size(node); n++) {
        guint64 size;
        if (!refit_node_uint(refit_node_at(node, n), 1, G_MAXUINT32, &size, error))
            return FALSE;
        sizes[n] = (guint)size;
        product *= size;
        fits = n_ranks % product == 0;
    }
    if (!fits || product != n_ranks) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "the mesh does not have %u ranks; state 1 to %u axis sizes whose product "
                         "is %u",
                         n_ranks, REFIT_MAX_AXES, n_ranks);
        return FALSE;
    }
    *n_axes_out = n;
    return TRUE;
}

/* Reads `mesh`, `ranks` and `place` of `node` into a part of `sharding`. */
static gboolean read_part(const RefitLayout *layout, RefitNode *node, Rule *rule,
                          RefitSharding *sharding, GError **error) {
    guint n_ranks = refit_layout_n_ranks(layout), sizes[REFIT_MAX_AXES], n_axes = 1;
    g_autoptr(GArray) stated_sizes = g_array_new(FALSE, FALSE, sizeof(guint64));
    g_autoptr(GArray) positions = NULL;
    Places places = {.sizes = stated_sizes};

    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    RefitNode *mesh_node = refit_node_get(node, "mesh"), *list = refit_node_get(node, "ranks");
    RefitNode *place = refit_node_require(node, "place", error);
    if (place == NULL)
        return FALSE;
    if (list != NULL) {
        positions = refit_layout_read_ranks(list, n_ranks, "position", "this side", error);
        if (positions == NULL)
            return FALSE;
        n_ranks = positions->len;
    }
    sizes[0] = n_ranks;
    if (mesh_node != NULL && !read_mesh(mesh_node, n_ranks, sizes, &n_axes, error))
        return FALSE;
    if (!refit_node_expect(place, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(place) != n_axes) {
        refit_node_error(place, REFIT_ERROR_INVALID, error,
                         "%u placements for a mesh of %u axes; state one per axis",
                         refit_node_size(place), n_axes);
        return FALSE;
    }
    for (guint i = 0; i < n_axes; i++) {
        if (!read_place(refit_node_at(place, i), i, sizes[i], &places, error))
            return FALSE;
    }
    if (!check_order(place, &places, n_axes, error))
        return FALSE;
    for (guint i = 0; i < n_axes; i++) {
        RefitPlacement *placement = &places.placements[i];
        if (placement->split == REFIT_SPLIT_SIZES) {
            placement->sizes = &g_array_index(stated_sizes, guint64, places.first_size[i]);
            rule->has_sizes = TRUE;
        }
        if (placement->kind == REFIT_PLACEMENT_SHARD)
            rule->n_dims = MAX(rule->n_dims, placement->dim + 1);
    }

    g_autofree guint *ranks = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        ranks[i] =
            refit_layout_ranks(layout)[positions != NULL ? g_array_index(positions, guint, i) : i];
    RefitMesh *mesh = refit_mesh_new(n_axes, sizes, ranks, n_ranks, error);
    return mesh != NULL && refit_sharding_add(sharding, mesh, places.placements, error);
}

static gboolean read_rule(RefitLayout *layout, RefitNode *node, GPtrArray *rules, GError **error) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();

    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    RefitNode *tensors = refit_node_require(node, "tensors", error);
    GPtrArray *globs = tensors != NULL ? read_globs(tensors, error) : NULL;
    if (globs == NULL)
        return FALSE;
    Rule *rule = g_new0(Rule, 1);
    rule->node = node;
    rule->globs = globs;
    g_ptr_array_add(rules, rule);

    RefitNode *parts = refit_node_get(node, "parts");
    if (parts == NULL) {
        if (!read_part(layout, node, rule, sharding, error))
            return FALSE;
    } else {
        if (!refit_node_expect(parts, REFIT_NODE_SEQUENCE, error))
            return FALSE;
        if (refit_node_size(parts) == 0) {
            refit_node_error(parts, REFIT_ERROR_INVALID, error,
                             "parts is empty; state a mesh, or list the tensors under absent");
            return FALSE;
        }
        for (guint i = 0; i < refit_node_size(parts); i++) {
            if (!read_part(layout, refit_node_at(parts, i), rule, sharding, error))
                return FALSE;
        }
    }
    rule->sharding = refit_layout_share(layout, g_steal_pointer(&sharding));
    return TRUE;
}

static gboolean check_fit(const Rule *rule, const RefitTensor *tensor, GError **error) {
    g_autoptr(GError) inner = NULL;

    if (tensor->n_dims < rule->n_dims) {
        refit_node_error(rule->node, REFIT_ERROR_INVALID, error,
                         "dim %u is cut, but tensor %s has %u dims; give it a rule of its own",
                         rule->n_dims - 1, tensor->name, tensor->n_dims);
        return FALSE;
    }
    if (rule->has_sizes) {
        g_autoptr(RefitHolding) holding =
            refit_holding_new(rule->sharding, tensor->n_dims, tensor->shape, &inner);
        if (holding == NULL) {
            refit_node_error(rule->node, REFIT_ERROR_INVALID, error, "tensor %s: %s", tensor->name,
                             inner->message);
            return FALSE;
        }
    }
    return TRUE;
}

static Rule *find_rule(const GPtrArray *rules, const char *name) {
    for (guint i = 0; i < rules->len; i++) {
        Rule *rule = g_ptr_array_index(rules, i);
        if (matches(rule->globs, name))
            return rule;
    }
    return NULL;
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

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        if (absent != NULL && matches(absent, tensor->name))
            continue;
        Rule *rule = find_rule(rules, tensor->name);
        if (rule == NULL) {
            refit_node_error(list, REFIT_ERROR_INVALID, error,
                             "no rule matches tensor %s; add one or list it under absent",
                             tensor->name);
            return FALSE;
        }
        if (!check_fit(rule, tensor, error))
            return FALSE;
        rule->used = TRUE;
        refit_layout_assign(layout, i, rule->sharding);
    }
    for (guint i = 0; i < rules->len; i++) {
        const Rule *rule = g_ptr_array_index(rules, i);
        if (!rule->used) {
            refit_node_error(rule->node, REFIT_ERROR_INVALID, error,
                             "no tensor of model %s is left for this rule; correct its names or "
                             "put it before the rule that takes them",
                             refit_model_name(model));
            return FALSE;
        }
    }
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
