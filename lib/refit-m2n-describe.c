/*
 * Descriptors of the NCCL M2N interface: read, compared between ranks, and made a case.
 *
 * The problem: a descriptor states the shape of one rank's shard, not that of the tensor, and every
 * rank may state another. Method: along each dim, ranks with the same place on the axes that cut it
 * hold the same part; its size is what they state, all alike, and the parts in turn are the tensor.
 * Equal parts become meshes of equal cuts, unequal ones stated sizes, and unequal ones cut by more
 * than one axis regions, rank by rank. Cost: ranks times dims per call.
 */

#include "lib/refit-m2n-private.h"

#include <string.h>

#define LINKS "nvlink:450GBps nic:50GBps"

static gboolean invalid(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);
static gboolean invalid(GError **error, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID, text);
    return FALSE;
}

static const char *side_name(guint side) {
    return side == REFIT_SIDE_SOURCE ? "src" : "dst";
}

/* ---- reading ---- */

static gboolean read_dtype(ncclDataType_t dtype, RefitDtype *dtype_out) {
    static const struct {
        ncclDataType_t nccl;
        RefitDtype dtype;
    } known[] = {
        {ncclInt8, REFIT_DTYPE_I8},
        {ncclUint8, REFIT_DTYPE_U8},
        {ncclInt32, REFIT_DTYPE_I32},
        {ncclUint32, REFIT_DTYPE_U32},
        {ncclInt64, REFIT_DTYPE_I64},
        {ncclUint64, REFIT_DTYPE_U64},
        {ncclFloat16, REFIT_DTYPE_F16},
        {ncclBfloat16, REFIT_DTYPE_BF16},
        {ncclFloat32, REFIT_DTYPE_F32},
        {ncclFloat64, REFIT_DTYPE_F64},
        {ncclFloat8e4m3, REFIT_DTYPE_F8_E4M3},
        {ncclFloat8e5m2, REFIT_DTYPE_F8_E5M2},
    };

    for (guint i = 0; i < G_N_ELEMENTS(known); i++)
        if (known[i].nccl == dtype) {
            *dtype_out = known[i].dtype;
            return TRUE;
        }
    return FALSE;
}

static gboolean check_header(const char *side, const char *what, gsize size, guint version,
                             gsize least, GError **error) {
    if (size >= least && version == NCCL_M2N_API_VERSION)
        return TRUE;
    return invalid(error,
                   "%s: the %s has size %" G_GSIZE_FORMAT " and version %u, but must have at least "
                   "%" G_GSIZE_FORMAT " and %u; use its initializer",
                   side, what, size, version, least, NCCL_M2N_API_VERSION);
}

static gboolean read_mesh(const char *name, const ncclDistTensor_t *tensor, M2nSide *side,
                          GError **error) {
    const ncclMesh_t *mesh = tensor->mesh;
    guint64 n_ranks = 1;

    if (mesh == NULL)
        return invalid(error, "%s: mesh is NULL; every rank states both meshes", name);
    if (!check_header(name, "mesh", mesh->size, mesh->version, sizeof *mesh, error))
        return FALSE;
    if (mesh->ndims < 1 || mesh->ndims > REFIT_MAX_AXES || mesh->dims == NULL ||
        tensor->placements == NULL)
        return invalid(error,
                       "%s: a mesh has 1 to %d axes, each with an extent and a placement, "
                       "not %d",
                       name, REFIT_MAX_AXES, mesh->ndims);
    side->n_axes = (guint)mesh->ndims;
    for (guint axis = 0; axis < side->n_axes; axis++) {
        int place = tensor->placements[axis];
        if (mesh->dims[axis] < 1 || (n_ranks *= (guint64)mesh->dims[axis]) > G_MAXINT)
            return invalid(error, "%s: mesh axis %u has extent %d", name, axis, mesh->dims[axis]);
        if (place < NCCL_RESHARD_REPLICATE || place >= tensor->ndims)
            return invalid(error, "%s: mesh axis %u cuts dim %d of a tensor with %d dims", name,
                           axis, place, tensor->ndims);
        side->sizes[axis] = (guint)mesh->dims[axis];
        side->placements[axis] = place;
    }
    if (mesh->startRank < 0)
        return invalid(error, "%s: the mesh begins at rank %d", name, mesh->startRank);
    side->first = (guint)mesh->startRank;
    side->n_ranks = (guint)n_ranks;
    return TRUE;
}

static gboolean read_side(const char *name, const ncclDistTensor_t *tensor, M2nSide *side,
                          GError **error) {
    memset(side, 0, sizeof *side);
    if (tensor == NULL)
        return invalid(error, "%s: the descriptor is NULL; every rank states both", name);
    if (!check_header(name, "descriptor", tensor->size, tensor->version, sizeof *tensor, error))
        return FALSE;
    if (tensor->ndims < 1 || tensor->ndims > REFIT_MAX_DIMS || tensor->localShape == NULL)
        return invalid(error, "%s: a tensor has 1 to %d dims and a local shape, not %d dims", name,
                       REFIT_MAX_DIMS, tensor->ndims);
    if (!read_dtype(tensor->dtype, &side->dtype))
        return invalid(error, "%s: data type %d is not supported", name, (int)tensor->dtype);
    side->n_dims = (guint)tensor->ndims;
    for (guint dim = 0; dim < side->n_dims; dim++)
        side->local[dim] = tensor->localShape[dim];
    side->address = (guint64)(guintptr)tensor->dataPtr;
    return read_mesh(name, tensor, side, error);
}

gboolean m2n_call_read(const ncclDistTensor_t *source, const ncclDistTensor_t *destination,
                       M2nCall *call_out, GError **error) {
    M2nSide *sides = call_out->sides;

    if (!read_side("src", source, &sides[0], error) ||
        !read_side("dst", destination, &sides[1], error))
        return FALSE;
    if (sides[0].n_dims != sides[1].n_dims)
        return invalid(error, "src has %u dims, dst %u", sides[0].n_dims, sides[1].n_dims);
    if (sides[0].dtype != sides[1].dtype)
        return invalid(error, "src is %s, dst %s; nothing is cast",
                       refit_dtype_name(sides[0].dtype), refit_dtype_name(sides[1].dtype));
    return TRUE;
}

gboolean m2n_side_has(const M2nSide *side, guint rank) {
    return rank >= side->first && rank - side->first < side->n_ranks;
}

gboolean m2n_call_check(const M2nCall *call, guint rank, guint n_ranks, GError **error) {
    for (guint s = 0; s < REFIT_N_SIDES; s++) {
        const M2nSide *side = &call->sides[s];
        gboolean empty = FALSE;

        if ((guint64)side->first + side->n_ranks > n_ranks)
            return invalid(
                error, "call %u, %s: the mesh has ranks %u to %u, the communicator %u from 0 on",
                call->number, side_name(s), side->first, side->first + side->n_ranks - 1, n_ranks);
        for (guint dim = 0; dim < side->n_dims; dim++)
            empty |= side->local[dim] == 0;
        if (m2n_side_has(side, rank) && side->address == 0 && !empty)
            return invalid(error, "call %u, %s: rank %u is in the mesh, but has no data",
                           call->number, side_name(s), rank);
    }
    return TRUE;
}

/* ---- digests ---- */

static void digest_end(GChecksum *checksum, guint8 *digest_out) {
    gsize size = 32;

    g_checksum_get_digest(checksum, digest_out, &size);
    g_checksum_free(checksum);
}

void m2n_calls_digest(const M2nCall *calls, guint n, guint8 *digest_out) {
    GChecksum *checksum = g_checksum_new(G_CHECKSUM_SHA256);

    for (guint i = 0; i < n; i++)
        for (guint s = 0; s < REFIT_N_SIDES; s++) {
            const M2nSide *side = &calls[i].sides[s];
            const guint head[] = {side->n_dims, side->n_axes, side->first, (guint)side->dtype};
            g_checksum_update(checksum, (const guchar *)head, sizeof head);
            g_checksum_update(checksum, (const guchar *)side->sizes, sizeof side->sizes);
            g_checksum_update(checksum, (const guchar *)side->placements, sizeof side->placements);
        }
    digest_end(checksum, digest_out);
}

void m2n_calls_digest_local(const M2nCall *calls, guint n, guint8 *shapes_out,
                            guint8 *addresses_out) {
    GChecksum *shapes = g_checksum_new(G_CHECKSUM_SHA256);
    GChecksum *addresses = g_checksum_new(G_CHECKSUM_SHA256);

    for (guint i = 0; i < n; i++)
        for (guint s = 0; s < REFIT_N_SIDES; s++) {
            const M2nSide *side = &calls[i].sides[s];
            g_checksum_update(shapes, (const guchar *)side->local, sizeof side->local);
            g_checksum_update(addresses, (const guchar *)&side->address, sizeof side->address);
        }
    digest_end(shapes, shapes_out);
    digest_end(addresses, addresses_out);
}

guint64 *m2n_calls_shapes(const M2nCall *calls, guint n) {
    guint64 *shapes = g_new0(guint64, (gsize)n * REFIT_N_SIDES * REFIT_MAX_DIMS);

    for (guint i = 0; i < n; i++)
        for (guint s = 0; s < REFIT_N_SIDES; s++)
            memcpy(&shapes[(i * REFIT_N_SIDES + s) * REFIT_MAX_DIMS], calls[i].sides[s].local,
                   sizeof calls[i].sides[s].local);
    return shapes;
}

/* ---- geometry ---- */

/* The shapes that ranks state for one side of one call. */
typedef struct {
    const M2nSide *side;
    const char *name;
    guint number;
    const guint64 *shapes; /* of rank 0 */
    gsize stride;          /* to the next rank's */
} Stated;

/* How a dim is cut: sizes of its parts in turn. */
typedef struct {
    guint n_axes, n_parts;
    guint64 *sizes; /* owned */
    gboolean equal;
    guint64 extent;
} Cut;

static guint64 stated_at(const Stated *stated, guint rank, guint dim) {
    return stated->shapes[rank * stated->stride + dim];
}

/* Which part of `dim` the `position`-th rank of the mesh holds; the first axis counts most. */
static guint part_of(const M2nSide *side, guint position, guint dim) {
    guint part = 0, parts = 1;

    for (guint axis = side->n_axes; axis-- > 0;) {
        if (side->placements[axis] == (gint)dim) {
            part += position % side->sizes[axis] * parts;
            parts *= side->sizes[axis];
        }
        position /= side->sizes[axis];
    }
    return part;
}

static gboolean read_cut(const Stated *stated, guint dim, Cut *cut, GError **error) {
    const M2nSide *side = stated->side;

    *cut = (Cut){.n_parts = 1, .equal = TRUE};
    for (guint axis = 0; axis < side->n_axes; axis++)
        if (side->placements[axis] == (gint)dim) {
            cut->n_axes++;
            cut->n_parts *= side->sizes[axis];
        }
    cut->sizes = g_new(guint64, cut->n_parts);
    g_autofree guint *holders = g_new(guint, cut->n_parts);
    memset(holders, 0xff, cut->n_parts * sizeof *holders);
    for (guint i = 0; i < side->n_ranks; i++) {
        guint part = part_of(side, i, dim), rank = side->first + i;
        guint64 size = stated_at(stated, rank, dim);
        if (holders[part] == G_MAXUINT) {
            holders[part] = rank;
            cut->sizes[part] = size;
        } else if (cut->sizes[part] != size) {
            return invalid(error,
                           "call %u, %s: rank %u states %" G_GUINT64_FORMAT
                           " along dim %u, rank %u %" G_GUINT64_FORMAT ", but both hold part %u",
                           stated->number, stated->name, holders[part], cut->sizes[part], dim, rank,
                           size, part);
        }
    }
    for (guint part = 0; part < cut->n_parts; part++) {
        cut->equal = cut->equal && cut->sizes[part] == cut->sizes[0];
        if (!g_uint64_checked_add(&cut->extent, cut->extent, cut->sizes[part]))
            return invalid(error, "call %u, %s: dim %u does not fit in 64 bits", stated->number,
                           stated->name, dim);
    }
    return TRUE;
}

/* Ranks outside of the mesh state the shape of some rank inside. */
static gboolean check_outside(const Stated *stated, guint dim, const Cut *cut, guint n_ranks,
                              GError **error) {
    for (guint rank = 0; rank < n_ranks; rank++) {
        guint64 size = stated_at(stated, rank, dim);
        guint part = 0;
        if (m2n_side_has(stated->side, rank))
            continue;
        while (part < cut->n_parts && cut->sizes[part] != size)
            part++;
        if (part == cut->n_parts)
            return invalid(error,
                           "call %u, %s: rank %u, outside of the mesh, states %" G_GUINT64_FORMAT
                           " along dim %u, which no rank inside does",
                           stated->number, stated->name, rank, size, dim);
    }
    return TRUE;
}

static RefitSharding *share_by_mesh(const M2nSide *side, const Cut *cuts, GError **error) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    RefitPlacement placements[REFIT_MAX_AXES] = {{0}};
    g_autofree guint *ranks = g_new(guint, side->n_ranks);
    RefitMesh *mesh;

    for (guint i = 0; i < side->n_ranks; i++)
        ranks[i] = side->first + i;
    for (guint axis = 0; axis < side->n_axes; axis++) {
        if (side->placements[axis] < 0)
            continue;
        guint dim = (guint)side->placements[axis];
        placements[axis] = (RefitPlacement){
            .kind = REFIT_PLACEMENT_SHARD,
            .dim = dim,
            .order = axis,
            .split = cuts[dim].equal ? REFIT_SPLIT_BALANCED : REFIT_SPLIT_SIZES,
            .n_sizes = cuts[dim].equal ? 0 : side->sizes[axis],
            .sizes = cuts[dim].equal ? NULL : cuts[dim].sizes,
        };
    }
    mesh = refit_mesh_new(side->n_axes, side->sizes, ranks, side->n_ranks, error);
    if (mesh == NULL || !refit_sharding_add(sharding, mesh, placements, error))
        return NULL;
    return g_steal_pointer(&sharding);
}

static RefitSharding *share_by_rank(const M2nSide *side, const Cut *cuts, GError **error) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();

    for (guint i = 0; i < side->n_ranks; i++) {
        g_auto(RefitRegion) region = {.n_dims = side->n_dims};
        for (guint dim = 0; dim < side->n_dims; dim++) {
            guint64 lo = 0;
            guint part = part_of(side, i, dim);
            for (guint before = 0; before < part; before++)
                lo += cuts[dim].sizes[before];
            region.dims[dim] = refit_interval_list_range(lo, lo + cuts[dim].sizes[part]);
        }
        if (!refit_sharding_add_region(sharding, side->first + i, &region, error))
            return NULL;
    }
    return g_steal_pointer(&sharding);
}

/* The sharding of a side, and its whole shape. */
static RefitSharding *read_sharding(const Stated *stated, guint n_ranks, guint64 *shape_out,
                                    GError **error) {
    Cut cuts[REFIT_MAX_DIMS] = {{0}};
    gboolean well = TRUE, nested = FALSE;
    RefitSharding *sharding = NULL;

    for (guint dim = 0; well && dim < stated->side->n_dims; dim++) {
        well = read_cut(stated, dim, &cuts[dim], error) &&
               check_outside(stated, dim, &cuts[dim], n_ranks, error);
        nested |= cuts[dim].n_axes > 1 && !cuts[dim].equal;
        shape_out[dim] = cuts[dim].extent;
    }
    if (well)
        sharding = nested ? share_by_rank(stated->side, cuts, error)
                          : share_by_mesh(stated->side, cuts, error);
    for (guint dim = 0; dim < stated->side->n_dims; dim++)
        g_free(cuts[dim].sizes);
    return sharding;
}

static gboolean add_call(RefitManifest *manifest, const M2nCall *call, const guint64 *shapes,
                         gsize stride, guint n_ranks, GError **error) {
    g_autofree char *name = g_strdup_printf("of call %u", call->number);
    RefitSharding *shardings[REFIT_N_SIDES] = {NULL, NULL};
    guint64 whole[REFIT_N_SIDES][REFIT_MAX_DIMS] = {{0}};
    RefitTensor tensor = {.name = name,
                          .n_dims = call->sides[0].n_dims,
                          .dtype = call->sides[0].dtype,
                          .role = REFIT_ROLE_OTHER,
                          .layer = REFIT_NO_LAYER,
                          .expert = REFIT_NO_EXPERT};
    guint index;

    for (guint s = 0; s < REFIT_N_SIDES; s++) {
        const Stated stated = {&call->sides[s], side_name(s), call->number,
                               shapes + s * REFIT_MAX_DIMS, stride};
        shardings[s] = read_sharding(&stated, n_ranks, whole[s], error);
        if (shardings[s] == NULL)
            break;
    }
    memcpy(tensor.shape, whole[0], sizeof whole[0]);
    if (shardings[1] == NULL || !refit_manifest_add(manifest, &tensor, &index, error)) {
        refit_sharding_free(shardings[0]);
        refit_sharding_free(shardings[1]);
        return FALSE;
    }
    for (guint s = 0; s < REFIT_N_SIDES; s++) {
        refit_manifest_place(manifest, index, (RefitSide)s, shardings[s]);
        refit_manifest_state_shape(manifest, index, (RefitSide)s, tensor.n_dims, whole[s]);
    }
    return TRUE;
}

RefitCase *m2n_case_new(const M2nCall *calls, guint n, const guint64 *shapes, gboolean alike,
                        guint n_ranks, guint domain_size, GError **error) {
    const gsize stride = alike ? 0 : (gsize)n * REFIT_N_SIDES * REFIT_MAX_DIMS;
    g_autoptr(RefitManifest) manifest = refit_manifest_new();
    g_autoptr(RefitTopology) topology = NULL;
    /* Numbers of an H100 node; what counts is that NVLink is the faster link. A last domain that is
     * smaller can be said of nodes only. */
    g_autofree char *line =
        n_ranks % domain_size == 0
            ? g_strdup_printf("node:%u gpu:%u " LINKS, n_ranks / domain_size, domain_size)
            : g_strdup_printf("node:%u gpu:1 domain:%u " LINKS, n_ranks, domain_size);
    RefitProfile *profile;

    for (guint i = 0; i < n; i++)
        if (!add_call(manifest, &calls[i], shapes + i * REFIT_N_SIDES * REFIT_MAX_DIMS, stride,
                      n_ranks, error))
            return NULL;
    topology = refit_topology_parse_line(line, error);
    if (topology == NULL)
        return NULL;
    profile = refit_profile_built_in(error);
    if (profile == NULL)
        return NULL;
    return refit_manifest_to_case(manifest, g_steal_pointer(&topology), profile, error);
}
