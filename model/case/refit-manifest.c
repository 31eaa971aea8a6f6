/*
 * What ranks declare, checked against each other and made a case.
 *
 * The problem: a transfer that starts from wrong declarations hangs or corrupts weights, and shows
 * it late. Everything that follows from declarations alone is decided here: names, devices, shapes,
 * sizes on the wire, geometry, places of cuts, and what each rank reports against what its layout
 * gives it. Ranks that were withdrawn leave no mesh behind, so that such a sharding lists one
 * region per rank. Cost: geometry once per distinct sharding and shape, and once per local shape
 * stated.
 */

#include "model/case/refit-manifest.h"

#include "model/base/refit-words.h"
#include "model/layout/refit-granule.h"

#include <string.h>

typedef struct {
    guint rank, n_dims;
    guint64 shape[REFIT_MAX_DIMS];
} StatedLocal;

typedef struct {
    RefitSharding *sharding; /* NULL: not placed */
    gboolean has_shape, has_wire;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    RefitDtype wire;
    GArray *locals;    /* of StatedLocal, or NULL */
    GArray *withdrawn; /* of guint: ranks, or NULL */
} Side;

typedef struct {
    RefitTensor tensor; /* name owned */
    Side sides[REFIT_N_SIDES];
} Entry;

typedef struct {
    guint rank;
    char *device;
} Binding;

struct _RefitManifest {
    GArray *entries;   /* of Entry */
    GHashTable *names; /* name -> 1 + index; looked up only */
    GPtrArray *required;
    GArray *bindings; /* of Binding */
    GArray *failed;   /* of guint */
};

static const char *side_name(RefitSide side) {
    return side == REFIT_SIDE_SOURCE ? "source" : "destination";
}

static Entry *entry_at(const RefitManifest *manifest, guint tensor) {
    return &g_array_index(manifest->entries, Entry, tensor);
}

/* ---- declaring ---- */

static void clear_entry(gpointer data) {
    Entry *entry = data;

    g_free(entry->tensor.name);
    for (guint side = 0; side < REFIT_N_SIDES; side++) {
        refit_sharding_free(entry->sides[side].sharding);
        g_clear_pointer(&entry->sides[side].locals, g_array_unref);
        g_clear_pointer(&entry->sides[side].withdrawn, g_array_unref);
    }
}

static void clear_binding(gpointer data) {
    g_free(((Binding *)data)->device);
}

RefitManifest *refit_manifest_new(void) {
    RefitManifest *manifest = g_new0(RefitManifest, 1);

    manifest->entries = g_array_new(FALSE, TRUE, sizeof(Entry));
    g_array_set_clear_func(manifest->entries, clear_entry);
    manifest->names = g_hash_table_new(g_str_hash, g_str_equal);
    manifest->required = g_ptr_array_new_with_free_func(g_free);
    manifest->bindings = g_array_new(FALSE, FALSE, sizeof(Binding));
    g_array_set_clear_func(manifest->bindings, clear_binding);
    manifest->failed = g_array_new(FALSE, FALSE, sizeof(guint));
    return manifest;
}

void refit_manifest_free(RefitManifest *manifest) {
    if (manifest == NULL)
        return;
    g_hash_table_unref(manifest->names);
    g_array_unref(manifest->entries);
    g_ptr_array_unref(manifest->required);
    g_array_unref(manifest->bindings);
    g_array_unref(manifest->failed);
    g_free(manifest);
}

static gboolean measure(RefitTensor *tensor, GError **error) {
    tensor->elements = 1;
    for (guint dim = 0; dim < tensor->n_dims; dim++)
        if (!refit_checked_mul(tensor->elements, tensor->shape[dim], "elements", &tensor->elements,
                               error))
            return FALSE;
    return refit_dtype_bytes(tensor->dtype, tensor->elements, &tensor->bytes, error);
}

gboolean refit_manifest_add(RefitManifest *manifest, const RefitTensor *tensor, guint *index_out,
                            GError **error) {
    RefitTensor measured = *tensor;
    guint index = manifest->entries->len;

    g_return_val_if_fail(tensor->name != NULL && tensor->n_dims <= REFIT_MAX_DIMS, FALSE);
    if (g_hash_table_contains(manifest->names, tensor->name)) {
        guint taken = GPOINTER_TO_UINT(g_hash_table_lookup(manifest->names, tensor->name)) - 1;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NAME_COLLISION,
                    "tensors %u and %u are both named %s; use names that hold for the whole "
                    "model, not for one stage of it",
                    taken, index, tensor->name);
        return FALSE;
    }
    if (!measure(&measured, error)) {
        g_prefix_error(error, "tensor %s: ", tensor->name);
        return FALSE;
    }
    g_array_set_size(manifest->entries, index + 1);
    entry_at(manifest, index)->tensor = measured;
    entry_at(manifest, index)->tensor.name = g_strdup(tensor->name);
    g_hash_table_insert(manifest->names, entry_at(manifest, index)->tensor.name,
                        GUINT_TO_POINTER(index + 1));
    *index_out = index;
    return TRUE;
}

static Side *side_at(const RefitManifest *manifest, guint tensor, RefitSide side) {
    g_assert(tensor < manifest->entries->len && (guint)side < REFIT_N_SIDES);
    return &entry_at(manifest, tensor)->sides[side];
}

void refit_manifest_place(RefitManifest *manifest, guint tensor, RefitSide side,
                          RefitSharding *sharding) {
    Side *held = side_at(manifest, tensor, side);

    refit_sharding_free(held->sharding);
    held->sharding = sharding;
}

void refit_manifest_state_shape(RefitManifest *manifest, guint tensor, RefitSide side, guint n_dims,
                                const guint64 *shape) {
    Side *stated = side_at(manifest, tensor, side);

    g_return_if_fail(n_dims <= REFIT_MAX_DIMS);
    stated->has_shape = TRUE;
    stated->n_dims = n_dims;
    for (guint dim = 0; dim < n_dims; dim++)
        stated->shape[dim] = shape[dim];
}

void refit_manifest_state_wire(RefitManifest *manifest, guint tensor, RefitSide side,
                               RefitDtype dtype) {
    Side *stated = side_at(manifest, tensor, side);

    stated->has_wire = TRUE;
    stated->wire = dtype;
}

void refit_manifest_state_local(RefitManifest *manifest, guint tensor, RefitSide side, guint rank,
                                guint n_dims, const guint64 *shape) {
    Side *stated = side_at(manifest, tensor, side);
    StatedLocal local = {.rank = rank, .n_dims = n_dims};

    g_return_if_fail(n_dims <= REFIT_MAX_DIMS);
    for (guint dim = 0; dim < n_dims; dim++)
        local.shape[dim] = shape[dim];
    if (stated->locals == NULL)
        stated->locals = g_array_new(FALSE, FALSE, sizeof(StatedLocal));
    g_array_append_val(stated->locals, local);
}

void refit_manifest_withdraw(RefitManifest *manifest, guint tensor, RefitSide side, guint rank) {
    Side *held = side_at(manifest, tensor, side);

    if (held->withdrawn == NULL)
        held->withdrawn = g_array_new(FALSE, FALSE, sizeof(guint));
    g_array_append_val(held->withdrawn, rank);
}

void refit_manifest_require(RefitManifest *manifest, const char *name) {
    g_ptr_array_add(manifest->required, g_strdup(name));
}

void refit_manifest_bind(RefitManifest *manifest, guint rank, const char *device) {
    Binding binding = {rank, g_strdup(device)};

    g_array_append_val(manifest->bindings, binding);
}

void refit_manifest_fail_rank(RefitManifest *manifest, guint rank) {
    g_array_append_val(manifest->failed, rank);
}

/* ---- checks of the whole ---- */

static gboolean check_names(const RefitManifest *manifest, GError **error) {
    for (guint i = 0; i < manifest->required->len; i++) {
        const char *name = g_ptr_array_index(manifest->required, i);
        if (g_hash_table_contains(manifest->names, name))
            continue;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NAME_MISSING,
                    "tensor %s is required but is not among the %u declared; declare it with the "
                    "ranks that hold it",
                    name, manifest->entries->len);
        return FALSE;
    }
    return TRUE;
}

static gboolean check_devices(const RefitManifest *manifest, GError **error) {
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);

    for (guint i = 0; i < manifest->bindings->len; i++) {
        Binding *binding = &g_array_index(manifest->bindings, Binding, i);
        const Binding *other = g_hash_table_lookup(seen, binding->device);
        if (other != NULL && other->rank != binding->rank) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_DEVICE_DUP,
                        "ranks %u and %u both run on device %s; give each rank its own, or make "
                        "the two one rank of both sides",
                        other->rank, binding->rank, binding->device);
            return FALSE;
        }
        g_hash_table_insert(seen, binding->device, binding);
    }
    return TRUE;
}

static gboolean check_failed(const RefitManifest *manifest, guint n_gpus, GError **error) {
    for (guint i = 0; i < manifest->failed->len; i++) {
        guint rank = g_array_index(manifest->failed, guint, i);
        if (rank < n_gpus)
            continue;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "rank %u has failed, but the topology has %u GPUs, counted from 0", rank,
                    n_gpus);
        return FALSE;
    }
    return TRUE;
}

static char *shape_to_string(guint n_dims, const guint64 *shape) {
    GString *text = g_string_new("[");

    for (guint dim = 0; dim < n_dims; dim++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, dim > 0 ? ", " : "", shape[dim]);
    g_string_append_c(text, ']');
    return g_string_free(text, FALSE);
}

static gboolean same_shape(guint n_dims, const guint64 *shape, guint n_other,
                           const guint64 *other) {
    return n_dims == n_other && (n_dims == 0 || memcmp(shape, other, n_dims * sizeof *shape) == 0);
}

static gboolean check_shapes(const RefitManifest *manifest, GError **error) {
    for (guint i = 0; i < manifest->entries->len; i++) {
        const Entry *entry = entry_at(manifest, i);
        const RefitTensor *tensor = &entry->tensor;
        for (guint side = 0; side < REFIT_N_SIDES; side++) {
            const Side *stated = &entry->sides[side];
            if (!stated->has_shape ||
                same_shape(tensor->n_dims, tensor->shape, stated->n_dims, stated->shape))
                continue;
            g_autofree char *whole = shape_to_string(tensor->n_dims, tensor->shape);
            g_autofree char *other = shape_to_string(stated->n_dims, stated->shape);
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_SHAPE_MISMATCH,
                        "tensor %s is %s, but the %s has it as %s; both sides must name the same "
                        "logical tensor",
                        tensor->name, whole, side_name((RefitSide)side), other);
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean check_wire(const RefitManifest *manifest, GError **error) {
    for (guint i = 0; i < manifest->entries->len; i++) {
        const Entry *entry = entry_at(manifest, i);
        for (guint side = 0; side < REFIT_N_SIDES; side++) {
            const Side *stated = &entry->sides[side];
            if (!stated->has_wire || stated->wire == entry->tensor.dtype)
                continue;
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_WIRE_SIZE,
                        "tensor %s: %s, %u bits an element, is on the wire, but the %s expects %s, "
                        "%u bits; agree on one before moving anything",
                        entry->tensor.name, refit_dtype_name(entry->tensor.dtype),
                        refit_dtype_bits(entry->tensor.dtype), side_name((RefitSide)side),
                        refit_dtype_name(stated->wire), refit_dtype_bits(stated->wire));
            return FALSE;
        }
    }
    return TRUE;
}

/* ---- shardings as they are ---- */

static gboolean is_withdrawn(const Side *side, guint rank) {
    for (guint i = 0; side->withdrawn != NULL && i < side->withdrawn->len; i++)
        if (g_array_index(side->withdrawn, guint, i) == rank)
            return TRUE;
    return FALSE;
}

/* A scalar has no dim to list, so its rank is a mesh that replicates. */
static gboolean add_region(RefitSharding *sharding, guint rank, const RefitRegion *region,
                           GError **error) {
    const guint one = 1;
    const RefitPlacement whole = {.kind = REFIT_PLACEMENT_REPLICATE};

    if (region->n_dims > 0)
        return refit_sharding_add_region(sharding, rank, region, error);
    RefitMesh *mesh = refit_mesh_new(1, &one, &rank, 1, error);
    return mesh != NULL && refit_sharding_add(sharding, mesh, &whole, error);
}

static gboolean check_scale(const RefitTensor *scale, const RefitTensor *tensor, GError **error) {
    guint64 blocks[REFIT_MAX_DIMS] = {0};

    for (guint dim = 0; dim < tensor->n_dims; dim++) {
        guint64 block = MAX(scale->block[dim], 1);
        blocks[dim] = tensor->shape[dim] / block + (tensor->shape[dim] % block != 0);
    }
    if (same_shape(scale->n_dims, scale->shape, tensor->n_dims, blocks))
        return TRUE;
    g_autofree char *whole = shape_to_string(scale->n_dims, scale->shape);
    g_autofree char *needed = shape_to_string(tensor->n_dims, blocks);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_SHAPE_MISMATCH,
                "tensor %s is %s, but %s has %s blocks; give it one element per block, or a layout "
                "of its own",
                scale->name, whole, tensor->name, needed);
    return FALSE;
}

static RefitSharding *copy_sharding(const RefitSharding *sharding, GError **error) {
    g_autoptr(RefitSharding) copy = refit_sharding_new();

    for (guint part = 0; part < refit_sharding_n_parts(sharding); part++) {
        const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
        RefitMesh *same =
            refit_mesh_new(mesh->n_axes, mesh->sizes, mesh->ranks, mesh->n_ranks, error);
        if (same == NULL ||
            !refit_sharding_add(copy, same, refit_sharding_placements(sharding, part), error))
            return NULL;
    }
    for (guint dim = 0; dim < REFIT_MAX_DIMS; dim++)
        refit_sharding_set_padded(copy, dim, refit_sharding_padded(sharding, dim));
    return g_steal_pointer(&copy);
}

/* What the ranks that were not withdrawn hold, rank by rank; without parts when none is left. */
static RefitSharding *without_withdrawn(const Entry *entry, const Side *side,
                                        const RefitSharding *sharding, GError **error) {
    const RefitTensor *tensor = &entry->tensor;
    g_autoptr(RefitSharding) left = refit_sharding_new();

    for (guint part = 0; part < refit_sharding_n_parts(sharding); part++) {
        const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
        for (guint i = 0; i < mesh->n_ranks; i++) {
            guint64 buffer[REFIT_MAX_DIMS];
            g_auto(RefitRegion) region = {0};
            if (is_withdrawn(side, mesh->ranks[i]))
                continue;
            if (!refit_sharding_local(sharding, part, mesh->ranks[i], tensor->n_dims, tensor->shape,
                                      &region, buffer, error) ||
                !add_region(left, mesh->ranks[i], &region, error))
                return NULL;
        }
    }
    return g_steal_pointer(&left);
}

/* Gives the tensor the sharding that its declared or followed one leaves; nothing when none is. */
static gboolean assign(RefitLayout *layout, guint tensor, const Entry *entry, const Side *side,
                       const RefitSharding *sharding, GError **error) {
    RefitSharding *effective = side->withdrawn != NULL
                                   ? without_withdrawn(entry, side, sharding, error)
                                   : copy_sharding(sharding, error);

    if (effective == NULL) {
        g_prefix_error(error, "tensor %s on the %s: ", entry->tensor.name,
                       refit_layout_side(layout));
        return FALSE;
    }
    if (refit_sharding_n_parts(effective) == 0) {
        refit_sharding_free(effective);
        refit_layout_assign(layout, tensor, NULL);
        return TRUE;
    }
    refit_layout_assign(layout, tensor, refit_layout_share(layout, effective));
    return TRUE;
}

static gboolean assign_all(const RefitManifest *manifest, RefitSide which, RefitLayout *layout,
                           GError **error) {
    for (guint i = 0; i < manifest->entries->len; i++) {
        const Entry *entry = entry_at(manifest, i);
        const Side *side = &entry->sides[which];
        if (side->sharding != NULL && !assign(layout, i, entry, side, side->sharding, error))
            return FALSE;
    }
    for (guint i = 0; i < manifest->entries->len; i++) {
        const RefitTensor *tensor = &entry_at(manifest, i)->tensor;
        if (tensor->scale && entry_at(manifest, i)->sides[which].sharding == NULL &&
            refit_layout_sharding(layout, tensor->scale_of) != NULL &&
            !check_scale(tensor, &entry_at(manifest, tensor->scale_of)->tensor, error))
            return FALSE;
    }
    if (!refit_layout_place_scales(layout, error))
        return FALSE;
    for (guint i = 0; i < manifest->entries->len; i++) {
        const Entry *entry = entry_at(manifest, i);
        const Side *side = &entry->sides[which];
        const RefitSharding *followed = refit_layout_sharding(layout, i);
        if (side->sharding == NULL && side->withdrawn != NULL && followed != NULL &&
            !assign(layout, i, entry, side, followed, error))
            return FALSE;
    }
    return TRUE;
}

/* ---- checks of one side ---- */

/* Geometry once per distinct sharding and shape. */
static gboolean check_geometry(const RefitLayout *layout, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GHashTable) seen =
        g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL);

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        const RefitSharding *sharding = refit_layout_sharding(layout, i);
        guint64 key[2 + REFIT_MAX_DIMS] = {2 + tensor->n_dims, (guintptr)sharding};
        for (guint dim = 0; dim < tensor->n_dims; dim++)
            key[2 + dim] = tensor->shape[dim];
        if (sharding == NULL || g_hash_table_contains(seen, key))
            continue;
        g_hash_table_add(seen, refit_words_copy(key));
        g_autoptr(RefitHolding) holding =
            refit_holding_new(sharding, tensor->n_dims, tensor->shape, error);
        if (holding == NULL) {
            g_prefix_error(error, "tensor %s on the %s: ", tensor->name, refit_layout_side(layout));
            return FALSE;
        }
    }
    return TRUE;
}

/* What each rank reports is one of its shards. `sharding` may be NULL. */
static gboolean check_locals(const Entry *entry, RefitSide side, const RefitSharding *sharding,
                             GError **error) {
    const RefitTensor *tensor = &entry->tensor;
    const GArray *locals = entry->sides[side].locals;
    guint n_parts = sharding != NULL ? refit_sharding_n_parts(sharding) : 0;

    for (guint i = 0; locals != NULL && i < locals->len; i++) {
        const StatedLocal *local = &g_array_index(locals, StatedLocal, i);
        g_autofree char *held = NULL;
        gboolean fits = FALSE;
        for (guint part = 0; part < n_parts && !fits; part++) {
            guint64 shape[REFIT_MAX_DIMS] = {0};
            g_auto(RefitRegion) region = {0};
            if (!refit_sharding_local(sharding, part, local->rank, tensor->n_dims, tensor->shape,
                                      &region, shape, NULL))
                continue;
            for (guint dim = 0; dim < tensor->n_dims; dim++)
                shape[dim] = region.dims[dim]->extent;
            fits = same_shape(local->n_dims, local->shape, tensor->n_dims, shape);
            g_free(held);
            held = shape_to_string(tensor->n_dims, shape);
        }
        if (fits)
            continue;
        g_autofree char *stated = shape_to_string(local->n_dims, local->shape);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LOCAL_SHAPE,
                    "tensor %s: rank %u of the %s reports %s, but its layout gives it %s; correct "
                    "the global shape or the layout",
                    tensor->name, local->rank, side_name(side), stated,
                    held != NULL ? held : "nothing");
        return FALSE;
    }
    return TRUE;
}

/* ---- the case ---- */

/*
 * Ranks that the side's declared shardings name, ascending; an array of guint. Thousands of tensors
 * name the same ones, so they are marked, not listed and sorted. NULL when one is no GPU.
 */
static GArray *list_ranks(const RefitManifest *manifest, RefitSide side, guint n_gpus,
                          GError **error) {
    g_autofree guint8 *marks = g_new0(guint8, MAX(n_gpus, 1));
    guint last = 0;

    for (guint i = 0; i < manifest->entries->len; i++) {
        const RefitSharding *sharding = entry_at(manifest, i)->sides[side].sharding;
        for (guint part = 0; sharding != NULL && part < refit_sharding_n_parts(sharding); part++) {
            const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
            for (guint k = 0; k < mesh->n_ranks; k++) {
                last = MAX(last, mesh->ranks[k]);
                if (mesh->ranks[k] < n_gpus)
                    marks[mesh->ranks[k]] = 1;
            }
        }
    }
    if (last >= n_gpus) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "rank %u is on the %s, but the topology has %u GPUs; give it more nodes or "
                    "the layouts fewer ranks",
                    last, side_name(side), n_gpus);
        return NULL;
    }
    GArray *ranks = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint rank = 0; rank < n_gpus; rank++)
        if (marks[rank] != 0)
            g_array_append_val(ranks, rank);
    return ranks;
}

static RefitLayout *build_side(const RefitManifest *manifest, RefitSide side, RefitModel *model,
                               guint n_gpus, GError **error) {
    g_autoptr(GArray) ranks = list_ranks(manifest, side, n_gpus, error);

    if (ranks == NULL)
        return NULL;
    g_autoptr(RefitLayout) layout = refit_layout_new(
        side_name(side), "manifest", model, (const guint *)(gpointer)ranks->data, ranks->len);
    if (!assign_all(manifest, side, layout, error) || !check_geometry(layout, error) ||
        !refit_granules_check_layout(layout, error))
        return NULL;
    for (guint i = 0; i < manifest->entries->len; i++)
        if (!check_locals(entry_at(manifest, i), side, refit_layout_sharding(layout, i), error))
            return NULL;
    return g_steal_pointer(&layout);
}

static RefitModel *build_model(const RefitManifest *manifest, GError **error) {
    g_autofree RefitTensor *tensors = g_new(RefitTensor, MAX(manifest->entries->len, 1));

    for (guint i = 0; i < manifest->entries->len; i++)
        tensors[i] = entry_at(manifest, i)->tensor;
    return refit_model_new("manifest", tensors, manifest->entries->len, error);
}

RefitCase *refit_manifest_to_case(const RefitManifest *manifest, RefitTopology *topology,
                                  RefitProfile *profile, GError **error) {
    g_autoptr(RefitCase) refit_case = g_new0(RefitCase, 1);
    guint n_gpus = refit_topology_n_gpus(topology);

    refit_case->name = g_strdup("manifest");
    refit_case->topology = topology;
    refit_case->profile = profile;
    if (!check_names(manifest, error) || !check_devices(manifest, error) ||
        !check_failed(manifest, n_gpus, error) || !check_shapes(manifest, error) ||
        !check_wire(manifest, error))
        return NULL;
    refit_case->model = build_model(manifest, error);
    if (refit_case->model == NULL)
        return NULL;
    refit_case->source = build_side(manifest, REFIT_SIDE_SOURCE, refit_case->model, n_gpus, error);
    if (refit_case->source == NULL)
        return NULL;
    refit_case->destinations = g_new0(RefitLayout *, 1);
    refit_case->destinations[0] =
        build_side(manifest, REFIT_SIDE_DESTINATION, refit_case->model, n_gpus, error);
    if (refit_case->destinations[0] == NULL)
        return NULL;
    refit_case->n_destinations = 1;
    refit_case->failed = g_memdup2(manifest->failed->data, manifest->failed->len * sizeof(guint));
    refit_ranks_sort(refit_case->failed, manifest->failed->len);
    refit_case->n_failed = refit_ranks_drop_repeats(refit_case->failed, manifest->failed->len);
    return g_steal_pointer(&refit_case);
}
