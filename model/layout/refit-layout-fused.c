/*
 * Fused parameters of explicit layouts.
 *
 *   - fused: ["*.q_proj.weight", "*.k_proj.weight", "*.v_proj.weight"]
 *     blocks: [32, 8, 8]                      # rows of each part in turn; all of them when absent
 *     parameter: "*.linear_qkv.weight"
 *     mesh: [2, 4]
 *     place: [replicate, shard(0)]            # cuts the parameter
 *
 * Tensors belong together when the `*` of their patterns stands for the same text. Problem: the cut
 * is that of the parameter, but planning moves tensors, and a chunk may begin inside a block.
 * Method: the rows of a part are a list whose local places are rows of the parameter, so what a
 * rank holds of the part is a selection from it by what the rank holds of the parameter. Where one
 * axis cuts the rows the mesh is kept, with a list per coordinate; several such axes give a region
 * per rank. Layers of equal shapes share everything. Cost: rows and ranks once per distinct shape,
 * then the number of tensors.
 */

#include "model/layout/refit-layout-explicit.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 64u
#define MAX_ROWS (1u << 20)

/* A name with at most one `*`. */
typedef struct {
    char *before, *after; /* `after` is NULL without a `*` */
} Pattern;

/* The tensors of one parameter, by part; REFIT_NO_MEMBER where none was found. */
typedef struct {
    char *key; /* what the `*` stands for */
    guint members[MAX_PARTS];
} Group;

struct _RefitFusedRule {
    RefitNode *node;
    guint n_parts;
    Pattern parts[MAX_PARTS], parameter;
    guint64 blocks[MAX_PARTS]; /* 0: all rows */
    GPtrArray *groups;         /* in the order of their first tensor */
    GHashTable *by_key;
};

/* The parameter of one shape: what all groups of equal shapes share. */
typedef struct {
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    guint64 part_rows[MAX_PARTS];
    GArray *rows; /* of RefitFusedRows */
    const RefitSharding *members[MAX_PARTS];
} Whole;

/* ---- reading ---- */

static gboolean read_pattern(RefitNode *node, Pattern *pattern, GError **error) {
    const char *text;

    if (!refit_node_string(node, &text, error))
        return FALSE;
    const char *star = strchr(text, '*');
    if (star != NULL && strchr(star + 1, '*') != NULL) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "\"%s\" has more than one *; write one, for what the names of a "
                         "parameter's parts have in common",
                         text);
        return FALSE;
    }
    pattern->before = star != NULL ? g_strndup(text, (gsize)(star - text)) : g_strdup(text);
    pattern->after = star != NULL ? g_strdup(star + 1) : NULL;
    return TRUE;
}

static char *pattern_name(const Pattern *pattern, const char *key) {
    return pattern->after == NULL ? g_strdup(pattern->before)
                                  : g_strconcat(pattern->before, key, pattern->after, NULL);
}

/* What the `*` stands for in `name`, "" without one; NULL when the name does not match. */
static char *pattern_match(const Pattern *pattern, const char *name) {
    gsize length = strlen(name), before = strlen(pattern->before);

    if (pattern->after == NULL)
        return g_str_equal(name, pattern->before) ? g_strdup("") : NULL;
    gsize after = strlen(pattern->after);
    if (length < before + after || !g_str_has_prefix(name, pattern->before) ||
        !g_str_has_suffix(name, pattern->after))
        return NULL;
    return g_strndup(name + before, length - before - after);
}

static gboolean read_blocks(RefitNode *node, RefitFusedRule *rule, GError **error) {
    if (node == NULL)
        return TRUE;
    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(node) != rule->n_parts) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "%u blocks for %u fused parts; state the rows of one block of each part",
                         refit_node_size(node), rule->n_parts);
        return FALSE;
    }
    for (guint i = 0; i < rule->n_parts; i++) {
        if (!refit_node_uint(refit_node_at(node, i), 1, G_MAXINT64, &rule->blocks[i], error))
            return FALSE;
    }
    return TRUE;
}

static void group_free(gpointer data) {
    Group *group = data;

    g_free(group->key);
    g_free(group);
}

static gboolean read_rule(RefitNode *node, RefitFusedRule *rule, GError **error) {
    RefitNode *list = refit_node_get(node, "fused");
    RefitNode *parameter = refit_node_require(node, "parameter", error);

    if (parameter == NULL || !read_pattern(parameter, &rule->parameter, error) ||
        !refit_node_expect(list, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(list) == 0 || refit_node_size(list) > MAX_PARTS) {
        refit_node_error(list, REFIT_ERROR_INVALID, error,
                         "%u fused parts; name at least 1 and at most %u", refit_node_size(list),
                         MAX_PARTS);
        return FALSE;
    }
    for (guint i = 0; i < refit_node_size(list); i++) {
        RefitNode *item = refit_node_at(list, i);
        rule->n_parts++;
        if (!read_pattern(item, &rule->parts[i], error))
            return FALSE;
        if ((rule->parts[i].after == NULL) != (rule->parameter.after == NULL)) {
            refit_node_error(item, REFIT_ERROR_INVALID, error,
                             "either parameter and all fused parts have a *, or none has one");
            return FALSE;
        }
    }
    return read_blocks(refit_node_get(node, "blocks"), rule, error);
}

RefitFusedRule *refit_fused_rule_read(RefitNode *node, GError **error) {
    RefitFusedRule *rule = g_new0(RefitFusedRule, 1);

    rule->node = node;
    rule->groups = g_ptr_array_new_with_free_func(group_free);
    rule->by_key = g_hash_table_new(g_str_hash, g_str_equal);
    if (!read_rule(node, rule, error)) {
        refit_fused_rule_free(rule);
        return NULL;
    }
    return rule;
}

static void pattern_clear(Pattern *pattern) {
    g_free(pattern->before);
    g_free(pattern->after);
}

void refit_fused_rule_free(RefitFusedRule *rule) {
    if (rule == NULL)
        return;
    for (guint i = 0; i < rule->n_parts; i++)
        pattern_clear(&rule->parts[i]);
    pattern_clear(&rule->parameter);
    g_hash_table_unref(rule->by_key);
    g_ptr_array_unref(rule->groups);
    g_free(rule);
}

gboolean refit_fused_rule_take(RefitFusedRule *rule, const RefitModel *model, guint tensor) {
    const char *name = refit_model_tensor(model, tensor)->name;

    for (guint i = 0; i < rule->n_parts; i++) {
        g_autofree char *key = pattern_match(&rule->parts[i], name);
        if (key == NULL)
            continue;
        Group *group = g_hash_table_lookup(rule->by_key, key);
        if (group == NULL) {
            group = g_new(Group, 1);
            group->key = g_steal_pointer(&key);
            for (guint part = 0; part < MAX_PARTS; part++)
                group->members[part] = REFIT_NO_MEMBER;
            g_ptr_array_add(rule->groups, group);
            g_hash_table_insert(rule->by_key, group->key, group);
        }
        group->members[i] = tensor;
        return TRUE;
    }
    return FALSE;
}

/* ---- the parameter ---- */

/* Checks that the parts make up one parameter called `name`; its rows without their places. */
static gboolean check_members(const RefitFusedRule *rule, const RefitModel *model,
                              const Group *group, const char *name, GError **error) {
    const RefitTensor *first = NULL;

    for (guint i = 0; i < rule->n_parts; i++) {
        if (group->members[i] == REFIT_NO_MEMBER) {
            g_autofree char *missing = pattern_name(&rule->parts[i], group->key);
            refit_node_error(rule->node, REFIT_ERROR_NAME_MISSING, error,
                             "parameter %s needs tensor %s, which model %s lacks or another rule "
                             "or absent takes; correct the names or their order",
                             name, missing, refit_model_name(model));
            return FALSE;
        }
        const RefitTensor *tensor = refit_model_tensor(model, group->members[i]);
        first = first != NULL ? first : tensor;
        gboolean fits =
            tensor->n_dims > 0 && tensor->n_dims == first->n_dims && tensor->dtype == first->dtype;
        for (guint d = 1; fits && d < tensor->n_dims; d++)
            fits = tensor->shape[d] == first->shape[d];
        if (!fits) {
            refit_node_error(rule->node, REFIT_ERROR_INVALID, error,
                             "tensors %s and %s of parameter %s differ in more than their rows; "
                             "fuse tensors of one dtype whose dims from 1 on are equal",
                             first->name, tensor->name, name);
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean count_blocks(const RefitFusedRule *rule, const RefitModel *model,
                             const Group *group, guint64 *n_blocks_out, GError **error) {
    guint64 n_blocks = 1;

    for (guint i = 0; i < rule->n_parts; i++) {
        const RefitTensor *tensor = refit_model_tensor(model, group->members[i]);
        guint64 rows = tensor->shape[0], block = rule->blocks[i];

        if (block == 0)
            continue;
        if (i == 0)
            n_blocks = rows / block;
        if (n_blocks > MAX_ROWS / rule->n_parts) {
            refit_node_error(rule->node, REFIT_ERROR_INVALID, error,
                             "tensor %s is in %" G_GUINT64_FORMAT
                             " blocks, above the limit of %u; use larger blocks",
                             tensor->name, n_blocks, MAX_ROWS / rule->n_parts);
            return FALSE;
        }
        if (rows % block == 0 && rows / block == n_blocks)
            continue;
        refit_node_error(rule->node, REFIT_ERROR_INVALID, error,
                         "tensor %s has %" G_GUINT64_FORMAT
                         " rows, which are not %" G_GUINT64_FORMAT " blocks of %" G_GUINT64_FORMAT
                         " rows; state blocks that divide every part into the same number",
                         tensor->name, rows, n_blocks, block);
        return FALSE;
    }
    *n_blocks_out = n_blocks;
    return TRUE;
}

/* Shape and rows of the parameter of `group`. */
static gboolean whole_init(Whole *whole, const RefitFusedRule *rule, const RefitModel *model,
                           const Group *group, GError **error) {
    const RefitTensor *first = refit_model_tensor(model, group->members[0]);
    guint64 n_blocks;

    if (!count_blocks(rule, model, group, &n_blocks, error))
        return FALSE;
    whole->n_dims = first->n_dims;
    memcpy(whole->shape, first->shape, sizeof whole->shape);
    whole->shape[0] = 0;
    for (guint i = 0; i < rule->n_parts; i++) {
        whole->part_rows[i] = refit_model_tensor(model, group->members[i])->shape[0];
        if (!refit_checked_add(whole->shape[0], whole->part_rows[i], "rows of a fused parameter",
                               &whole->shape[0], error))
            return FALSE;
    }
    g_array_set_size(whole->rows, 0);
    for (guint64 b = 0; b < n_blocks; b++) {
        for (guint i = 0; i < rule->n_parts; i++) {
            guint64 block = rule->blocks[i] != 0 ? rule->blocks[i] : whole->part_rows[i];
            RefitFusedRows rows = {.member = i, .lo = b * block, .hi = (b + 1) * block};
            g_array_append_val(whole->rows, rows);
        }
    }
    return TRUE;
}

/* Are all parts of `group` shaped like those that `whole` was made of? */
static gboolean whole_fits(const Whole *whole, const RefitFusedRule *rule, const RefitModel *model,
                           const Group *group) {
    for (guint i = 0; i < rule->n_parts; i++) {
        const RefitTensor *tensor = refit_model_tensor(model, group->members[i]);
        if (tensor->n_dims != whole->n_dims || tensor->shape[0] != whole->part_rows[i])
            return FALSE;
        for (guint d = 1; d < whole->n_dims; d++) {
            if (tensor->shape[d] != whole->shape[d])
                return FALSE;
        }
    }
    return TRUE;
}

/* ---- what the cut leaves of a part ---- */

static int place_compare(const void *a, const void *b) {
    const RefitInterval *left = a, *right = b;

    return left->at < right->at ? -1 : left->at > right->at;
}

/* The rows of a part that a rank has with `held` rows of the parameter, in the order of these. */
static RefitIntervalList *part_of_held(const RefitIntervalList *places,
                                       const RefitIntervalList *held) {
    g_autoptr(RefitIntervalList) spread = refit_interval_list_select(places, held);
    g_autofree RefitInterval *items = g_memdup2(spread->items, spread->n * sizeof *items);
    guint64 at = 0;

    if (spread->n > 1)
        qsort(items, spread->n, sizeof *items, place_compare);
    for (guint i = 0; i < spread->n; i++) {
        items[i].at = at;
        at += items[i].hi - items[i].lo;
    }
    return refit_interval_list_new(items, spread->n, NULL);
}

/* The region of the parameter that a rank holds by one part; it was checked to fit. */
static RefitRegion held_region(const Whole *whole, const RefitSharding *sharding, guint part,
                               guint rank) {
    RefitRegion region = {0};
    guint64 buffer[REFIT_MAX_DIMS];
    gboolean held = refit_sharding_local(sharding, part, rank, whole->n_dims, whole->shape, &region,
                                         buffer, NULL);

    g_assert(held);
    return region;
}

/* The mesh with a list for each coordinate of `axis`, the only one that cuts the rows. */
static gboolean add_listed(RefitSharding *member, const Whole *whole, const RefitSharding *sharding,
                           guint part, guint axis, const RefitIntervalList *places,
                           GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
    guint n = mesh->sizes[axis], stride = 1;
    RefitIntervalList **lists = g_new(RefitIntervalList *, n);
    RefitPlacement placements[REFIT_MAX_AXES];

    for (guint a = axis + 1; a < mesh->n_axes; a++)
        stride *= mesh->sizes[a];
    for (guint i = 0; i < n; i++) {
        g_auto(RefitRegion) region = held_region(whole, sharding, part, mesh->ranks[i * stride]);
        lists[i] = part_of_held(places, region.dims[0]);
    }
    memcpy(placements, refit_sharding_placements(sharding, part),
           mesh->n_axes * sizeof *placements);
    placements[axis] = (RefitPlacement){
        .kind = REFIT_PLACEMENT_SHARD, .split = REFIT_SPLIT_LISTS, .n_lists = n, .lists = lists};
    RefitMesh *copy = refit_mesh_new(mesh->n_axes, mesh->sizes, mesh->ranks, mesh->n_ranks, error);
    gboolean ok = copy != NULL && refit_sharding_add(member, copy, placements, error);
    refit_lists_free(lists, n);
    return ok;
}

static gboolean add_regions(RefitSharding *member, const Whole *whole,
                            const RefitSharding *sharding, guint part,
                            const RefitIntervalList *places, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);

    for (guint i = 0; i < mesh->n_ranks; i++) {
        g_auto(RefitRegion) region = held_region(whole, sharding, part, mesh->ranks[i]);
        RefitIntervalList *rows = part_of_held(places, region.dims[0]);
        refit_interval_list_unref(region.dims[0]);
        region.dims[0] = rows;
        if (!refit_sharding_add_region(member, mesh->ranks[i], &region, error))
            return FALSE;
    }
    return TRUE;
}

static gboolean add_part(RefitSharding *member, const Whole *whole, const RefitSharding *sharding,
                         guint part, const RefitIntervalList *places, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
    const RefitPlacement *placements = refit_sharding_placements(sharding, part);
    guint n_cuts = 0, axis = 0;

    for (guint a = 0; a < mesh->n_axes; a++) {
        if (placements[a].kind == REFIT_PLACEMENT_SHARD && placements[a].dim == 0) {
            axis = a;
            n_cuts++;
        }
    }
    if (n_cuts == 1)
        return add_listed(member, whole, sharding, part, axis, places, error);
    if (n_cuts > 1)
        return add_regions(member, whole, sharding, part, places, error);
    RefitMesh *copy = refit_mesh_new(mesh->n_axes, mesh->sizes, mesh->ranks, mesh->n_ranks, error);
    return copy != NULL && refit_sharding_add(member, copy, placements, error);
}

/* What ranks hold of one part. */
static RefitSharding *member_sharding(const Whole *whole, guint index,
                                      const RefitSharding *sharding, GError **error) {
    g_autoptr(RefitSharding) member = refit_sharding_new();
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    guint64 at = 0;

    for (guint r = 0; r < whole->rows->len; r++) {
        const RefitFusedRows *rows = &g_array_index(whole->rows, RefitFusedRows, r);
        RefitInterval item = {rows->lo, rows->hi, at};
        if (rows->member == index)
            g_array_append_val(items, item);
        at += rows->hi - rows->lo;
    }
    g_autoptr(RefitIntervalList) places =
        refit_interval_list_new((RefitInterval *)(gpointer)items->data, items->len, error);
    if (places == NULL)
        return NULL;
    for (guint d = 1; d < whole->n_dims; d++)
        refit_sharding_set_padded(member, d, refit_sharding_padded(sharding, d));
    for (guint part = 0; part < refit_sharding_n_parts(sharding); part++) {
        if (!add_part(member, whole, sharding, part, places, error))
            return NULL;
    }
    return g_steal_pointer(&member);
}

static gboolean finish_group(const RefitFusedRule *rule, RefitLayout *layout, const Group *group,
                             const RefitExplicitNeeds *needs, const RefitSharding *sharding,
                             const RefitStatedShapes *stated, Whole *whole, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    g_autofree char *name = pattern_name(&rule->parameter, group->key);

    if (!check_members(rule, model, group, name, error))
        return FALSE;
    if (whole->n_dims == 0 || !whole_fits(whole, rule, model, group)) {
        if (!whole_init(whole, rule, model, group, error) ||
            !refit_explicit_check_fit(rule->node, needs, sharding, name, whole->n_dims,
                                      whole->shape, error) ||
            !refit_stated_shapes_check(stated, sharding, name, whole->n_dims, whole->shape, error))
            return FALSE;
        for (guint i = 0; i < rule->n_parts; i++) {
            RefitSharding *member = member_sharding(whole, i, sharding, error);
            if (member == NULL)
                return FALSE;
            whole->members[i] = refit_layout_share(layout, member);
        }
    }
    for (guint i = 0; i < rule->n_parts; i++)
        refit_layout_assign(layout, group->members[i], whole->members[i]);
    RefitFused fused = {.name = name,
                        .n_members = rule->n_parts,
                        .members = group->members,
                        .n_rows = whole->rows->len,
                        .rows = (RefitFusedRows *)(gpointer)whole->rows->data,
                        .n_dims = whole->n_dims,
                        .sharding = sharding};
    memcpy(fused.shape, whole->shape, sizeof fused.shape);
    refit_layout_add_fused(layout, &fused);
    return TRUE;
}

gboolean refit_fused_rule_finish(RefitFusedRule *rule, RefitLayout *layout,
                                 const RefitExplicitNeeds *needs, const RefitSharding *sharding,
                                 const RefitStatedShapes *stated, GError **error) {
    g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(RefitFusedRows));
    Whole whole = {.rows = rows};
    RefitExplicitNeeds exact = *needs;

    exact.inexact = TRUE; /* so that no local region below can fail */
    for (guint i = 0; i < rule->groups->len; i++) {
        if (!finish_group(rule, layout, g_ptr_array_index(rule->groups, i), &exact, sharding,
                          stated, &whole, error))
            return FALSE;
    }
    return TRUE;
}
