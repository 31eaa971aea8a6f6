/*
 * Groups a model's tensors into classes and prepares what planning needs of each class.
 *
 * Three tables answer "seen before?": class keys (shape, dtype, purpose, shardings), holdings
 * (shardings, shape) and cells (source holding, destination holding). Keys are short arrays of
 * words; the tables are only ever looked up, never iterated, so pointers inside keys cannot
 * influence any order. Classes are numbered by their first member. Cost: one look-up per tensor,
 * geometry once per distinct pair of holdings.
 */

#include "model/problem/refit-problem.h"

#include "model/base/refit-words.h"
#include "model/layout/refit-granule.h"

#include <string.h>

/* ---- construction state ---- */

typedef struct {
    RefitProblem *problem;
    GHashTable *holding_table; /* words -> RefitHolding, owned by the problem */
    GHashTable *cells_table;   /* words -> RefitCells, owned by the problem */
} Preparation;

static const char *first_member_name(const RefitProblem *problem, const RefitClass *klass) {
    return refit_model_tensor(problem->refit_case->model, klass->members[0])->name;
}

static void prefix_tensor(const RefitProblem *problem, const RefitClass *klass, GError **error) {
    g_prefix_error(error, "tensor %s: ", first_member_name(problem, klass));
}

/* Takes the ranks that failed out of a holding, and the pieces that are left without ranks. */
static void drop_failed(const RefitProblem *problem, RefitHolding *holding) {
    guint n_pieces = 0;
    for (guint i = 0; i < holding->n_pieces; i++) {
        RefitPiece piece = holding->pieces[i];
        guint n_ranks = 0;
        for (guint r = 0; r < piece.n_ranks; r++)
            if (!problem->failed[piece.ranks[r]])
                piece.ranks[n_ranks++] = piece.ranks[r];
        piece.n_ranks = n_ranks;
        if (n_ranks > 0) {
            holding->pieces[n_pieces++] = piece;
            continue;
        }
        refit_region_clear(&piece.region);
    }
    holding->n_pieces = n_pieces;
}

/* What the given shardings together hold of the class's shape; shared between classes. */
static const RefitHolding *find_holding(Preparation *preparation, const RefitClass *klass,
                                        const RefitSharding *const *shardings, guint n,
                                        GError **error) {
    guint n_words = 2 + klass->n_dims + n;
    g_autofree guint64 *key = g_new(guint64, n_words);
    key[0] = n_words;
    key[1] = klass->n_dims;
    for (guint dim = 0; dim < klass->n_dims; dim++)
        key[2 + dim] = klass->shape[dim];
    for (guint i = 0; i < n; i++)
        key[2 + klass->n_dims + i] = (guintptr)shardings[i];
    RefitHolding *holding = g_hash_table_lookup(preparation->holding_table, key);
    if (holding != NULL)
        return holding;

    holding = refit_holding_new_all(shardings, n, klass->n_dims, klass->shape, error);
    if (holding == NULL)
        return NULL;
    for (guint piece = 0; piece < holding->n_pieces; piece++) {
        const RefitPiece *held = &holding->pieces[piece];
        guint last = held->ranks[held->n_ranks - 1];
        if (last >= preparation->problem->n_ranks) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "rank %u holds or needs a shard, but the topology has %u GPUs; "
                        "give the topology more nodes or the layouts fewer ranks",
                        last, preparation->problem->n_ranks);
            refit_holding_free(holding);
            return NULL;
        }
    }
    drop_failed(preparation->problem, holding);
    g_ptr_array_add(preparation->problem->holdings, holding);
    g_hash_table_insert(preparation->holding_table, g_steal_pointer(&key), holding);
    return holding;
}

static const RefitCells *find_cells(Preparation *preparation, const RefitHolding *source,
                                    const RefitHolding *destination) {
    const guint64 key[3] = {3, (guintptr)source, (guintptr)destination};
    RefitCells *cells = g_hash_table_lookup(preparation->cells_table, key);
    if (cells == NULL) {
        cells = refit_cells_new(source, destination);
        g_ptr_array_add(preparation->problem->cells, cells);
        g_hash_table_insert(preparation->cells_table, refit_words_copy(key), cells);
    }
    return cells;
}

/* ---- checks ---- */

gboolean refit_class_cuts_byte(const RefitClass *klass, const RefitRegion *region) {
    guint dim;
    guint64 place;
    return refit_granules_cut_byte(klass->dtype, klass->n_dims, klass->shape, region, &dim, &place);
}

/* A source rank that failed and held part of `region`; G_MAXUINT when there is none. */
static guint find_lost_holder(const RefitProblem *problem, const RefitClass *klass,
                              const RefitRegion *region) {
    const RefitCase *refit_case = problem->refit_case;
    const RefitSharding *sharding = refit_layout_sharding(refit_case->source, klass->members[0]);
    if (refit_case->n_failed == 0 || sharding == NULL)
        return G_MAXUINT;
    g_autoptr(RefitHolding) held = refit_holding_new(sharding, klass->n_dims, klass->shape, NULL);
    for (guint i = 0; held != NULL && i < held->n_pieces; i++) {
        const RefitPiece *piece = &held->pieces[i];
        if (refit_region_common(&piece->region, region) == 0)
            continue;
        for (guint r = 0; r < piece->n_ranks; r++)
            if (problem->failed[piece->ranks[r]])
                return piece->ranks[r];
    }
    return G_MAXUINT;
}

static void set_uncovered(const RefitProblem *problem, const RefitClass *klass,
                          const RefitCell *cell, GError **error) {
    g_autofree char *text = refit_region_to_string(&cell->region);
    const char *others = cell->n_needers > 1 ? " and others" : "";
    guint lost = find_lost_holder(problem, klass, &cell->region);
    if (lost != G_MAXUINT)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_DATA_LOST,
                    "tensor %s: region %s is needed by rank %u%s but was held only by ranks that "
                    "failed, such as %u; bring one of them back or load the tensor from storage",
                    first_member_name(problem, klass), text, cell->needers[0], others, lost);
    else
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_COVERED,
                    "tensor %s: region %s is needed by rank %u%s but held by no source rank; "
                    "the source layout must cover the whole tensor",
                    first_member_name(problem, klass), text, cell->needers[0], others);
}

static gboolean check_cells(const RefitProblem *problem, const RefitClass *klass, GError **error) {
    const RefitTensor *first = refit_model_tensor(problem->refit_case->model, klass->members[0]);
    for (guint i = 0; i < klass->cells->n_cells; i++) {
        const RefitCell *cell = &klass->cells->cells[i];
        if (cell->n_holders == 0) {
            set_uncovered(problem, klass, cell, error);
            return FALSE;
        }
    }
    /* Cells end where pieces do, so that they cut nothing that no piece cuts. */
    return refit_granules_check(first, klass->source, "the source", error) &&
           refit_granules_check(first, klass->destination, "the destination", error);
}

/* ---- one class ---- */

/* Pipeline stage of the lowest rank that holds part of the class. */
static guint find_stage(const RefitLayout *source, const RefitHolding *holding,
                        const guint *position_of) {
    guint first = G_MAXUINT;
    for (guint piece = 0; piece < holding->n_pieces; piece++)
        first = MIN(first, holding->pieces[piece].ranks[0]);
    guint position = first == G_MAXUINT ? G_MAXUINT : position_of[first];
    return position == G_MAXUINT ? 0 : refit_layout_stage_of(source, position);
}

static gboolean prepare_class(Preparation *preparation, RefitClass *klass, const guint *position_of,
                              GError **error) {
    RefitProblem *problem = preparation->problem;
    const RefitCase *refit_case = problem->refit_case;
    guint tensor = klass->members[0];
    const RefitSharding *source = refit_layout_sharding(refit_case->source, tensor);
    if (source == NULL) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_COVERED,
                    "tensor %s: needed by the destination but no source rank holds it; "
                    "add it to the source layout",
                    first_member_name(problem, klass));
        return FALSE;
    }
    g_autofree const RefitSharding **destinations =
        g_new(const RefitSharding *, refit_case->n_destinations);
    guint n_destinations = 0;
    for (guint pool = 0; pool < refit_case->n_destinations; pool++) {
        const RefitSharding *sharding =
            refit_layout_sharding(refit_case->destinations[pool], tensor);
        if (sharding != NULL)
            destinations[n_destinations++] = sharding;
    }
    klass->source = find_holding(preparation, klass, &source, 1, error);
    if (klass->source != NULL)
        klass->destination = find_holding(preparation, klass, destinations, n_destinations, error);
    if (klass->source == NULL || klass->destination == NULL) {
        prefix_tensor(problem, klass, error);
        return FALSE;
    }
    klass->cells = find_cells(preparation, klass->source, klass->destination);
    klass->stage = find_stage(refit_case->source, klass->source, position_of);
    return check_cells(problem, klass, error);
}

static gboolean count_bytes(RefitProblem *problem, const RefitClass *klass, GError **error) {
    guint64 needed = 0, bytes;
    for (guint i = 0; i < klass->cells->n_cells; i++) {
        const RefitCell *cell = &klass->cells->cells[i];
        if (!refit_checked_mul(refit_class_bytes(klass, cell->volume), cell->n_needers,
                               "bytes needed", &bytes, error) ||
            !refit_checked_add(needed, bytes, "bytes needed", &needed, error))
            return FALSE;
    }
    return refit_checked_mul(needed, klass->n_members, "bytes needed", &needed, error) &&
           refit_checked_add(problem->needed_bytes, needed, "bytes needed", &problem->needed_bytes,
                             error) &&
           refit_checked_mul(klass->bytes, klass->n_members, "bytes of weights", &bytes, error) &&
           refit_checked_add(problem->weight_bytes, bytes, "bytes of weights",
                             &problem->weight_bytes, error);
}

/* ---- grouping ---- */

gboolean refit_tensor_is_bulk(const RefitTensor *tensor) {
    if (tensor->mtp || tensor->scale)
        return FALSE;
    switch (tensor->role) {
    case REFIT_ROLE_DENSE_GATE:
    case REFIT_ROLE_DENSE_UP:
    case REFIT_ROLE_DENSE_DOWN:
    case REFIT_ROLE_EXPERT_GATE:
    case REFIT_ROLE_EXPERT_UP:
    case REFIT_ROLE_EXPERT_DOWN:
    case REFIT_ROLE_EXPERT_GATE_UP:
    case REFIT_ROLE_EXPERT_GATE_UP_T:
    case REFIT_ROLE_EXPERT_GATE_UP_HALVES_T:
    case REFIT_ROLE_EXPERT_DOWN_T:
        return TRUE;
    default:
        return FALSE;
    }
}

/* Writes the tensor's class key; FALSE when no destination needs it. */
static gboolean class_key(const RefitCase *refit_case, guint index, guint64 *key) {
    const RefitTensor *tensor = refit_model_tensor(refit_case->model, index);
    guint n = 1;
    key[n++] = tensor->n_dims;
    for (guint dim = 0; dim < tensor->n_dims; dim++)
        key[n++] = tensor->shape[dim];
    key[n++] = tensor->dtype;
    for (guint dim = 0; dim < tensor->n_dims; dim++)
        key[n++] = tensor->granule[dim];
    key[n++] = (tensor->tiled ? 4u : 0u) | (refit_tensor_is_bulk(tensor) ? 2u : 0u) |
               (tensor->mtp ? 1u : 0u);
    key[n++] = (guintptr)refit_layout_sharding(refit_case->source, index);
    gboolean needed = FALSE;
    for (guint pool = 0; pool < refit_case->n_destinations; pool++) {
        const RefitSharding *sharding =
            refit_layout_sharding(refit_case->destinations[pool], index);
        needed |= sharding != NULL;
        key[n++] = (guintptr)sharding;
    }
    key[0] = n;
    return needed;
}

static gboolean describe_class(const RefitTensor *tensor, RefitClass *klass, GError **error) {
    klass->n_dims = tensor->n_dims;
    memcpy(klass->shape, tensor->shape, sizeof klass->shape);
    klass->dtype = tensor->dtype;
    klass->elements = tensor->elements;
    klass->bulk = refit_tensor_is_bulk(tensor);
    if (refit_dtype_bytes(tensor->dtype, tensor->elements, &klass->bytes, error))
        return TRUE;
    g_prefix_error(error, "tensor %s: ", tensor->name);
    return FALSE;
}

/* Numbers the classes by first member and lays out the member lists. */
static gboolean group_tensors(RefitProblem *problem, GError **error) {
    const RefitCase *refit_case = problem->refit_case;
    guint n_tensors = refit_model_n_tensors(refit_case->model);
    g_autoptr(GHashTable) table =
        g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL);
    g_autoptr(GArray) classes = g_array_new(FALSE, TRUE, sizeof(RefitClass));
    g_autofree guint64 *key =
        g_new(guint64, 5 + 2 * REFIT_MAX_DIMS + (gsize)refit_case->n_destinations);
    g_autofree guint *class_of = g_new(guint, MAX(n_tensors, 1));
    guint n_needed = 0;
    for (guint tensor = 0; tensor < n_tensors; tensor++) {
        class_of[tensor] = G_MAXUINT;
        if (!class_key(refit_case, tensor, key))
            continue;
        guint number = GPOINTER_TO_UINT(g_hash_table_lookup(table, key)); /* 1 + class */
        if (number == 0) {
            RefitClass klass = {0};
            if (!describe_class(refit_model_tensor(refit_case->model, tensor), &klass, error))
                return FALSE;
            g_array_append_val(classes, klass);
            number = classes->len;
            g_hash_table_insert(table, refit_words_copy(key), GUINT_TO_POINTER(number));
        }
        class_of[tensor] = number - 1;
        g_array_index(classes, RefitClass, number - 1).n_members++;
        n_needed++;
    }
    problem->n_classes = classes->len;
    problem->classes = (RefitClass *)(gpointer)g_array_free(g_steal_pointer(&classes), FALSE);
    g_array_set_size(problem->members, n_needed);
    g_autofree guint *next = g_new(guint, MAX(problem->n_classes, 1));
    for (guint number = 0, at = 0; number < problem->n_classes; number++) {
        next[number] = at;
        problem->classes[number].members = &g_array_index(problem->members, guint, at);
        at += problem->classes[number].n_members;
    }
    for (guint tensor = 0; tensor < n_tensors; tensor++)
        if (class_of[tensor] != G_MAXUINT)
            g_array_index(problem->members, guint, next[class_of[tensor]]++) = tensor;
    return TRUE;
}

/* Position of each rank in the source layout, G_MAXUINT for ranks outside it. */
static guint *source_positions(const RefitProblem *problem) {
    const RefitLayout *source = problem->refit_case->source;
    guint *position_of = g_new(guint, MAX(problem->n_ranks, 1));
    for (guint rank = 0; rank < problem->n_ranks; rank++)
        position_of[rank] = G_MAXUINT;
    const guint *ranks = refit_layout_ranks(source);
    for (guint position = 0; position < refit_layout_n_ranks(source); position++)
        if (ranks[position] < problem->n_ranks)
            position_of[ranks[position]] = position;
    return position_of;
}

static void note_failed(RefitProblem *problem) {
    const RefitCase *refit_case = problem->refit_case;
    problem->failed = g_new0(guint8, MAX(problem->n_ranks, 1));
    for (guint i = 0; i < refit_case->n_failed; i++)
        if (refit_case->failed[i] < problem->n_ranks)
            problem->failed[refit_case->failed[i]] = 1;
}

/* Sides that hold another form than that on the wire must be able to hold it. */
static gboolean check_held(const RefitCase *refit_case, GError **error) {
    if (refit_case->source_held != NULL &&
        !refit_granules_check_layout(refit_case->source_held, error))
        return FALSE;
    for (guint pool = 0; refit_case->destinations_held != NULL && pool < refit_case->n_destinations;
         pool++)
        if (refit_case->destinations_held[pool] != NULL &&
            !refit_granules_check_layout(refit_case->destinations_held[pool], error))
            return FALSE;
    return TRUE;
}

RefitProblem *refit_problem_new(const RefitCase *refit_case, GError **error) {
    g_return_val_if_fail(refit_case != NULL && refit_case->n_destinations > 0, NULL);
    g_autoptr(RefitProblem) problem = g_new0(RefitProblem, 1);
    problem->refit_case = refit_case;
    problem->n_ranks = refit_topology_n_gpus(refit_case->topology);
    problem->holdings = g_ptr_array_new_with_free_func((GDestroyNotify)refit_holding_free);
    problem->cells = g_ptr_array_new_with_free_func((GDestroyNotify)refit_cells_free);
    problem->members = g_array_new(FALSE, FALSE, sizeof(guint));
    note_failed(problem);
    if (!check_held(refit_case, error))
        return NULL;
    if (!group_tensors(problem, error))
        return NULL;

    g_autoptr(GHashTable) holding_table =
        g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL);
    g_autoptr(GHashTable) cells_table =
        g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL);
    g_autofree guint *position_of = source_positions(problem);
    Preparation preparation = {problem, holding_table, cells_table};
    guint n_kept = 0;
    for (guint number = 0; number < problem->n_classes; number++) {
        RefitClass *klass = &problem->classes[number];
        if (!prepare_class(&preparation, klass, position_of, error))
            return NULL;
        /* Where all that needed a tensor failed, nothing is left to move. */
        if (klass->destination->n_pieces == 0 && refit_case->n_failed > 0)
            continue;
        if (!count_bytes(problem, klass, error))
            return NULL;
        problem->classes[n_kept++] = *klass;
    }
    problem->n_classes = n_kept;
    return g_steal_pointer(&problem);
}

void refit_problem_free(RefitProblem *problem) {
    if (problem == NULL)
        return;
    g_free(problem->failed);
    g_free(problem->classes);
    g_ptr_array_unref(problem->cells);
    g_ptr_array_unref(problem->holdings);
    g_array_unref(problem->members);
    g_free(problem);
}

guint64 refit_class_bytes(const RefitClass *klass, guint64 elements) {
    guint bits = refit_dtype_bits(klass->dtype);
    return elements / 8 * bits + (elements % 8 * bits + 7) / 8; /* no overflow below 2^64 bytes */
}
