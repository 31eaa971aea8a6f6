/*
 * Jobs of the C API: what a program says about tensors, layouts and the machine.
 *
 * The problem: callers have plain arrays and numbers, the core has manifests, shardings and files.
 * Method: tensors go into a manifest as they come; the sharding of a tensor's side belongs to the
 * manifest and grows by a part with each call that places the tensor. The topology is read when the
 * plan is made, as its names depend on the data folder. Cost: that of the core's functions.
 */

#include "lib/refit-api-private.h"
#include "lib/refit-disk.h"

RefitJob *refit_job_new(void) {
    RefitJob *job = g_new0(RefitJob, 1);

    job->manifest = refit_manifest_new();
    job->placed = g_array_new(FALSE, TRUE, sizeof(RefitApiPlaced));
    return job;
}

void refit_job_free(RefitJob *job) {
    if (job == NULL)
        return;
    refit_schedule_free(job->schedule);
    refit_plan_free(job->plan);
    refit_problem_free(job->problem);
    refit_case_free(job->refit_case);
    g_array_unref(job->placed);
    refit_manifest_free(job->manifest);
    g_free(job->data_dir);
    g_free(job->topology);
    g_free(job->profile);
    g_free(job->message);
    g_free(job);
}

const char *refit_job_message(const RefitJob *job) {
    return job->message != NULL ? job->message : "";
}

/* ---- machine ---- */

static RefitStatus set_text(RefitJob *job, char **field, const char *what, const char *text) {
    if (job->refit_case != NULL)
        return refit_api_refuse(&job->message, "%s: the description is closed; make a new job",
                                what);
    if (text == NULL)
        return refit_api_refuse(&job->message, "%s: there is no text", what);
    g_free(*field);
    *field = g_strdup(text);
    return REFIT_OK;
}

RefitStatus refit_job_set_data_dir(RefitJob *job, const char *path) {
    return set_text(job, &job->data_dir, "data folder", path);
}

RefitStatus refit_job_set_topology(RefitJob *job, const char *topology) {
    return set_text(job, &job->topology, "topology", topology);
}

RefitStatus refit_job_set_profile(RefitJob *job, const char *profile) {
    return set_text(job, &job->profile, "profile", profile);
}

RefitStatus refit_job_set_staging(RefitJob *job, uint64_t bytes) {
    if (job->problem != NULL)
        return refit_api_refuse(&job->message, "staging: set it before the plan is made");
    job->staging = bytes;
    return REFIT_OK;
}

RefitStatus refit_job_load_case(RefitJob *job, const char *name_or_path,
                                const char *const *overrides) {
    g_autofree char *layouts = NULL, *topologies = NULL;
    GError *error = NULL;

    if (name_or_path == NULL)
        return refit_api_refuse(&job->message, "case: there is no name");
    if (job->refit_case != NULL || job->placed->len > 0 || job->topology != NULL ||
        job->profile != NULL)
        return refit_api_refuse(
            &job->message, "case %s: the job is described already; use a new one", name_or_path);
    layouts = g_build_filename(job->data_dir != NULL ? job->data_dir : REFIT_API_DATA_DIR,
                               "layouts", NULL);
    topologies = g_build_filename(job->data_dir != NULL ? job->data_dir : REFIT_API_DATA_DIR,
                                  "topologies", NULL);
    const RefitStore store = {layouts, topologies, &refit_disk};
    job->refit_case = refit_case_load(&store, name_or_path, overrides, &error);
    return job->refit_case != NULL ? REFIT_OK : refit_api_fail(&job->message, error);
}

/* ---- tensors ---- */

static RefitStatus check_open(RefitJob *job, const char *what) {
    if (job->refit_case == NULL)
        return REFIT_OK;
    return refit_api_refuse(&job->message, "%s: the description is closed; make a new job", what);
}

RefitStatus refit_job_add_tensor(RefitJob *job, const RefitTensorDesc *desc, uint32_t *tensor_out) {
    const RefitApiPlaced nowhere = {{NULL, NULL}};
    RefitTensor tensor = {
        .layer = REFIT_NO_LAYER, .expert = REFIT_NO_EXPERT, .role = REFIT_ROLE_OTHER};
    GError *error = NULL;
    guint index;

    if (check_open(job, "tensor") != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (desc == NULL || desc->name == NULL || desc->dtype == NULL ||
        (desc->n_dims > 0 && desc->shape == NULL))
        return refit_api_refuse(&job->message, "tensor %u: it lacks a name, a dtype or a shape",
                                job->placed->len);
    if (!refit_api_check_size(desc->size, sizeof *desc, "tensor", &error))
        return refit_api_fail(&job->message, error);
    if (desc->n_dims > REFIT_MAX_DIMS)
        return refit_api_refuse(&job->message, "tensor %s has %u dims, more than %u", desc->name,
                                desc->n_dims, REFIT_MAX_DIMS);
    tensor.name = (char *)desc->name; /* copied by the manifest */
    tensor.n_dims = desc->n_dims;
    for (guint dim = 0; dim < desc->n_dims; dim++)
        tensor.shape[dim] = desc->shape[dim];
    if (!refit_dtype_parse(desc->dtype, &tensor.dtype, &error)) {
        g_prefix_error(&error, "tensor %s: ", desc->name);
        return refit_api_fail(&job->message, error);
    }
    if (!refit_manifest_add(job->manifest, &tensor, &index, &error))
        return refit_api_fail(&job->message, error);
    g_array_append_val(job->placed, nowhere);
    if (tensor_out != NULL)
        *tensor_out = index;
    return REFIT_OK;
}

/* ---- layouts ---- */

static RefitStatus check_tensor(RefitJob *job, guint tensor, RefitEnd side) {
    if (check_open(job, "placement") != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (tensor >= job->placed->len)
        return refit_api_refuse(&job->message, "tensor %u: the job has %u, from 0 on", tensor,
                                job->placed->len);
    if (side != REFIT_SOURCE && side != REFIT_DESTINATION)
        return refit_api_refuse(&job->message, "tensor %u: side %d is neither 0, the source, nor 1",
                                tensor, (int)side);
    return REFIT_OK;
}

static RefitSharding **placed_at(RefitJob *job, guint tensor, RefitEnd side) {
    return &g_array_index(job->placed, RefitApiPlaced, tensor).sides[side];
}

/* The sharding to add to; given to the manifest by keep_sharding() when that has succeeded. */
static RefitSharding *open_sharding(RefitJob *job, guint tensor, RefitEnd side) {
    RefitSharding *sharding = *placed_at(job, tensor, side);

    return sharding != NULL ? sharding : refit_sharding_new();
}

static RefitStatus keep_sharding(RefitJob *job, guint tensor, RefitEnd side,
                                 RefitSharding *sharding, GError *error) {
    RefitSharding **placed = placed_at(job, tensor, side);

    if (error != NULL) {
        if (*placed == NULL)
            refit_sharding_free(sharding);
        g_prefix_error(&error, "tensor %u: ", tensor);
        return refit_api_fail(&job->message, error);
    }
    if (*placed == NULL) {
        *placed = sharding;
        refit_manifest_place(job->manifest, tensor,
                             side == REFIT_SOURCE ? REFIT_SIDE_SOURCE : REFIT_SIDE_DESTINATION,
                             sharding);
    }
    return REFIT_OK;
}

static gboolean read_axis(const RefitAxisDesc *axis, RefitPlacement *placement, GError **error) {
    static const RefitSplit splits[] = {
        [REFIT_AXIS_CHUNK] = REFIT_SPLIT_CHUNK,
        [REFIT_AXIS_BALANCED] = REFIT_SPLIT_BALANCED,
        [REFIT_AXIS_SIZES] = REFIT_SPLIT_SIZES,
        [REFIT_AXIS_STRIDED] = REFIT_SPLIT_STRIDED,
    };

    if (axis->kind == REFIT_AXIS_REPLICATE) {
        *placement = (RefitPlacement){.kind = REFIT_PLACEMENT_REPLICATE};
        return TRUE;
    }
    if ((guint)axis->kind >= G_N_ELEMENTS(splits) ||
        (axis->kind == REFIT_AXIS_SIZES && axis->sizes == NULL) ||
        (axis->kind == REFIT_AXIS_STRIDED && axis->chunks == 0)) {
        g_set_error(
            error, REFIT_ERROR, REFIT_ERROR_INVALID,
            "an axis of %u ranks has kind %d, which is unknown or lacks its sizes or chunks",
            axis->extent, (int)axis->kind);
        return FALSE;
    }
    *placement = (RefitPlacement){
        .kind = REFIT_PLACEMENT_SHARD,
        .dim = axis->dim,
        .split = splits[axis->kind],
        .order = axis->order,
        .n_sizes = axis->kind == REFIT_AXIS_SIZES ? axis->extent : 0,
        .sizes = axis->kind == REFIT_AXIS_SIZES ? axis->sizes : NULL,
        .chunks = axis->chunks,
    };
    return TRUE;
}

static RefitMesh *read_mesh(const RefitMeshDesc *mesh, RefitPlacement *placements, GError **error) {
    guint sizes[REFIT_MAX_AXES];
    guint64 n_ranks = 1;

    for (guint axis = 0; axis < mesh->n_axes; axis++) {
        sizes[axis] = mesh->axes[axis].extent;
        n_ranks *= sizes[axis];
        if (n_ranks == 0 || n_ranks > REFIT_TOPOLOGY_MAX_GPUS) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_MESH_SIZE,
                        "a mesh has %" G_GUINT64_FORMAT " ranks, not 1 to %u", n_ranks,
                        REFIT_TOPOLOGY_MAX_GPUS);
            return NULL;
        }
        if (!read_axis(&mesh->axes[axis], &placements[axis], error))
            return NULL;
    }
    if (mesh->ranks != NULL)
        return refit_mesh_new(mesh->n_axes, sizes, mesh->ranks, (guint)n_ranks, error);
    if (mesh->first_rank > REFIT_TOPOLOGY_MAX_GPUS - n_ranks) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "a mesh begins at rank %u, beyond %u",
                    mesh->first_rank, REFIT_TOPOLOGY_MAX_GPUS);
        return NULL;
    }
    g_autofree guint *ranks = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        ranks[i] = mesh->first_rank + i;
    return refit_mesh_new(mesh->n_axes, sizes, ranks, (guint)n_ranks, error);
}

RefitStatus refit_job_place(RefitJob *job, uint32_t tensor, RefitEnd side,
                            const RefitMeshDesc *desc) {
    RefitPlacement placements[REFIT_MAX_AXES];
    GError *error = NULL;
    RefitMesh *mesh;

    if (check_tensor(job, tensor, side) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (desc == NULL || desc->axes == NULL || desc->n_axes == 0 || desc->n_axes > REFIT_MAX_AXES)
        return refit_api_refuse(&job->message, "tensor %u: a mesh has 1 to %u axes", tensor,
                                REFIT_MAX_AXES);
    if (!refit_api_check_size(desc->size, sizeof *desc, "mesh", &error))
        return refit_api_fail(&job->message, error);
    RefitSharding *sharding = open_sharding(job, tensor, side);
    mesh = read_mesh(desc, placements, &error);
    if (mesh != NULL && !refit_sharding_add(sharding, mesh, placements, &error))
        g_assert(error != NULL);
    return keep_sharding(job, tensor, side, sharding, error);
}

/* The ranges of `dim`, as a list. */
static RefitIntervalList *read_ranges(guint dim, guint n_ranges, const RefitRangeDesc *ranges,
                                      GError **error) {
    g_autoptr(GArray) intervals = g_array_new(FALSE, FALSE, sizeof(RefitInterval));

    for (guint i = 0; i < n_ranges; i++) {
        const RefitInterval interval = {ranges[i].lo, ranges[i].hi, ranges[i].at};
        if (ranges[i].dim == dim)
            g_array_append_val(intervals, interval);
    }
    return refit_interval_list_new((const RefitInterval *)(const void *)intervals->data,
                                   intervals->len, error);
}

RefitStatus refit_job_place_ranges(RefitJob *job, uint32_t tensor, RefitEnd side, uint32_t rank,
                                   uint32_t n_ranges, const RefitRangeDesc *ranges) {
    g_auto(RefitRegion) region = {0};
    GError *error = NULL;

    if (check_tensor(job, tensor, side) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (n_ranges == 0 || ranges == NULL)
        return refit_api_refuse(&job->message, "tensor %u, rank %u: there are no ranges", tensor,
                                rank);
    for (guint i = 0; i < n_ranges; i++) {
        if (ranges[i].dim >= REFIT_MAX_DIMS)
            return refit_api_refuse(&job->message, "tensor %u, rank %u: dim %u is beyond %u",
                                    tensor, rank, ranges[i].dim, REFIT_MAX_DIMS - 1);
        region.n_dims = MAX(region.n_dims, ranges[i].dim + 1);
    }
    for (guint dim = 0; dim < region.n_dims && error == NULL; dim++)
        region.dims[dim] = read_ranges(dim, n_ranges, ranges, &error);
    RefitSharding *sharding = open_sharding(job, tensor, side);
    if (error == NULL && !refit_sharding_add_region(sharding, rank, &region, &error))
        g_assert(error != NULL);
    return keep_sharding(job, tensor, side, sharding, error);
}

RefitStatus refit_job_pad(RefitJob *job, uint32_t tensor, RefitEnd side, uint32_t dim,
                          uint64_t extent) {
    if (check_tensor(job, tensor, side) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (*placed_at(job, tensor, side) == NULL || dim >= REFIT_MAX_DIMS)
        return refit_api_refuse(&job->message,
                                "tensor %u: place it before padding, and pad a dim below %u",
                                tensor, REFIT_MAX_DIMS);
    refit_sharding_set_padded(*placed_at(job, tensor, side), dim, extent);
    return REFIT_OK;
}

RefitStatus refit_job_fail_rank(RefitJob *job, uint32_t rank) {
    if (check_open(job, "failed rank") != REFIT_OK)
        return REFIT_STATUS_INVALID;
    refit_manifest_fail_rank(job->manifest, rank);
    return REFIT_OK;
}
