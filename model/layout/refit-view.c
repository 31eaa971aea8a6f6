/*
 * Views: from the sharding of each tensor and the packings of the framework to physical parameters.
 *
 * Problem: say for one rank which parameters it has and where each held element of each logical
 * tensor lies in them. Method: the shards of the rank ("pieces") are grouped by the name that the
 * packing table gives their parameter; a group then decides its shape and the place of every row of
 * its members, by interval, so that an interleaved parameter is a list with more intervals and
 * needs no case of its own anywhere else. Cost: the tensors of the model, plus for the held ones a
 * search of their mesh and a sort of their intervals.
 */

#include "model/layout/refit-layout-private.h"
#include "model/layout/refit-view-private.h"

#include <string.h>

/* ---- names ---- */

const RefitFramework *refit_view_framework(const RefitLayout *layout) {
    static const RefitFramework none = {.packings = NULL};
    const RefitFramework *const *frameworks = refit_frameworks();

    while (*frameworks != NULL && !g_str_equal((*frameworks)->name, refit_layout_framework(layout)))
        frameworks++;
    return *frameworks != NULL ? *frameworks : &none;
}

/* `pattern` with the last word of a name at '*' and `number`, when not NULL, at '#'. */
static char *fill(const char *pattern, const char *word, const char *number) {
    GString *text = g_string_new(pattern);

    g_string_replace(text, "*", word, 1);
    if (number != NULL)
        g_string_replace(text, "#", number, 1);
    return g_string_free(text, FALSE);
}

/* Length of the ending of `tensor` that `row` describes, 0: it does not. */
static gsize match_ending(const RefitPacking *row, const RefitTensor *tensor, const char *word) {
    g_autofree char *number =
        tensor->expert == REFIT_NO_EXPERT ? NULL : g_strdup_printf("%d", tensor->expert);
    g_autofree char *ending = fill(row->ending, word, number);
    gsize length = strlen(ending), all = strlen(tensor->name);

    if (!g_str_has_suffix(tensor->name, ending))
        return 0;
    return length == all || tensor->name[all - length - 1] == '.' ? length : 0;
}

static const RefitPacking *find_row(const RefitFramework *framework, guint options,
                                    const RefitTensor *tensor, const char *word,
                                    gsize *length_out) {
    for (const RefitPacking *row = framework->packings; row != NULL && row->parameter != NULL;
         row++) {
        if (row->role != tensor->role || (row->option & ~options) != 0 ||
            (row->parameter[0] == '/' && tensor->mtp))
            continue;
        *length_out = match_ending(row, tensor, word);
        if (*length_out > 0)
            return row;
    }
    return NULL;
}

/* The name without the `drop` bytes of its ending, with the engine's beginning. */
static GString *engine_stem(const RefitFramework *framework, const RefitTensor *tensor,
                            gsize drop) {
    GString *stem = g_string_new_len(tensor->name, (gssize)(strlen(tensor->name) - drop));

    for (guint i = 0; !tensor->mtp && framework->prefixes != NULL && framework->prefixes[i] != NULL;
         i++) {
        g_auto(GStrv) ends = g_strsplit(framework->prefixes[i], "\t", 2);

        if (g_str_has_prefix(stem->str, ends[0])) {
            g_string_erase(stem, 0, (gssize)strlen(ends[0]));
            g_string_prepend(stem, ends[1]);
            break;
        }
    }
    return stem;
}

const RefitPacking *refit_packing_find(const RefitFramework *framework, guint options,
                                       const RefitTensor *tensor, char **parameter_out) {
    const char *dot = strrchr(tensor->name, '.'), *word = dot != NULL ? dot + 1 : tensor->name;
    gsize length = 0;
    const RefitPacking *row = find_row(framework, options, tensor, word, &length);
    g_autofree char *ending = row != NULL ? fill(row->parameter, word, NULL) : NULL;

    if (row != NULL && ending[0] == '/') {
        *parameter_out = g_strdup(ending + 1);
        return row;
    }
    GString *name = engine_stem(framework, tensor, length);
    if (row != NULL)
        g_string_append(name, ending);
    *parameter_out = g_string_free(name, FALSE);
    return row;
}

static const RefitFramework *framework_of(const RefitLayout *layout) {
    const RefitFramework *const *frameworks = refit_frameworks();

    while (*frameworks != NULL && !g_str_equal((*frameworks)->name, refit_layout_framework(layout)))
        frameworks++;
    return *frameworks;
}

guint64 refit_layout_value_roles(const RefitLayout *layout) {
    const RefitFramework *framework = framework_of(layout);
    guint64 roles = 0;

    for (const RefitPacking *row = framework != NULL ? framework->packings : NULL;
         row != NULL && row->parameter != NULL; row++)
        roles |= row->values != NULL ? (guint64)1 << row->role : 0;
    return roles;
}

const char *refit_layout_values(const RefitLayout *layout, guint tensor) {
    const RefitFramework *framework = framework_of(layout);
    g_autofree char *parameter = NULL;
    const RefitPacking *row = NULL;

    if (framework != NULL)
        row =
            refit_packing_find(framework, refit_layout_packing_options(layout),
                               refit_model_tensor(refit_layout_model(layout), tensor), &parameter);
    return row != NULL && row->values != NULL ? row->values : "x";
}

/* ---- pieces and groups ---- */

static void clear_piece(gpointer item) {
    refit_region_clear(&((RefitViewPiece *)item)->region);
}

static void free_group(gpointer item) {
    RefitViewGroup *group = item;

    g_array_unref(group->pieces);
    g_free(group->name);
    g_free(group);
}

gboolean refit_view_is_stack(const RefitTensor *tensor) {
    return tensor->expert == REFIT_NO_EXPERT && refit_layout_is_expert(tensor) &&
           tensor->n_dims > 1;
}

/* The fused parameter of stated members that `tensor` belongs to, or NULL. */
static const RefitFused *find_fused(const RefitViewBuilder *builder, guint tensor) {
    guint number = builder->fused_of != NULL ? builder->fused_of[tensor] : 0;

    return number > 0 ? refit_layout_fused(builder->layout, number - 1) : NULL;
}

/* Per tensor one more than the number of its fused parameter; NULL when there are none. */
static guint *index_fused(const RefitLayout *layout) {
    guint n = refit_layout_n_fused(layout);
    guint *numbers =
        n > 0 ? g_new0(guint, refit_model_n_tensors(refit_layout_model(layout))) : NULL;

    for (guint f = 0; f < n; f++) {
        const RefitFused *fused = refit_layout_fused(layout, f);

        for (guint m = 0; m < fused->n_members; m++) {
            if (fused->members[m] != REFIT_NO_MEMBER)
                numbers[fused->members[m]] = f + 1;
        }
    }
    return numbers;
}

static gboolean has_room(const RefitViewPiece *piece) {
    for (guint d = 0; d < piece->tensor->n_dims; d++) {
        if (piece->buffer[d] == 0)
            return FALSE;
    }
    return TRUE;
}

static RefitViewGroup *take_group(RefitViewBuilder *builder, const char *name) {
    RefitViewGroup *group = g_hash_table_lookup(builder->by_name, name);

    if (group != NULL)
        return group;
    group = g_new0(RefitViewGroup, 1);
    group->name = g_strdup(name);
    group->pieces = g_array_new(FALSE, FALSE, sizeof(RefitViewPiece));
    g_array_set_clear_func(group->pieces, clear_piece);
    g_ptr_array_add(builder->groups, group);
    g_hash_table_insert(builder->by_name, group->name, group);
    return group;
}

/* Takes the region of `piece`. `copy` counts the earlier pieces of its tensor on this rank. */
static void add_piece(RefitViewBuilder *builder, RefitViewPiece *piece, guint copy) {
    static const RefitPacking own = {.pack = REFIT_PACK_OWN}, joined = {.pack = REFIT_PACK_CONCAT};
    const RefitFused *fused = find_fused(builder, piece->index);
    g_autofree char *name = NULL;

    if (fused != NULL) {
        name = g_strdup(fused->name);
        piece->row = &joined;
        while (fused->members[piece->row_part] != piece->index)
            piece->row_part++;
    } else {
        piece->row = refit_packing_find(builder->framework, builder->options, piece->tensor, &name);
        if (piece->row == NULL)
            piece->row = &own;
        piece->row_part = piece->row->part;
        piece->slots = piece->row->stacked ||
                       (piece->row->parameter != NULL && strchr(piece->row->parameter, '#'));
        piece->stack = piece->slots && refit_view_is_stack(piece->tensor);
    }
    /* More copies of an expert have more slots; anything else has another parameter. */
    if (copy > 0 && !piece->slots) {
        char *plain = name;

        name = g_strdup_printf("%s@%u", plain, copy);
        g_free(plain);
    }
    g_array_append_val(take_group(builder, name)->pieces, *piece);
}

/* Where the copy-th piece of `tensor` comes among the slots of the rank. */
static guint turn_of(const RefitViewBuilder *builder, const RefitTensor *tensor, guint rank,
                     guint part, guint copy) {
    const GArray *slots = refit_layout_expert_slots(builder->layout, rank);

    if (slots == NULL || tensor->expert == REFIT_NO_EXPERT)
        return part;
    for (guint slot = 0; slot < slots->len; slot++) {
        if (g_array_index(slots, guint, slot) == (guint)tensor->expert && copy-- == 0)
            return slot;
    }
    g_assert_not_reached();
}

/* All pieces of tensor `index`; FALSE on error. */
static gboolean add_tensor(RefitViewBuilder *builder, guint index, guint rank, GError **error) {
    const RefitSharding *sharding = refit_layout_sharding(builder->layout, index);
    const RefitTensor *tensor = refit_model_tensor(builder->model, index);
    const RefitFused *fused = find_fused(builder, index);
    gboolean named = FALSE;
    guint copy = 0;

    if (sharding == NULL || g_hash_table_contains(builder->elsewhere, sharding) ||
        (fused != NULL && fused->n_rows > 0))
        return TRUE;
    for (guint part = 0; part < refit_sharding_n_parts(sharding); part++) {
        RefitViewPiece piece = {.index = index, .tensor = tensor};
        GError *failed = NULL;

        if (!refit_sharding_local(sharding, part, rank, tensor->n_dims, tensor->shape,
                                  &piece.region, piece.buffer, &failed)) {
            if (failed == NULL)
                continue;
            g_propagate_prefixed_error(error, failed, "%s: ", tensor->name);
            return FALSE;
        }
        named = TRUE;
        if (has_room(&piece)) {
            piece.turn = turn_of(builder, tensor, rank, part, copy);
            add_piece(builder, &piece, copy++);
        } else {
            refit_region_clear(&piece.region);
        }
    }
    if (!named)
        g_hash_table_add(builder->elsewhere, (gpointer)sharding);
    return TRUE;
}

/* ---- the result ---- */

static void clear_parameter(gpointer item) {
    g_free(((RefitParameter *)item)->name);
}

static void clear_view(gpointer item) {
    refit_region_clear(&((RefitView *)item)->region);
}

static int compare_views(gconstpointer a, gconstpointer b) {
    const RefitView *one = a, *two = b;

    if (one->tensor != two->tensor)
        return one->tensor < two->tensor ? -1 : 1;
    if (one->parameter != two->parameter)
        return one->parameter < two->parameter ? -1 : 1;
    return one->offset < two->offset ? -1 : one->offset > two->offset;
}

typedef struct {
    guint first, at; /* first tensor, position before sorting */
} ParameterOrder;

static int compare_order(gconstpointer a, gconstpointer b) {
    const ParameterOrder *one = a, *two = b;

    if (one->first != two->first)
        return one->first < two->first ? -1 : 1;
    return one->at < two->at ? -1 : one->at > two->at;
}

/* Parameters in the order of their first tensor, views in theirs. */
static RefitRankViews *finish(RefitViewBuilder *builder, guint rank) {
    guint n = builder->parameters->len;
    RefitParameter *parameters = (RefitParameter *)(void *)builder->parameters->data;
    RefitView *views = (RefitView *)(void *)builder->views->data;
    g_autofree ParameterOrder *order = g_new(ParameterOrder, n);
    g_autofree guint *position = g_new(guint, n);
    RefitRankViews *result = g_new0(RefitRankViews, 1);

    for (guint p = 0; p < n; p++)
        order[p] = (ParameterOrder){.first = g_array_index(builder->first, guint, p), .at = p};
    if (n > 1)
        qsort(order, n, sizeof *order, compare_order);
    result->rank = rank;
    result->n_parameters = n;
    result->parameters = g_new(RefitParameter, n);
    for (guint p = 0; p < n; p++) {
        result->parameters[p] = parameters[order[p].at];
        position[order[p].at] = p;
    }
    result->n_views = builder->views->len;
    for (guint v = 0; v < result->n_views; v++)
        views[v].parameter = position[views[v].parameter];
    if (result->n_views > 1)
        qsort(views, result->n_views, sizeof *views, compare_views);
    result->views = g_new(RefitView, result->n_views);
    for (guint v = 0; v < result->n_views; v++)
        result->views[v] = views[v];
    /* What the arrays held has moved. */
    g_array_set_clear_func(builder->parameters, NULL);
    g_array_set_clear_func(builder->views, NULL);
    return result;
}

RefitRankViews *refit_rank_views_new(const RefitLayout *layout, guint rank, GError **error) {
    RefitViewBuilder builder = {.layout = layout,
                                .model = refit_layout_model(layout),
                                .framework = refit_view_framework(layout),
                                .options = refit_layout_packing_options(layout)};
    g_autoptr(GHashTable) by_name = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GHashTable) elsewhere = g_hash_table_new(NULL, NULL);
    g_autoptr(GPtrArray) groups = g_ptr_array_new_with_free_func(free_group);
    g_autoptr(GArray) parameters = g_array_new(FALSE, FALSE, sizeof(RefitParameter));
    g_autoptr(GArray) first = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) views = g_array_new(FALSE, FALSE, sizeof(RefitView));
    g_autoptr(GHashTable) taken = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autofree guint *fused_of = index_fused(layout);

    g_array_set_clear_func(parameters, clear_parameter);
    g_array_set_clear_func(views, clear_view);
    builder.by_name = by_name;
    builder.elsewhere = elsewhere;
    builder.groups = groups;
    builder.parameters = parameters;
    builder.first = first;
    builder.views = views;
    builder.taken = taken;
    builder.fused_of = fused_of;
    for (guint i = 0; i < refit_model_n_tensors(builder.model); i++) {
        if (!add_tensor(&builder, i, rank, error))
            return NULL;
    }
    for (guint i = 0; i < groups->len; i++) {
        if (!refit_view_group_emit(&builder, g_ptr_array_index(groups, i), error))
            return NULL;
    }
    for (guint f = 0; f < refit_layout_n_fused(layout); f++) {
        if (!refit_view_fused_emit(&builder, refit_layout_fused(layout, f), rank, error))
            return NULL;
    }
    return finish(&builder, rank);
}

void refit_rank_views_free(RefitRankViews *views) {
    if (views == NULL)
        return;
    for (guint p = 0; p < views->n_parameters; p++)
        clear_parameter(&views->parameters[p]);
    for (guint v = 0; v < views->n_views; v++)
        clear_view(&views->views[v]);
    g_free(views->parameters);
    g_free(views->views);
    g_free(views);
}

const RefitView *refit_rank_views_find(const RefitRankViews *views, guint tensor, guint *n_out) {
    guint low = 0, high = views->n_views, n = 0;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (views->views[middle].tensor < tensor)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + n < views->n_views && views->views[low + n].tensor == tensor)
        n++;
    if (n_out != NULL)
        *n_out = n;
    return n > 0 ? &views->views[low] : NULL;
}
