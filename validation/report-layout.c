/*
 * Layouts of a report as shardings.
 *
 * A mesh with placements is one part. Lists of rows become one region per rank, and a second one
 * for rows that a rank holds twice. A tensor that lives in a fused buffer has, on each rank, the
 * rows of its own that the buffer's shard covers, at their places in the buffer. Several layouts of
 * one side are one sharding with all their parts; where one of them is padded, each is resolved on
 * its own, because padding holds for a whole sharding.
 */

#include <string.h>

#include "validation/report.h"

/* ---- placements ---- */

typedef struct {
    RefitPlacement placement;
    GArray *sizes; /* of guint64, or NULL */
} ParsedPlacement;

static void clear_placement(gpointer data) {
    g_clear_pointer(&((ParsedPlacement *)data)->sizes, g_array_unref);
}

static gboolean read_number(const char **at, guint64 max, guint64 *number_out) {
    const char *end = *at;

    while (g_ascii_isdigit(*end))
        end++;
    g_autofree char *digits = g_strndup(*at, (gsize)(end - *at));
    *at = end;
    return g_ascii_string_to_unsigned(digits, 10, 0, max, number_out, NULL);
}

static gboolean read_text(const char **at, const char *text) {
    if (!g_str_has_prefix(*at, text))
        return FALSE;
    *at += strlen(text);
    return TRUE;
}

/* "R", "S(d)", "SS(d,f)" or "P(d,[n,n])". */
static gboolean parse_placement(const char *text, ParsedPlacement *parsed) {
    const char *at = text;
    guint64 dim, chunks;

    parsed->placement = (RefitPlacement){.kind = REFIT_PLACEMENT_REPLICATE};
    if (strcmp(text, "R") == 0)
        return TRUE;
    parsed->placement.kind = REFIT_PLACEMENT_SHARD;
    gboolean strided = read_text(&at, "SS("), sized = !strided && read_text(&at, "P(");
    if ((!strided && !sized && !read_text(&at, "S(")) || !read_number(&at, 63, &dim))
        return FALSE;
    parsed->placement.dim = (guint)dim;
    if (strided) {
        parsed->placement.split = REFIT_SPLIT_STRIDED;
        if (!read_text(&at, ",") || !read_number(&at, G_MAXUINT32, &chunks))
            return FALSE;
        parsed->placement.chunks = (guint)chunks;
    }
    if (sized) {
        parsed->placement.split = REFIT_SPLIT_SIZES;
        parsed->sizes = g_array_new(FALSE, FALSE, sizeof(guint64));
        if (!read_text(&at, ",["))
            return FALSE;
        for (guint64 size; *at != ']' && *at != '\0';) {
            if ((parsed->sizes->len > 0 && !read_text(&at, ",")) ||
                !read_number(&at, G_MAXUINT64, &size))
                return FALSE;
            g_array_append_val(parsed->sizes, size);
        }
        if (!read_text(&at, "]"))
            return FALSE;
        parsed->placement.n_sizes = parsed->sizes->len;
        parsed->placement.sizes = (const guint64 *)(gpointer)parsed->sizes->data;
    }
    return strcmp(at, ")") == 0;
}

/* An array of ParsedPlacement. */
static GArray *read_placements(const json_t *list, GError **error) {
    g_autoptr(GArray) placements = g_array_new(FALSE, TRUE, sizeof(ParsedPlacement));

    g_array_set_clear_func(placements, clear_placement);
    if (!json_is_array(list)) {
        report_fail(error, "placements is not a list of texts");
        return NULL;
    }
    for (gsize i = 0; i < json_array_size(list); i++) {
        const char *text;
        if (!report_get_string(json_array_get(list, i), "placements", &text, error))
            return NULL;
        g_array_set_size(placements, (guint)i + 1);
        if (!parse_placement(text, &g_array_index(placements, ParsedPlacement, i))) {
            g_autofree char *shown = refit_error_excerpt(text);
            report_fail(error, "placement \"%s\" is none of R, S(d), SS(d,f), P(d,[sizes])", shown);
            return NULL;
        }
    }
    return g_steal_pointer(&placements);
}

/* `order` lists the mesh dims in the order in which they cut. */
static gboolean apply_order(const json_t *order, GArray *placements, GError **error) {
    for (guint i = 0; i < placements->len; i++)
        g_array_index(placements, ParsedPlacement, i).placement.order = i;
    if (order == NULL)
        return TRUE;
    g_autoptr(GArray) dims = report_get_uints(order, "order", REFIT_MAX_AXES, error);
    if (dims == NULL)
        return FALSE;
    g_autofree gboolean *seen = g_new0(gboolean, MAX(placements->len, 1));
    for (guint i = 0; i < dims->len; i++) {
        guint64 axis = g_array_index(dims, guint64, i);
        if (dims->len != placements->len || axis >= placements->len || seen[axis])
            return report_fail(error, "order does not name each of the %u mesh dims once",
                               placements->len);
        seen[axis] = TRUE;
        g_array_index(placements, ParsedPlacement, axis).placement.order = i;
    }
    return dims->len == placements->len ||
           report_fail(error, "order does not name each of the %u mesh dims once", placements->len);
}

/* ---- meshes ---- */

static gboolean add_mesh(RefitSharding *sharding, const ReportRanks *ranks, const json_t *layout,
                         GError **error) {
    g_autoptr(GArray) dims =
        report_get_uints(json_object_get(layout, "mesh_dims"), "mesh_dims", REPORT_MAX_RANK, error);
    g_autoptr(GArray) members = NULL, placements = NULL;

    if (dims == NULL)
        return FALSE;
    members = report_get_uints(json_object_get(layout, "ranks"), "ranks", REPORT_MAX_RANK, error);
    if (members == NULL)
        return FALSE;
    placements = read_placements(json_object_get(layout, "placements"), error);
    if (placements == NULL || !apply_order(json_object_get(layout, "order"), placements, error))
        return FALSE;
    g_autofree guint *sizes = g_new(guint, MAX(dims->len, 1));
    g_autofree guint *gpus = g_new(guint, MAX(members->len, 1));
    g_autofree RefitPlacement *stated = g_new(RefitPlacement, MAX(placements->len, 1));
    for (guint i = 0; i < dims->len; i++)
        sizes[i] = (guint)g_array_index(dims, guint64, i);
    for (guint i = 0; i < members->len; i++)
        gpus[i] = ranks->gpu_of[g_array_index(members, guint64, i)];
    for (guint i = 0; i < placements->len; i++)
        stated[i] = g_array_index(placements, ParsedPlacement, i).placement;
    RefitMesh *mesh = refit_mesh_new(dims->len, sizes, gpus, members->len, error);
    if (mesh == NULL)
        return FALSE;
    if (placements->len != mesh->n_axes) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PLACEMENT_COUNT,
                    "a mesh of %u dims has %u placements", mesh->n_axes, placements->len);
        refit_mesh_free(mesh);
        return FALSE;
    }
    return refit_sharding_add(sharding, mesh, stated, error);
}

static gboolean apply_padding(RefitSharding *sharding, const json_t *layout, guint n_dims,
                              const guint64 *shape, GError **error) {
    const json_t *padded = json_object_get(layout, "padded_shape");
    guint64 extents[REFIT_MAX_DIMS];
    guint n;

    if (padded == NULL)
        return TRUE;
    if (!report_get_shape(padded, "padded_shape", &n, extents, error))
        return FALSE;
    if (n != n_dims)
        return report_fail(error, "padded_shape has %u dims, the tensor %u", n, n_dims);
    for (guint dim = 0; dim < n; dim++)
        if (extents[dim] != shape[dim])
            refit_sharding_set_padded(sharding, dim, extents[dim]);
    return TRUE;
}

static const char *const mesh_keys[] = {"mesh_dims", "ranks",        "placements",
                                        "order",     "padded_shape", NULL};

RefitSharding *report_mesh_new(const ReportRanks *ranks, const json_t *layout, guint n_dims,
                               GError **error) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    const guint64 shape[REFIT_MAX_DIMS] = {0};

    if (!report_check_keys(layout, "layout", mesh_keys, error) ||
        !add_mesh(sharding, ranks, layout, error) ||
        !apply_padding(sharding, layout, n_dims, shape, error))
        return NULL;
    return g_steal_pointer(&sharding);
}

/* A padded layout among several: what each rank has of it. */
static gboolean add_resolved(RefitSharding *sharding, const ReportRanks *ranks,
                             const json_t *layout, guint n_dims, const guint64 *shape,
                             GError **error) {
    g_autoptr(RefitSharding) alone = refit_sharding_new();

    if (!add_mesh(alone, ranks, layout, error) ||
        !apply_padding(alone, layout, n_dims, shape, error))
        return FALSE;
    const RefitMesh *mesh = refit_sharding_mesh(alone, 0);
    for (guint i = 0; i < mesh->n_ranks; i++) {
        g_auto(RefitRegion) region = {0};
        guint64 buffer[REFIT_MAX_DIMS];
        if (!refit_sharding_local(alone, 0, mesh->ranks[i], n_dims, shape, &region, buffer,
                                  error) ||
            !refit_sharding_add_region(sharding, mesh->ranks[i], &region, error))
            return FALSE;
    }
    return TRUE;
}

/* ---- rows ---- */

/* Adds the rows of `list` for which `again[i]` is `round`: those a rank holds for the so-manieth
 * time. */
static gboolean add_rows(RefitSharding *sharding, guint gpu, const GArray *list, const guint *again,
                         guint round, guint dim, guint n_dims, const guint64 *shape,
                         GError **error) {
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    g_auto(RefitRegion) region = refit_region_full(n_dims, shape);

    for (guint i = 0; i < list->len; i++) {
        guint64 row = g_array_index(list, guint64, i);
        RefitInterval item = {row, row + 1, i};
        if (again[i] == round)
            g_array_append_val(items, item);
    }
    RefitIntervalList *rows =
        refit_interval_list_new((const RefitInterval *)(gpointer)items->data, items->len, error);
    if (rows == NULL)
        return FALSE;
    refit_interval_list_unref(region.dims[dim]);
    region.dims[dim] = rows;
    return refit_sharding_add_region(sharding, gpu, &region, error);
}

static gboolean add_rank_rows(RefitSharding *sharding, guint gpu, const json_t *rows, guint dim,
                              guint n_dims, const guint64 *shape, GError **error) {
    g_autoptr(GArray) list = report_get_uints(rows, "rows", G_MAXINT64, error);

    if (list == NULL)
        return FALSE;
    g_autofree guint *again = g_new0(guint, MAX(list->len, 1));
    g_autoptr(GHashTable) times = g_hash_table_new(g_int64_hash, g_int64_equal);
    guint n_rounds = 1;
    for (guint i = 0; i < list->len; i++) {
        guint64 *row = &g_array_index(list, guint64, i);
        if (*row >= shape[dim])
            return report_fail(
                error, "rows: %" G_GUINT64_FORMAT " is beyond dim %u, which has %" G_GUINT64_FORMAT,
                *row, dim, shape[dim]);
        again[i] = GPOINTER_TO_UINT(g_hash_table_lookup(times, row));
        g_hash_table_insert(times, row, GUINT_TO_POINTER(again[i] + 1));
        n_rounds = MAX(n_rounds, again[i] + 1);
    }
    for (guint round = 0; round < n_rounds; round++)
        if (!add_rows(sharding, gpu, list, again, round, dim, n_dims, shape, error))
            return FALSE;
    return TRUE;
}

static gboolean add_index(RefitSharding *sharding, const ReportRanks *ranks, const json_t *index,
                          guint n_dims, const guint64 *shape, GError **error) {
    static const char *const keys[] = {"dim", "rows", NULL};
    const json_t *rows = json_object_get(index, "rows");
    guint64 dim;
    const char *key;
    json_t *value;

    if (!report_check_keys(index, "index", keys, error) ||
        !report_get_uint(json_object_get(index, "dim"), "index.dim", REFIT_MAX_DIMS, &dim, error))
        return FALSE;
    if (dim >= n_dims || !json_is_object(rows))
        return report_fail(error, "index needs a dim of the tensor and rows per rank");
    json_object_foreach((json_t *)rows, key, value) {
        guint rank;
        if (!report_get_rank(key, "rows", &rank, error) ||
            !add_rank_rows(sharding, ranks->gpu_of[rank], value, (guint)dim, n_dims, shape, error))
            return FALSE;
    }
    return TRUE;
}

/* ---- fused buffers ---- */

void report_fused_clear(ReportFused *fused) {
    g_clear_pointer(&fused->rows, g_array_unref);
    g_clear_pointer(&fused->whole, refit_sharding_free);
}

/* Reads [[name, start, end], ...] into `rows`, which fill a buffer of `extent` rows. */
static gboolean read_fused_rows(const json_t *list, guint64 extent, GArray *rows, GError **error) {
    guint64 place = 0;

    if (!report_expect_list(list, "fused.rows", error))
        return FALSE;
    for (gsize i = 0; i < json_array_size(list); i++) {
        const json_t *json = json_array_get(list, i);
        ReportRows row;
        if (json_array_size(json) != 3)
            return report_fail(error, "rows of a fused buffer are [name, start, end]");
        if (!report_get_string(json_array_get(json, 0), "rows", &row.name, error) ||
            !report_get_uint(json_array_get(json, 1), "rows", G_MAXINT64, &row.lo, error) ||
            !report_get_uint(json_array_get(json, 2), "rows", G_MAXINT64, &row.hi, error))
            return FALSE;
        if (row.hi < row.lo || !refit_checked_add(place, row.hi - row.lo, "rows", &place, NULL))
            return report_fail(error,
                               "rows [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ") are reversed",
                               row.lo, row.hi);
        g_array_append_val(rows, row);
    }
    if (place == extent)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARTITION_SUM,
                "the rows of a fused buffer sum to %" G_GUINT64_FORMAT
                ", but its dim has %" G_GUINT64_FORMAT,
                place, extent);
    return FALSE;
}

gboolean report_fused_read(const ReportRanks *ranks, const json_t *json, ReportFused *fused,
                           GError **error) {
    static const char *const keys[] = {"dim", "shape", "rows", "layout", NULL};
    guint64 dim;

    *fused = (ReportFused){.rows = g_array_new(FALSE, FALSE, sizeof(ReportRows))};
    if (!report_check_keys(json, "fused", keys, error) ||
        !report_get_uint(json_object_get(json, "dim"), "fused.dim", REFIT_MAX_DIMS, &dim, error) ||
        !report_get_shape(json_object_get(json, "shape"), "fused.shape", &fused->n_dims,
                          fused->shape, error))
        return FALSE;
    if (dim >= fused->n_dims)
        return report_fail(error, "fused.dim is not a dim of fused.shape");
    fused->dim = (guint)dim;
    if (!read_fused_rows(json_object_get(json, "rows"), fused->shape[dim], fused->rows, error))
        return FALSE;
    fused->whole = report_mesh_new(ranks, json_object_get(json, "layout"), fused->n_dims, error);
    return fused->whole != NULL;
}

/* Rows of the tensor, which has `extent` of them, by their places in the buffer. */
static RefitIntervalList *member_rows(const ReportFused *fused, const char *name, guint64 extent,
                                      GError **error) {
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    guint64 place = 0;

    for (guint i = 0; i < fused->rows->len; i++) {
        const ReportRows *row = &g_array_index(fused->rows, ReportRows, i);
        RefitInterval item = {row->lo, row->hi, place};
        place += row->hi - row->lo;
        if (strcmp(row->name, name) != 0)
            continue;
        if (row->hi > extent) {
            report_fail(error,
                        "rows [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                        ") of a fused buffer are beyond the tensor, which has %" G_GUINT64_FORMAT,
                        row->lo, row->hi, extent);
            return NULL;
        }
        g_array_append_val(items, item);
    }
    return refit_interval_list_new((const RefitInterval *)(gpointer)items->data, items->len, error);
}

/* The buffer is as the tensor, but for the rows. */
static gboolean check_fused_shape(const ReportFused *fused, guint n_dims, const guint64 *shape,
                                  GError **error) {
    gboolean fits = fused->n_dims == n_dims;

    for (guint d = 0; d < n_dims && fits; d++)
        fits = d == fused->dim || fused->shape[d] == shape[d];
    return fits || report_fail(error, "fused.shape is not the tensor's but for dim %u", fused->dim);
}

static gboolean add_fused(RefitSharding *sharding, const json_t *root, const ReportRanks *ranks,
                          const char *buffer, const char *tensor, guint n_dims,
                          const guint64 *shape, GError **error) {
    g_auto(ReportFused) fused = {0};
    guint64 local[REFIT_MAX_DIMS];

    if (!report_fused_read(ranks, json_object_get(json_object_get(root, "fused"), buffer), &fused,
                           error) ||
        !check_fused_shape(&fused, n_dims, shape, error))
        return FALSE;
    g_autoptr(RefitIntervalList) rows = member_rows(&fused, tensor, shape[fused.dim], error);
    if (rows == NULL)
        return FALSE;
    const RefitMesh *mesh = refit_sharding_mesh(fused.whole, 0);
    for (guint i = 0; i < mesh->n_ranks; i++) {
        g_auto(RefitRegion) region = {0};
        if (!refit_sharding_local(fused.whole, 0, mesh->ranks[i], fused.n_dims, fused.shape,
                                  &region, local, error))
            return FALSE;
        RefitIntervalList *mine = refit_interval_list_select(rows, region.dims[fused.dim]);
        refit_interval_list_unref(region.dims[fused.dim]);
        region.dims[fused.dim] = mine;
        if (!refit_sharding_add_region(sharding, mesh->ranks[i], &region, error))
            return FALSE;
    }
    return TRUE;
}

/* ---- one side of one tensor ---- */

static gboolean add_layout(RefitSharding *sharding, const json_t *root, const ReportRanks *ranks,
                           const json_t *layout, gboolean alone, const char *tensor, guint n_dims,
                           const guint64 *shape, GError **error) {
    static const char *const index_keys[] = {"index", NULL};
    static const char *const fused_keys[] = {"fused", NULL};
    const char *buffer = NULL;

    if (json_object_get(layout, "index") != NULL)
        return report_check_keys(layout, "layout", index_keys, error) &&
               add_index(sharding, ranks, json_object_get(layout, "index"), n_dims, shape, error);
    if (json_object_get(layout, "fused") != NULL)
        return report_check_keys(layout, "layout", fused_keys, error) &&
               report_get_string(json_object_get(layout, "fused"), "fused", &buffer, error) &&
               add_fused(sharding, root, ranks, buffer, tensor, n_dims, shape, error);
    if (!report_check_keys(layout, "layout", mesh_keys, error))
        return FALSE;
    if (json_object_get(layout, "padded_shape") != NULL && !alone)
        return add_resolved(sharding, ranks, layout, n_dims, shape, error);
    return add_mesh(sharding, ranks, layout, error) &&
           apply_padding(sharding, layout, n_dims, shape, error);
}

RefitSharding *report_sharding_new(const json_t *root, const ReportRanks *ranks,
                                   const json_t *tensor, RefitSide side, GArray *layouts,
                                   const char **leader_out, GError **error) {
    const char *key = side == REFIT_SIDE_SOURCE ? "src" : "dst", *name;
    const json_t *given = json_object_get(tensor, key);
    guint64 shape[REFIT_MAX_DIMS];
    guint n_dims;

    *leader_out = NULL;
    given = given != NULL ? given : json_object_get(root, key);
    if (given == NULL || json_is_null(given))
        return NULL;
    if (!report_get_string(json_object_get(tensor, "name"), "name", &name, error) ||
        !report_get_shape(json_object_get(tensor, "shape"), "shape", &n_dims, shape, error))
        return NULL;
    if (json_object_get(given, "block_of") != NULL) {
        static const char *const keys[] = {"block_of", "block", NULL};
        if (given != json_object_get(tensor, key))
            report_fail(error, "block_of is for a tensor's own layout");
        else if (!report_check_keys(given, "layout", keys, error) ||
                 !report_get_string(json_object_get(given, "block_of"), "block_of", leader_out,
                                    error))
            *leader_out = NULL;
        return NULL;
    }
    gsize n = json_is_array(given) ? json_array_size(given) : 1;
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    for (gsize i = 0; i < n; i++) {
        const json_t *layout = json_is_array(given) ? json_array_get(given, i) : given;
        ReportLayout parts = {refit_sharding_n_parts(sharding), 0};
        if (!add_layout(sharding, root, ranks, layout, n == 1, name, n_dims, shape, error))
            return NULL;
        parts.n = refit_sharding_n_parts(sharding) - parts.first;
        if (layouts != NULL)
            g_array_append_val(layouts, parts);
    }
    return g_steal_pointer(&sharding);
}
