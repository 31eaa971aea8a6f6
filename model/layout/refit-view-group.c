/*
 * Groups of views: the shape of a parameter that several tensors share and the place of their rows.
 *
 * A group is first surveyed: its slots (one per expert, or one), the rows of each part and the dims
 * that all must agree on. Then each member's rows are placed: shifted to where its part begins, cut
 * into blocks, or, for KV groups, in the order in which a walk over all groups meets the rows that
 * the rank holds. That walk gives the right local order whether ranks hold whole groups or a raw
 * cut of the fused rows, since a cut keeps the order. Cost: intervals of the members, and for KV
 * groups heads times intervals.
 */

#include "model/layout/refit-view-private.h"

#include <string.h>

#define MAX_PARTS 66 /* of a fused parameter of stated members, and some */
#define MAX_SLOTS (1u << 20)
#define UNSET G_MAXUINT64

typedef struct {
    const RefitViewGroup *group;
    const RefitPacking *row; /* of the first piece */
    gboolean numbered;       /* one parameter per slot */
    gboolean leading;        /* one parameter with a dim of slots */
    guint n_slots, n_stacked;
    GArray *numbers; /* of guint64: (turn, expert) of the slots with a number, ascending */
    guint n_dims;    /* of the matrix in a slot */
    guint64 shape[REFIT_MAX_DIMS], stride[REFIT_MAX_DIMS], volume; /* of that matrix */
    guint64 rows[MAX_PARTS], base[MAX_PARTS]; /* per part; UNSET where the part is absent */
    gboolean scalars; /* parts without dims: one number after the other in each slot */
    guint64 block;
    guint first; /* its first parameter */
} Survey;

static const RefitViewPiece *piece_at(const RefitViewGroup *group, guint i) {
    return &g_array_index(group->pieces, RefitViewPiece, i);
}

/* The tensor's dim that is dim `m` of the matrix. */
static guint matrix_dim(const Survey *survey, const RefitViewPiece *piece, guint m) {
    guint n = survey->n_dims;

    if (piece->row->transposed && n >= 2 && m + 2 >= n)
        m = m + 1 == n ? n - 2 : n - 1;
    return m + (piece->stack ? 1 : 0);
}

static gboolean refuse(const Survey *survey, const RefitViewPiece *piece, RefitError code,
                       const char *why, GError **error) {
    const RefitViewPiece *first = piece_at(survey->group, 0);

    if (piece == first)
        g_set_error(error, REFIT_ERROR, code, "%s is part of parameter %s, but %s",
                    piece->tensor->name, survey->group->name, why);
    else
        g_set_error(error, REFIT_ERROR, code, "%s and %s share parameter %s, but %s",
                    first->tensor->name, piece->tensor->name, survey->group->name, why);
    return FALSE;
}

/* ---- survey ---- */

static int compare_numbers(gconstpointer a, gconstpointer b) {
    guint64 one = *(const guint64 *)a, two = *(const guint64 *)b;

    return one < two ? -1 : one > two;
}

static guint64 slot_number(const RefitViewPiece *piece) {
    return (guint64)piece->turn << 32 | (guint)piece->tensor->expert;
}

static void survey_slots(Survey *survey) {
    const RefitViewGroup *group = survey->group;
    gboolean plain = FALSE;
    guint n = 0;

    for (guint i = 0; i < group->pieces->len; i++) {
        const RefitViewPiece *piece = piece_at(group, i);

        if (!piece->slots || piece->tensor->expert != REFIT_NO_EXPERT) {
            guint64 number = piece->slots ? slot_number(piece) : 0;
            g_array_append_val(survey->numbers, number);
        } else if (piece->stack) {
            survey->n_stacked = MAX(survey->n_stacked, (guint)piece->buffer[0]);
        } else {
            plain = TRUE;
        }
    }
    g_array_sort(survey->numbers, compare_numbers);
    for (guint i = 0; i < survey->numbers->len; i++) {
        guint64 number = g_array_index(survey->numbers, guint64, i);

        if (i == 0 || number != g_array_index(survey->numbers, guint64, n - 1))
            g_array_index(survey->numbers, guint64, n++) = number;
    }
    g_array_set_size(survey->numbers, n);
    survey->n_slots = survey->n_stacked + n + (plain ? 1 : 0);
}

static guint slot_of(const Survey *survey, const RefitViewPiece *piece) {
    guint64 number = piece->slots ? slot_number(piece) : 0;
    guint position;

    if (piece->stack)
        return 0;
    if (piece->slots && piece->tensor->expert == REFIT_NO_EXPERT)
        return survey->n_slots - 1;
    if (!g_array_binary_search(survey->numbers, &number, compare_numbers, &position))
        g_assert_not_reached();
    return survey->n_stacked + position;
}

/* Rows of the part or parts that `piece` is; those of equal parts in other slots must agree. */
static gboolean survey_rows(Survey *survey, const RefitViewPiece *piece, GError **error) {
    guint64 rows = survey->n_dims > 0 ? piece->buffer[matrix_dim(survey, piece, 0)] : 1;
    guint n_parts = piece->row->inner == REFIT_INNER_ONE ? 1 : 2;

    if (rows % n_parts != 0)
        return refuse(survey, piece, REFIT_ERROR_INVALID,
                      "its rows are not as many of gate as of up", error);
    for (guint i = 0; i < n_parts; i++) {
        guint64 *known = &survey->rows[piece->row_part + i];

        if (*known != UNSET && *known != rows / n_parts)
            return refuse(survey, piece, REFIT_ERROR_INVALID, "their rows differ in number", error);
        *known = rows / n_parts;
    }
    return TRUE;
}

static gboolean survey_piece(Survey *survey, const RefitViewPiece *piece, GError **error) {
    const RefitTensor *first = piece_at(survey->group, 0)->tensor;
    guint n_dims = piece->tensor->n_dims - (piece->stack ? 1 : 0);

    if (piece->row_part + 2 > MAX_PARTS)
        return refuse(survey, piece, REFIT_ERROR_INVALID, "it has too many parts", error);
    if (piece->stack && piece->buffer[0] > MAX_SLOTS) {
        g_autofree char *why = g_strdup_printf("it has more than %u experts", MAX_SLOTS);
        return refuse(survey, piece, REFIT_ERROR_INVALID, why, error);
    }
    if (piece->tensor->dtype != first->dtype) {
        g_autofree char *why =
            g_strdup_printf("one is %s and the other %s", refit_dtype_name(first->dtype),
                            refit_dtype_name(piece->tensor->dtype));
        return refuse(survey, piece, REFIT_ERROR_INVALID, why, error);
    }
    if (n_dims != survey->n_dims)
        return refuse(survey, piece, REFIT_ERROR_INVALID, "they have not as many dims", error);
    for (guint m = 1; m < n_dims; m++) {
        guint64 extent = piece->buffer[matrix_dim(survey, piece, m)];

        if (piece == piece_at(survey->group, 0))
            survey->shape[m] = extent;
        else if (extent != survey->shape[m])
            return refuse(survey, piece, REFIT_ERROR_INVALID,
                          "dims other than the rows differ in extent", error);
    }
    return survey_rows(survey, piece, error);
}

/* Blocks must fill the parts, which must be alike. */
static gboolean survey_blocks(Survey *survey, GError **error) {
    guint64 rows = UNSET;

    for (guint k = 0; k < MAX_PARTS; k++) {
        if (survey->rows[k] == UNSET)
            continue;
        if (survey->rows[k] % survey->block != 0 || (rows != UNSET && survey->rows[k] != rows)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_GRANULE_SPLIT,
                        "parameter %s has %" G_GUINT64_FORMAT
                        " rows of %s on this rank, which are not whole blocks of %" G_GUINT64_FORMAT
                        "; use fewer ranks or smaller blocks",
                        survey->group->name, survey->rows[k],
                        piece_at(survey->group, 0)->tensor->name, survey->block);
            return FALSE;
        }
        rows = survey->rows[k];
    }
    return TRUE;
}

static gboolean survey_group(const RefitViewBuilder *builder, Survey *survey, GError **error) {
    const RefitViewPiece *first = piece_at(survey->group, 0);
    guint64 total = 0;

    survey->row = first->row;
    survey->leading = first->slots && first->row->stacked;
    survey->numbered = first->slots && !first->row->stacked;
    survey->n_dims = first->tensor->n_dims - (first->stack ? 1 : 0);
    if (survey->row->pack == REFIT_PACK_BLOCKS)
        survey->block = refit_layout_block_rows(builder->layout);
    for (guint k = 0; k < MAX_PARTS; k++)
        survey->rows[k] = UNSET;
    for (guint i = 0; i < survey->group->pieces->len; i++) {
        if (!survey_piece(survey, piece_at(survey->group, i), error))
            return FALSE;
    }
    survey_slots(survey);
    for (guint k = 0; k < MAX_PARTS; k++) {
        survey->base[k] = total;
        if (survey->rows[k] != UNSET &&
            !refit_checked_add(total, survey->rows[k], survey->group->name, &total, error))
            return FALSE;
    }
    if (survey->n_dims > 0)
        survey->shape[0] = total;
    survey->volume = 1;
    for (guint m = survey->n_dims; m-- > 0; survey->volume *= survey->shape[m])
        survey->stride[m] = survey->volume;
    if (survey->n_dims == 0 && total > 1) {
        survey->scalars = TRUE;
        survey->volume = total;
    }
    return survey->block == 0 || survey_blocks(survey, error);
}

/*
 * Each part of each slot is one piece: names of several engines may lead to the same. Sorted are
 * (slot, part, piece); slots and parts fit in half a word, as do tensors.
 */
static gboolean check_places(const Survey *survey, GError **error) {
    g_autoptr(GArray) occupied = g_array_new(FALSE, FALSE, sizeof(guint64));

    for (guint i = 0; i < survey->group->pieces->len; i++) {
        const RefitViewPiece *piece = piece_at(survey->group, i);
        guint64 part = (guint64)slot_of(survey, piece) * MAX_PARTS + piece->row_part;

        for (guint k = 0; k < (piece->row->inner == REFIT_INNER_ONE ? 1u : 2u); k++) {
            guint64 item = (part + k) << 32 | i;
            g_array_append_val(occupied, item);
        }
    }
    g_array_sort(occupied, compare_numbers);
    for (guint i = 1; i < occupied->len; i++) {
        guint64 one = g_array_index(occupied, guint64, i - 1);
        guint64 two = g_array_index(occupied, guint64, i);

        if (one >> 32 != two >> 32)
            continue;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s and %s share parameter %s, but they have the same place in it",
                    piece_at(survey->group, (guint)one)->tensor->name,
                    piece_at(survey->group, (guint)two)->tensor->name, survey->group->name);
        return FALSE;
    }
    return TRUE;
}

/* ---- places of rows ---- */

static void add_item(GArray *items, guint64 lo, guint64 hi, guint64 at) {
    RefitInterval item = {lo, hi, at};

    g_array_append_val(items, item);
}

/* Rows of parts one after the other or in blocks. */
static void place_rows(const Survey *survey, const RefitViewPiece *piece, GArray *items) {
    guint dim = matrix_dim(survey, piece, 0), part = piece->row_part, n_parts = 0;
    const RefitIntervalList *list = piece->region.dims[dim];
    guint64 half = piece->buffer[dim] / 2, block = survey->block;

    for (guint k = 0; k < MAX_PARTS; k++)
        n_parts += survey->rows[k] != UNSET ? 1 : 0;
    for (guint i = 0; i < list->n; i++) {
        guint64 lo = list->items[i].lo, hi = list->items[i].hi, p = list->items[i].at;

        while (lo < hi) {
            guint64 run = hi - lo, row = p, k = part;

            if (piece->row->inner == REFIT_INNER_HALVES) {
                k = part + p / half;
                row = p % half;
                run = MIN(run, half - row);
            } else if (piece->row->inner == REFIT_INNER_PAIRS) {
                k = part + p % 2;
                row = p / 2;
                run = 1;
            }
            guint64 place = survey->base[k] + row;
            if (block > 0) {
                guint64 before = survey->base[k] / survey->rows[k]; /* parts, all alike */

                run = MIN(run, block - row % block);
                place = (row / block * n_parts + before) * block + row % block;
            }
            add_item(items, lo, lo + run, place);
            lo += run;
            p += run;
        }
    }
}

/* The held ones of rows [lo, hi), from *place on. */
static void place_held(const RefitIntervalList *list, guint64 lo, guint64 hi, guint64 *place,
                       GArray *items) {
    for (guint i = 0; i < list->n; i++) {
        guint64 from = MAX(lo, list->items[i].lo), to = MIN(hi, list->items[i].hi);

        if (from >= to)
            continue;
        add_item(items, from, to, *place);
        *place += to - from;
    }
}

/* Whether query tensors hold an output gate per head: twice the rows of a key head. */
static gboolean has_gates(const RefitModel *model) {
    guint64 query = 0, key = 0;

    for (guint t = 0; t < refit_model_n_tensors(model) && (query == 0 || key == 0); t++) {
        const RefitTensor *tensor = refit_model_tensor(model, t);

        if (tensor->scale || tensor->n_dims == 0)
            continue;
        if (tensor->role == REFIT_ROLE_ATTENTION_Q && query == 0)
            query = tensor->shape[0] / refit_model_n_heads(model);
        else if (tensor->role == REFIT_ROLE_ATTENTION_K && key == 0)
            key = tensor->shape[0] / refit_model_n_kv_heads(model);
    }
    return query == 2 * key;
}

static gboolean place_kv_groups(const RefitViewBuilder *builder, const Survey *survey,
                                GPtrArray *items, GError **error) {
    guint groups = refit_model_n_kv_heads(builder->model), place_part = 0;
    guint64 place = 0, heads = groups == 0 ? 0 : refit_model_n_heads(builder->model) / groups;
    gboolean gates = groups > 0 && has_gates(builder->model);

    for (guint i = 0; i < survey->group->pieces->len; i++) {
        const RefitViewPiece *piece = piece_at(survey->group, i);
        guint64 units = (guint64)groups * (piece->row_part > 0 ? 1 : heads * (gates ? 2 : 1));

        if (units == 0 || piece->tensor->n_dims == 0 || piece->tensor->shape[0] % units != 0)
            return refuse(survey, piece, REFIT_ERROR_INVALID,
                          "its rows do not divide by the heads of the model", error);
    }
    for (guint group = 0; group < groups; group++) {
        for (place_part = 0; place_part < 3; place_part++) {
            for (guint i = 0; i < survey->group->pieces->len; i++) {
                const RefitViewPiece *piece = piece_at(survey->group, i);
                const RefitIntervalList *list = piece->region.dims[0];
                guint64 rows = piece->tensor->shape[0] / groups, lo = group * rows;

                if (piece->row_part != place_part)
                    continue;
                if (place_part > 0 || !gates) {
                    place_held(list, lo, lo + rows, &place, g_ptr_array_index(items, i));
                    continue;
                }
                guint64 half = rows / heads / 2;
                for (guint64 h = 0; h < 2 * heads; h++) { /* queries, then gates */
                    guint64 from = lo + (h % heads * 2 + h / heads) * half;
                    place_held(list, from, from + half, &place, g_ptr_array_index(items, i));
                }
            }
        }
    }
    if (place == survey->shape[0])
        return TRUE;
    return refuse(survey, piece_at(survey->group, 0), REFIT_ERROR_INVALID,
                  "its groups cannot be padded", error);
}

/* ---- parameters and views ---- */

static gboolean add_parameter(RefitViewBuilder *builder, const char *name, guint copy,
                              const RefitTensor *example, guint n_dims, const guint64 *shape,
                              GError **error) {
    RefitParameter parameter = {.dtype = example->dtype, .n_dims = n_dims};
    guint first = G_MAXUINT;
    guint64 elements = 1;

    for (guint d = 0; d < n_dims; d++) {
        parameter.shape[d] = shape[d];
        if (!refit_checked_mul(elements, shape[d], name, &elements, error))
            return FALSE;
    }
    if (!refit_dtype_bytes(parameter.dtype, elements, &parameter.bytes, error)) {
        g_prefix_error(error, "parameter %s: ", name);
        return FALSE;
    }
    parameter.name = copy > 0 ? g_strdup_printf("%s@%u", name, copy) : g_strdup(name);
    if (!g_hash_table_add(builder->taken, g_strdup(parameter.name))) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "two parameters have the name %s",
                    parameter.name);
        g_free(parameter.name);
        return FALSE;
    }
    g_array_append_val(builder->parameters, parameter);
    g_array_append_val(builder->first, first);
    return TRUE;
}

/* Counts tensor `index` among those of `parameter`; calls come tensor by tensor. */
static void count_tensor(RefitViewBuilder *builder, guint index, guint parameter, gboolean held) {
    RefitParameter *counted = &g_array_index(builder->parameters, RefitParameter, parameter);
    guint *first = &g_array_index(builder->first, guint, parameter);
    const RefitView *last = builder->views->len > 0
                                ? &g_array_index(builder->views, RefitView, builder->views->len - 1)
                                : NULL;

    *first = MIN(*first, index);
    if (held && (last == NULL || last->tensor != index || last->parameter != parameter))
        counted->n_tensors++;
}

static gboolean add_view(RefitViewBuilder *builder, const Survey *survey,
                         const RefitViewPiece *piece, GArray *rows, GError **error) {
    guint slot = slot_of(survey, piece), row_dim = matrix_dim(survey, piece, 0);
    gboolean held = !refit_region_is_empty(&piece->region);
    g_auto(RefitRegion) region = refit_region_copy(&piece->region);
    RefitView view = {.tensor = piece->index};

    for (guint m = 0; m < survey->n_dims; m++)
        view.stride[matrix_dim(survey, piece, m)] = survey->stride[m];
    if (piece->stack)
        view.stride[0] = survey->volume;
    if (survey->n_dims > 0) {
        RefitIntervalList *placed =
            refit_interval_list_new((const RefitInterval *)(void *)rows->data, rows->len, error);
        if (placed == NULL)
            return FALSE;
        refit_interval_list_unref(region.dims[row_dim]);
        region.dims[row_dim] = placed;
    }
    if (survey->leading)
        view.offset = slot * survey->volume;
    if (survey->scalars)
        view.offset += survey->base[piece->row_part];
    if (!survey->numbered || !piece->stack) {
        view.parameter = survey->first + (survey->numbered ? slot : 0);
        count_tensor(builder, piece->index, view.parameter, held);
        if (held) {
            view.region = refit_region_copy(&region);
            g_array_append_val(builder->views, view);
        }
        return TRUE;
    }
    /* One parameter per expert of a stacked tensor. */
    for (guint i = 0; i < piece->region.dims[0]->n; i++) {
        const RefitInterval *item = &piece->region.dims[0]->items[i];

        for (guint64 e = item->lo; e < item->hi; e++) {
            view.parameter = survey->first + (guint)(item->at + e - item->lo);
            count_tensor(builder, piece->index, view.parameter, held);
            if (!held)
                continue;
            view.region = refit_region_copy(&region);
            refit_interval_list_unref(view.region.dims[0]);
            view.region.dims[0] = refit_interval_list_range(e, e + 1);
            g_array_append_val(builder->views, view);
        }
    }
    return TRUE;
}

static gboolean add_parameters(RefitViewBuilder *builder, Survey *survey, GError **error) {
    const RefitViewPiece *first = piece_at(survey->group, 0);
    guint64 shape[REFIT_MAX_DIMS + 1];
    guint n_dims = 0;

    survey->first = builder->parameters->len;
    if (survey->leading)
        shape[n_dims++] = survey->n_slots;
    if (survey->scalars)
        shape[n_dims++] = survey->volume;
    for (guint m = 0; m < survey->n_dims; m++)
        shape[n_dims++] = survey->shape[m];
    if (n_dims > REFIT_MAX_DIMS)
        return refuse(survey, first, REFIT_ERROR_INVALID, "it has too many dims", error);
    for (guint slot = 0; slot < (survey->numbered ? survey->n_slots : 1); slot++) {
        GString *name = g_string_new(survey->group->name);
        g_autofree char *number = g_strdup_printf("%u", slot);

        if (survey->numbered)
            g_string_replace(name, "#", number, 1);
        g_autofree char *text = g_string_free(name, FALSE);
        if (!add_parameter(builder, text, 0, first->tensor, n_dims, shape, error))
            return FALSE;
    }
    return TRUE;
}

gboolean refit_view_group_emit(RefitViewBuilder *builder, const RefitViewGroup *group,
                               GError **error) {
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(guint64));
    g_autoptr(GPtrArray) items = g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref);
    Survey survey = {.group = group, .numbers = numbers};

    if (!survey_group(builder, &survey, error) || !check_places(&survey, error) ||
        !add_parameters(builder, &survey, error))
        return FALSE;
    for (guint i = 0; i < group->pieces->len; i++)
        g_ptr_array_add(items, g_array_new(FALSE, FALSE, sizeof(RefitInterval)));
    if (survey.row->pack == REFIT_PACK_KV_GROUP) {
        if (!place_kv_groups(builder, &survey, items, error))
            return FALSE;
    } else if (survey.n_dims > 0) {
        for (guint i = 0; i < group->pieces->len; i++)
            place_rows(&survey, piece_at(group, i), g_ptr_array_index(items, i));
    }
    for (guint i = 0; i < group->pieces->len; i++) {
        if (!add_view(builder, &survey, piece_at(group, i), g_ptr_array_index(items, i), error))
            return FALSE;
    }
    return TRUE;
}

/* ---- fused parameters of stated rows ---- */

/* Rows of each member where the rank's part of the fused rows stores them. */
static void place_fused(const RefitFused *fused, const RefitIntervalList *held, GPtrArray *items) {
    guint64 start = 0;
    guint item = 0;

    for (guint r = 0; r < fused->n_rows; r++) {
        const RefitFusedRows *rows = &fused->rows[r];
        guint64 end = start + (rows->hi - rows->lo);

        while (item < held->n && held->items[item].hi <= start)
            item++;
        for (guint i = item; i < held->n && held->items[i].lo < end; i++) {
            guint64 from = MAX(start, held->items[i].lo), to = MIN(end, held->items[i].hi);

            add_item(g_ptr_array_index(items, rows->member), rows->lo + (from - start),
                     rows->lo + (to - start), held->items[i].at + (from - held->items[i].lo));
        }
        start = end;
    }
}

static gboolean add_fused(RefitViewBuilder *builder, const RefitFused *fused,
                          const RefitRegion *held, const guint64 *buffer, guint copy,
                          GError **error) {
    g_autoptr(GPtrArray) items = g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref);
    guint parameter = builder->parameters->len, example = 0;

    while (fused->members[example] == REFIT_NO_MEMBER)
        example++;
    if (!add_parameter(builder, fused->name, copy,
                       refit_model_tensor(builder->model, fused->members[example]), fused->n_dims,
                       buffer, error))
        return FALSE;
    for (guint m = 0; m < fused->n_members; m++)
        g_ptr_array_add(items, g_array_new(FALSE, FALSE, sizeof(RefitInterval)));
    place_fused(fused, held->dims[0], items);
    for (guint m = 0; m < fused->n_members; m++) {
        const GArray *rows = g_ptr_array_index(items, m);
        RefitView view = {.tensor = fused->members[m], .parameter = parameter};
        guint64 stride = 1;

        if (fused->members[m] == REFIT_NO_MEMBER)
            continue;
        RefitIntervalList *placed =
            refit_interval_list_new((const RefitInterval *)(void *)rows->data, rows->len, error);
        if (placed == NULL)
            return FALSE;
        view.region = refit_region_copy(held);
        refit_interval_list_unref(view.region.dims[0]);
        view.region.dims[0] = placed;
        count_tensor(builder, view.tensor, parameter, !refit_region_is_empty(&view.region));
        if (refit_region_is_empty(&view.region)) {
            refit_region_clear(&view.region);
            continue;
        }
        for (guint d = fused->n_dims; d-- > 0; stride *= buffer[d])
            view.stride[d] = stride;
        g_array_append_val(builder->views, view);
    }
    return TRUE;
}

gboolean refit_view_fused_emit(RefitViewBuilder *builder, const RefitFused *fused, guint rank,
                               GError **error) {
    guint copy = 0;

    for (guint part = 0; fused->n_rows > 0 && part < refit_sharding_n_parts(fused->sharding);
         part++) {
        g_auto(RefitRegion) held = {0};
        guint64 buffer[REFIT_MAX_DIMS];
        GError *failed = NULL;
        gboolean room = TRUE;

        if (!refit_sharding_local(fused->sharding, part, rank, fused->n_dims, fused->shape, &held,
                                  buffer, &failed)) {
            if (failed == NULL)
                continue;
            g_propagate_prefixed_error(error, failed, "%s: ", fused->name);
            return FALSE;
        }
        for (guint d = 0; d < fused->n_dims; d++)
            room = room && buffer[d] > 0;
        if (room && !add_fused(builder, fused, &held, buffer, copy++, error))
            return FALSE;
    }
    return TRUE;
}
