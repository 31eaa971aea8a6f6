/*
 * A report as a case: what the file says of tensors, sides and ranks goes into a manifest, whose
 * checks are those that a report may expect. Nothing is decided here but what the format itself
 * asks for.
 */

#include <string.h>

#include "validation/report.h"

/* ---- tensors ---- */

/* "e.{i}.w" for the so-manieth of several equal tensors. */
static char *repeated_name(const char *name, guint64 repeat, guint64 index) {
    g_autofree char *number = g_strdup_printf("%" G_GUINT64_FORMAT, index);

    if (repeat == 1)
        return g_strdup(name);
    if (strstr(name, "{i}") == NULL)
        return g_strconcat(name, ".", number, NULL);
    g_auto(GStrv) parts = g_strsplit(name, "{i}", -1);
    return g_strjoinv(number, parts);
}

/* TRUE and FALSE keep their usual meaning; absent keys change nothing. */
static gboolean read_granules(const json_t *json, RefitTensor *tensor, GError **error) {
    static const char *const keys[] = {"dim", "size", NULL};
    const json_t *granule = json_object_get(json, "granule"), *tile = json_object_get(json, "tile");
    guint64 dim, size;

    if (granule != NULL && tile != NULL)
        return report_fail(error, "a tensor has granule or tile, not both");
    if (granule != NULL) {
        if (!report_check_keys(granule, "granule", keys, error) ||
            !report_get_uint(json_object_get(granule, "dim"), "granule.dim", REFIT_MAX_DIMS, &dim,
                             error) ||
            !report_get_uint(json_object_get(granule, "size"), "granule.size", G_MAXUINT32, &size,
                             error))
            return FALSE;
        if (dim >= tensor->n_dims || size == 0)
            return report_fail(error, "granule needs a dim of the tensor and a size from 1 on");
        tensor->granule[dim] = (guint32)size;
    }
    if (tile == NULL)
        return TRUE;
    g_autoptr(GArray) sizes = report_get_uints(tile, "tile", G_MAXUINT32, error);
    if (sizes == NULL)
        return FALSE;
    if (sizes->len != tensor->n_dims)
        return report_fail(error, "tile has %u sizes, the tensor %u dims", sizes->len,
                           tensor->n_dims);
    for (guint d = 0; d < sizes->len; d++)
        tensor->granule[d] = (guint32)g_array_index(sizes, guint64, d);
    tensor->tiled = TRUE;
    return TRUE;
}

static gboolean find_tensor(const json_t *root, const char *name, guint *index_out,
                            GError **error) {
    const json_t *tensors = json_object_get(root, "tensors");

    for (gsize i = 0; i < json_array_size(tensors); i++) {
        const char *other = json_string_value(json_object_get(json_array_get(tensors, i), "name"));
        if (g_strcmp0(other, name) == 0) {
            *index_out = (guint)i;
            return TRUE;
        }
    }
    g_autofree char *shown = refit_error_excerpt(name);
    return report_fail(error, "there is no tensor \"%s\"", shown);
}

/* Makes the tensor a scale when a side of it is stated as blocks of another. */
static gboolean read_blocks(const json_t *root, const json_t *json, const guint *first,
                            RefitTensor *tensor, GError **error) {
    static const char *const sides[] = {"src", "dst"};

    for (guint side = 0; side < G_N_ELEMENTS(sides); side++) {
        const json_t *layout = json_object_get(json, sides[side]);
        const char *leader;
        guint index = 0;
        if (json_object_get(layout, "block_of") == NULL)
            continue;
        g_autoptr(GArray) block =
            report_get_uints(json_object_get(layout, "block"), "block", G_MAXUINT32, error);
        if (block == NULL ||
            !report_get_string(json_object_get(layout, "block_of"), "block_of", &leader, error) ||
            !find_tensor(root, leader, &index, error))
            return FALSE;
        if (block->len != tensor->n_dims)
            return report_fail(error, "block has %u sizes, the tensor %u dims", block->len,
                               tensor->n_dims);
        for (guint dim = 0; dim < block->len; dim++) {
            guint32 size = (guint32)g_array_index(block, guint64, dim);
            if (size == 0 || (tensor->scale && tensor->block[dim] != size))
                return report_fail(error, "block sizes are from 1 on and the same on both sides");
            tensor->block[dim] = size;
        }
        if (tensor->scale && tensor->scale_of != first[index])
            return report_fail(error, "both sides must be blocks of one tensor");
        tensor->scale = TRUE;
        tensor->scale_of = first[index];
    }
    return TRUE;
}

static const char *const tensor_keys[] = {"name",
                                          "shape",
                                          "dtype",
                                          "src",
                                          "dst",
                                          "repeat",
                                          "wire_dtype",
                                          "recv_wire_dtype",
                                          "dst_dtype",
                                          "dst_shape",
                                          "granule",
                                          "tile",
                                          "declared_local",
                                          "absent_src_ranks",
                                          "src_strides",
                                          NULL};

static gboolean read_tensor(const json_t *root, const json_t *json, const guint *first,
                            RefitTensor *tensor, guint64 *repeat_out, GError **error) {
    const json_t *wire = json_object_get(json, "wire_dtype");
    const json_t *repeat = json_object_get(json, "repeat"), *dtype = json_object_get(json, "dtype");
    const json_t *installed = json_object_get(json, "dst_dtype");
    const json_t *strides = json_object_get(json, "src_strides");
    const char *name;
    RefitDtype unused;

    *tensor =
        (RefitTensor){.role = REFIT_ROLE_OTHER, .layer = REFIT_NO_LAYER, .expert = REFIT_NO_EXPERT};
    *repeat_out = 1;
    if (!report_check_keys(json, "tensor", tensor_keys, error) ||
        !report_get_string(json_object_get(json, "name"), "name", &name, error))
        return FALSE;
    if (!report_get_shape(json_object_get(json, "shape"), "shape", &tensor->n_dims, tensor->shape,
                          error) ||
        !report_get_dtype(dtype, "dtype", &unused, error) ||
        !report_get_dtype(wire != NULL ? wire : dtype, "wire_dtype", &tensor->dtype, error) ||
        (installed != NULL && !report_get_dtype(installed, "dst_dtype", &unused, error)) ||
        (repeat != NULL && !report_get_uint(repeat, "repeat", 100000, repeat_out, error)) ||
        !read_granules(json, tensor, error) || !read_blocks(root, json, first, tensor, error)) {
        g_prefix_error(error, "tensor %s: ", name);
        return FALSE;
    }
    if (strides == NULL)
        return TRUE;
    g_autoptr(GArray) list = report_get_uints(strides, "src_strides", G_MAXINT64, error);
    if (list == NULL) {
        g_prefix_error(error, "tensor %s: ", name);
        return FALSE;
    }
    return list->len == tensor->n_dims ||
           report_fail(error, "tensor %s: src_strides is not one stride per dim", name);
}

/* ---- what is declared of a tensor ---- */

static gboolean state_locals(RefitManifest *manifest, const ReportRanks *ranks, guint index,
                             RefitSide side, const json_t *locals, GError **error) {
    const char *key;
    json_t *value;

    if (locals != NULL && !report_expect_object(locals, "declared_local", error))
        return FALSE;
    json_object_foreach((json_t *)locals, key, value) {
        guint64 shape[REFIT_MAX_DIMS];
        guint rank, n_dims;
        if (!report_get_rank(key, "declared_local", &rank, error) ||
            !report_get_shape(value, "declared_local", &n_dims, shape, error))
            return FALSE;
        /* A rank in no layout reports what nobody gave it. */
        refit_manifest_state_local(manifest, index, side,
                                   rank < ranks->n_ranks ? ranks->gpu_of[rank] : REPORT_NO_GPU,
                                   n_dims, shape);
    }
    return TRUE;
}

static gboolean state_tensor(RefitManifest *manifest, const ReportRanks *ranks, const json_t *json,
                             guint index, GError **error) {
    static const char *const sides[] = {"src", "dst", NULL};
    const json_t *shape = json_object_get(json, "dst_shape");
    const json_t *wire = json_object_get(json, "recv_wire_dtype");
    const json_t *locals = json_object_get(json, "declared_local");
    const json_t *absent = json_object_get(json, "absent_src_ranks");
    guint64 extents[REFIT_MAX_DIMS];
    guint n_dims;
    RefitDtype dtype;

    if (shape != NULL) {
        if (!report_get_shape(shape, "dst_shape", &n_dims, extents, error))
            return FALSE;
        refit_manifest_state_shape(manifest, index, REFIT_SIDE_DESTINATION, n_dims, extents);
    }
    if (wire != NULL) {
        if (!report_get_dtype(wire, "recv_wire_dtype", &dtype, error))
            return FALSE;
        refit_manifest_state_wire(manifest, index, REFIT_SIDE_DESTINATION, dtype);
    }
    if (locals != NULL && !report_check_keys(locals, "declared_local", sides, error))
        return FALSE;
    for (guint side = 0; side < REFIT_N_SIDES; side++)
        if (!state_locals(manifest, ranks, index, (RefitSide)side,
                          json_object_get(locals, sides[side]), error))
            return FALSE;
    if (absent == NULL)
        return TRUE;
    g_autoptr(GArray) list = report_get_uints(absent, "absent_src_ranks", REPORT_MAX_RANK, error);
    for (guint i = 0; list != NULL && i < list->len; i++) {
        guint64 rank = g_array_index(list, guint64, i);
        if (rank < ranks->n_ranks)
            refit_manifest_withdraw(manifest, index, REFIT_SIDE_SOURCE, ranks->gpu_of[rank]);
    }
    return list != NULL;
}

static gboolean place_tensor(RefitManifest *manifest, const json_t *root, const ReportRanks *ranks,
                             const json_t *json, guint index, GError **error) {
    for (guint side = 0; side < REFIT_N_SIDES; side++) {
        g_autoptr(GError) cause = NULL;
        const char *leader;
        RefitSharding *sharding =
            report_sharding_new(root, ranks, json, (RefitSide)side, NULL, &leader, &cause);
        if (cause != NULL) {
            g_propagate_prefixed_error(error, g_steal_pointer(&cause), "tensor %s, %s: ",
                                       json_string_value(json_object_get(json, "name")),
                                       side == REFIT_SIDE_SOURCE ? "src" : "dst");
            return FALSE;
        }
        if (sharding != NULL)
            refit_manifest_place(manifest, index, (RefitSide)side, sharding);
    }
    return TRUE;
}

static gboolean add_tensors(RefitManifest *manifest, const json_t *root, Report *report,
                            GError **error) {
    const json_t *tensors = json_object_get(root, "tensors");

    for (guint i = 0; i < report->n_tensors; i++) {
        const json_t *json = json_array_get(tensors, i);
        RefitTensor tensor;
        guint64 repeat;
        if (!read_tensor(root, json, report->first, &tensor, &repeat, error))
            return FALSE;
        for (guint64 k = 0; k < repeat; k++) {
            g_autofree char *name =
                repeated_name(json_string_value(json_object_get(json, "name")), repeat, k);
            guint index;
            tensor.name = name;
            if (!refit_manifest_add(manifest, &tensor, &index, error))
                return FALSE;
            if (!state_tensor(manifest, report->ranks, json, index, error)) {
                g_prefix_error(error, "tensor %s: ", name);
                return FALSE;
            }
            if (!place_tensor(manifest, root, report->ranks, json, index, error))
                return FALSE;
        }
    }
    return TRUE;
}

/* First tensor of the model for each of the file, which may refer to later ones. */
static gboolean number_tensors(Report *report, GError **error) {
    const json_t *tensors = json_object_get(report->root, "tensors");
    guint64 next = 0;

    if (!json_is_array(tensors))
        return report_fail(error, "tensors is not a list");
    report->n_tensors = (guint)json_array_size(tensors);
    report->first = g_new0(guint, report->n_tensors + 1);
    for (guint i = 0; i < report->n_tensors; i++) {
        const json_t *repeat = json_object_get(json_array_get(tensors, i), "repeat");
        guint64 n = 1;
        if (repeat != NULL && !report_get_uint(repeat, "repeat", 100000, &n, error))
            return FALSE;
        if (n == 0)
            return report_fail(error, "repeat is 0; leave the tensor out");
        report->first[i] = (guint)next;
        next += n;
        if (next > G_MAXINT32)
            return report_fail(error, "there are more than 2^31 - 1 tensors");
    }
    report->first[report->n_tensors] = (guint)next;
    return TRUE;
}

/* ---- what is declared of the whole ---- */

static gboolean require_names(RefitManifest *manifest, const json_t *root, GError **error) {
    const json_t *required = json_object_get(root, "required");
    const json_t *aliases = json_object_get(root, "aliases");
    const char *key, *name;
    json_t *value;

    if (required != NULL && !json_is_array(required))
        return report_fail(error, "required is not a list of names");
    for (gsize i = 0; i < json_array_size(required); i++) {
        if (!report_get_string(json_array_get(required, i), "required", &name, error))
            return FALSE;
        refit_manifest_require(manifest, name);
    }
    /* A tied tensor needs the one that it is tied to. */
    if (aliases != NULL && !report_expect_object(aliases, "aliases", error))
        return FALSE;
    json_object_foreach((json_t *)aliases, key, value) {
        if (!report_get_string(value, "aliases", &name, error))
            return FALSE;
        refit_manifest_require(manifest, name);
    }
    return TRUE;
}

static gboolean bind_devices(RefitManifest *manifest, const json_t *root, GError **error) {
    const json_t *transport = json_object_get(root, "transport");
    const json_t *devices = json_object_get(root, "device_of");
    const char *key, *device, *name = NULL;
    json_t *value;

    if (transport != NULL && !report_get_string(transport, "transport", &name, error))
        return FALSE;
    if (devices != NULL && !report_expect_object(devices, "device_of", error))
        return FALSE;
    json_object_foreach((json_t *)devices, key, value) {
        guint rank;
        if (!report_get_rank(key, "device_of", &rank, error) ||
            !report_get_string(value, "device_of", &device, error))
            return FALSE;
        if (g_strcmp0(name, "nccl") == 0) /* others can share a device */
            refit_manifest_bind(manifest, rank, device);
    }
    return TRUE;
}

static gboolean fail_ranks(RefitManifest *manifest, const json_t *root, const ReportRanks *ranks,
                           GError **error) {
    const json_t *failed = json_object_get(root, "failed_ranks");

    if (failed == NULL)
        return TRUE;
    g_autoptr(GArray) list = report_get_uints(failed, "failed_ranks", REPORT_MAX_RANK, error);
    for (guint i = 0; list != NULL && i < list->len; i++)
        refit_manifest_fail_rank(manifest, ranks->gpu_of[g_array_index(list, guint64, i)]);
    return list != NULL;
}

static gboolean check_limits(const Report *report, GError **error) {
    static const char *const keys[] = {"max_sources", NULL};
    const json_t *limits = json_object_get(report->root, "limits");
    const json_t *sources = json_object_get(limits, "max_sources");
    guint64 max;

    if (limits == NULL)
        return TRUE;
    if (!report_check_keys(limits, "limits", keys, error))
        return FALSE;
    return sources == NULL ||
           (report_get_uint(sources, "limits.max_sources", G_MAXUINT32, &max, error) &&
            refit_demand_check_sources(report->demand, (guint)max, error));
}

/* Costs nothing: reports are about bytes and order. */
static RefitProfile *free_profile(GError **error) {
    g_autoptr(GString) text = g_string_new("schema: refit.profile/1\nname: free\nterms:\n");
    static const char *const sizes =
        "bucket_bytes: {value: 1GiB, source: none}\nbucket_memory_percent: {value: 2, source: "
        "none}\nslice_bytes: {value: 512KiB, source: none}\nstripe_bytes: {value: 16KiB, source: "
        "none}\nstage_lanes: 2\nslices: 8\nbatches: 4\n";
    for (guint term = 0; term < REFIT_N_TERMS; term++) {
        gboolean is_rate =
            term == REFIT_TERM_PACK || term == REFIT_TERM_UNPACK || term == REFIT_TERM_INSTALL;
        g_string_append_printf(text, "  %s: {value: %s, source: none}\n",
                               refit_term_name((RefitTerm)term), is_rate ? "0GBps" : "0s");
    }
    g_string_append(text, sizes);
    g_autoptr(RefitDoc) doc = refit_doc_parse(text->str, text->len, "profile", error);
    return doc != NULL ? refit_profile_parse(refit_doc_root(doc), error) : NULL;
}

static const char *const root_keys[] = {
    "id",     "kind",      "tags",     "source",    "tensors",      "src",       "dst",
    "fused",  "dst_fused", "topology", "world",     "failed_ranks", "device_of", "transport",
    "limits", "required",  "aliases",  "negatives", "checks",       "expect",    NULL};

Report *report_new(const json_t *root, GError **error) {
    g_autoptr(Report) report = g_new0(Report, 1);
    g_autoptr(RefitManifest) manifest = refit_manifest_new();

    report->root = root;
    if (!report_check_keys(root, "the report", root_keys, error) || !number_tensors(report, error))
        return NULL;
    report->ranks = report_ranks_new(root, error);
    if (report->ranks == NULL || !add_tensors(manifest, root, report, error) ||
        !require_names(manifest, root, error) || !bind_devices(manifest, root, error) ||
        !fail_ranks(manifest, root, report->ranks, error))
        return NULL;
    RefitProfile *profile = free_profile(error);
    if (profile == NULL)
        return NULL;
    report->refit_case =
        refit_manifest_to_case(manifest, g_steal_pointer(&report->ranks->topology), profile, error);
    if (report->refit_case == NULL)
        return NULL;
    report->problem = refit_problem_new(report->refit_case, error);
    if (report->problem == NULL)
        return NULL;
    report->demand = refit_demand_new(report->problem, error);
    if (report->demand == NULL || !check_limits(report, error))
        return NULL;
    return g_steal_pointer(&report);
}

void report_free(Report *report) {
    if (report == NULL)
        return;
    refit_demand_free(report->demand);
    refit_problem_free(report->problem);
    refit_case_free(report->refit_case);
    report_ranks_free(report->ranks);
    g_free(report->first);
    g_free(report);
}

GArray *report_layout_ranks(const RefitSharding *sharding, ReportLayout layout) {
    GArray *ranks = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint part = layout.first; part < layout.first + layout.n; part++) {
        const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
        g_array_append_vals(ranks, mesh->ranks, mesh->n_ranks);
    }
    guint *items = (guint *)(gpointer)ranks->data;
    refit_ranks_sort(items, ranks->len);
    g_array_set_size(ranks, refit_ranks_drop_repeats(items, ranks->len));
    return ranks;
}

const RefitSharding *report_placed(const Report *report, guint index, const json_t *tensor,
                                   RefitSide side, GArray *layouts, RefitSharding **stated_out,
                                   GError **error) {
    const RefitLayout *placed = side == REFIT_SIDE_SOURCE ? report->refit_case->source
                                                          : report->refit_case->destinations[0];
    const char *leader;

    *stated_out =
        report_sharding_new(report->root, report->ranks, tensor, side, layouts, &leader, error);
    if (leader == NULL)
        return *stated_out;
    const RefitSharding *followed = refit_layout_sharding(placed, report->first[index]);
    for (guint part = 0; followed != NULL && part < refit_sharding_n_parts(followed); part++) {
        ReportLayout one = {part, 1};
        g_array_append_val(layouts, one);
    }
    return followed;
}
