/*
 * Endpoints of the C API: one rank's part of a job, carried out by the executor plugin.
 *
 * The problem: callers bring addresses, a stream and some way to reach the other ranks; the
 * executor wants a program, views of parameters and a table of functions. Method: views and program
 * are made when the endpoint opens; addresses are collected until prepare. Ranks that bring no
 * gather of their own meet over TCP. Cost: the rank's part of the plan.
 */

#include "gpu/executor/refit-host.h"
#include "gpu/rendezvous/refit-rendezvous.h"
#include "lib/refit-api-private.h"
#include "lib/refit-gpu-load.h"
#include "lib/refit-part.h"
#include "model/case/refit-values.h"

#include <string.h>

enum { MESSAGE_SIZE = 1024, TEXT_SIZE = 256, MAX_GATHERED = 512 };

struct _RefitEndpoint {
    char *message;
    RefitJob *job; /* borrowed */
    guint rank;
    RefitPart *part;
    guint64 *addresses[REFIT_N_SIDES]; /* by parameter; 0: not bound */
    RefitGatherFunc gather;            /* NULL: rendezvous */
    gpointer gather_data;
    RefitRendezvous *rendezvous;
    const RefitGpu *gpu;
    RefitGpuRank *self; /* NULL: opening failed */
    gboolean prepared, started;
    gboolean followed; /* since the run before: a stream, or none on purpose */
};

/* ---- how ranks meet ---- */

/* Of what each rank says by the caller's function, in `all`; FALSE naming the ranks that do not. */
static gboolean gather_all(const RefitEndpoint *endpoint, gconstpointer mine, gsize bytes,
                           gpointer all, double timeout_s, GError **error) {
    const guint n_ranks = endpoint->job->problem->n_ranks;
    g_autofree guint8 *came = g_new0(guint8, n_ranks);
    g_autofree guint8 *absent = g_new0(guint8, n_ranks);
    g_autofree char *names = NULL;
    char message[MESSAGE_SIZE] = "";

    if (endpoint->gather(endpoint->gather_data, mine, bytes, all, came, timeout_s, message,
                         sizeof message) == 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "gathering %" G_GSIZE_FORMAT " bytes: %s", bytes,
                    message[0] != '\0' ? message : "the caller's function failed");
        return FALSE;
    }
    for (guint r = 0; r < n_ranks; r++)
        absent[r] = came[r] == 0;
    if (memchr(absent, 1, n_ranks) == NULL)
        return TRUE;
    names = refit_ranks_to_string(absent, n_ranks, NULL);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                "of %u ranks, rank%s %s did not report within %.3g s", n_ranks,
                strpbrk(names, ",-a") != NULL ? "s" : "", names, timeout_s);
    return FALSE;
}

/* The caller's function brings all to all, so absent ranks are known everywhere. */
static gboolean gather_by_caller(gpointer user_data, gconstpointer mine, gsize bytes, gpointer all,
                                 guint8 *came, double timeout_s, GError **error) {
    const RefitEndpoint *endpoint = user_data;
    const guint n_ranks = endpoint->job->problem->n_ranks;
    g_autofree guint8 *unwanted = all == NULL ? g_malloc(n_ranks * bytes) : NULL;

    if (!gather_all(endpoint, mine, bytes, all != NULL ? all : unwanted, timeout_s, error))
        return FALSE;
    if (came != NULL)
        memset(came, 1, n_ranks);
    return TRUE;
}

/* In pieces that the caller's function takes. */
static gboolean broadcast_by_caller(gpointer user_data, gpointer data, gsize bytes,
                                    double timeout_s, GError **error) {
    const RefitEndpoint *endpoint = user_data;
    g_autofree guint8 *all = g_malloc(endpoint->job->problem->n_ranks * (gsize)MAX_GATHERED);
    guint8 *at = data;

    for (gsize done = 0, piece; done < bytes; done += piece) {
        piece = MIN(bytes - done, MAX_GATHERED);
        if (!gather_all(endpoint, at + done, piece, all, timeout_s, error))
            return FALSE;
        memcpy(at + done, all, piece);
    }
    return TRUE;
}

static gboolean gather_by_rendezvous(gpointer user_data, gconstpointer mine, gsize bytes,
                                     gpointer all, guint8 *came, double timeout_s, GError **error) {
    const RefitEndpoint *endpoint = user_data;

    return refit_rendezvous_collect(endpoint->rendezvous, "refit", mine, bytes, all, came,
                                    timeout_s, error);
}

static gboolean broadcast_by_rendezvous(gpointer user_data, gpointer data, gsize bytes,
                                        double timeout_s, GError **error) {
    const RefitEndpoint *endpoint = user_data;

    return refit_rendezvous_spread(endpoint->rendezvous, "refit", data, bytes, timeout_s, error);
}

static gboolean check_by_rendezvous(gpointer user_data, GError **error) {
    const RefitEndpoint *endpoint = user_data;

    return refit_rendezvous_check(endpoint->rendezvous, error);
}

static GError *fail_by_rendezvous(gpointer user_data, GError *mine) {
    const RefitEndpoint *endpoint = user_data;

    return refit_rendezvous_fail(endpoint->rendezvous, mine);
}

static gboolean meet(RefitEndpoint *endpoint, const RefitEndpointConfig *config, double timeout_s,
                     RefitGpuPeers *peers, GError **error) {
    RefitHost host;
    const RefitRendezvousOptions options = {
        .rank = config->rank,
        .world = endpoint->job->problem->n_ranks,
        .address = config->address,
        .port = config->port,
        .token = config->token,
        .timeout_s = timeout_s,
        .host = host.name,
    };

    refit_host_find(config->host, &host);
    if (config->gather != NULL) {
        *peers = (RefitGpuPeers){
            .gather = gather_by_caller, .broadcast = broadcast_by_caller, .user_data = endpoint};
        return TRUE;
    }
    if (config->address == NULL || config->token == NULL) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                            "ranks cannot meet: state a gather function, or an address, a port and "
                            "a token");
        return FALSE;
    }
    *peers = (RefitGpuPeers){
        .gather = gather_by_rendezvous,
        .broadcast = broadcast_by_rendezvous,
        .check = check_by_rendezvous,
        .fail = fail_by_rendezvous,
        .user_data = endpoint,
    };
    endpoint->rendezvous = refit_rendezvous_new(&options, NULL, error);
    return endpoint->rendezvous != NULL;
}

/* ---- before the executor takes over ---- */

/*
 * TRUE when no rank has failed by now; all learn of the lowest one that has, and why: a rank that
 * cannot go on would keep the others waiting. Takes ownership of `own`.
 */
static gboolean agree_by_caller(const RefitEndpoint *endpoint, GError *own, double timeout_s,
                                GError **error) {
    const guint n_ranks = endpoint->job->problem->n_ranks;
    const guint32 failed = own != NULL ? 1 + (guint32)own->code : 0;
    g_autofree guint32 *all = g_new0(guint32, n_ranks);
    g_autofree char *texts = NULL;
    char text[TEXT_SIZE] = "";
    guint first = 0;

    if (own != NULL)
        g_strlcpy(text, own->message, sizeof text);
    if (!gather_all(endpoint, &failed, sizeof failed, all, timeout_s, own != NULL ? NULL : error)) {
        if (own != NULL)
            g_propagate_error(error, own);
        return FALSE;
    }
    g_clear_error(&own);
    while (first < n_ranks && all[first] == 0)
        first++;
    if (first == n_ranks)
        return TRUE;
    texts = g_malloc0_n(n_ranks, sizeof text);
    if (!gather_all(endpoint, text, sizeof text, texts, timeout_s, NULL))
        g_strlcpy(texts + first * sizeof text, "it has failed, and has not said why", sizeof text);
    texts[(first + 1) * sizeof text - 1] = '\0';
    g_autofree char *valid = g_utf8_make_valid(texts + first * sizeof text, -1);
    g_set_error(error, REFIT_ERROR, (gint)all[first] - 1, "rank %u: %s", first, valid);
    return FALSE;
}

/* ---- open and close ---- */

RefitStatus refit_job_probe(RefitJob *job, const char *executor, uint32_t *n_devices_out) {
    GError *error = NULL;
    const RefitGpu *gpu = refit_gpu_load(executor, &error);

    if (gpu == NULL)
        return refit_api_fail(&job->message, error);
    if (n_devices_out != NULL)
        *n_devices_out = gpu->n_devices();
    return REFIT_OK;
}

static gboolean read_part(RefitEndpoint *endpoint, GError **error) {
    if (!refit_values_check(endpoint->job->refit_case, error))
        return FALSE;
    endpoint->part =
        refit_part_new(endpoint->job->refit_case, endpoint->job->schedule, endpoint->rank, error);
    for (guint side = 0; endpoint->part != NULL && side < REFIT_N_SIDES; side++)
        if (endpoint->part->views[side] != NULL)
            endpoint->addresses[side] = g_new0(guint64, endpoint->part->views[side]->n_parameters);
    return endpoint->part != NULL;
}

static gboolean open_rank(RefitEndpoint *endpoint, const RefitEndpointConfig *config,
                          GError **error) {
    const RefitCase *refit_case = endpoint->job->refit_case;
    const guint n_ranks = endpoint->job->problem->n_ranks;
    const double timeout_s = config->timeout_s > 0 ? config->timeout_s : 300;
    g_autofree guint *domains = g_new(guint, n_ranks), *nodes = g_new(guint, n_ranks);
    RefitGpuConfig gpu = {
        .rank = config->rank,
        .n_ranks = n_ranks,
        .device = config->device,
        .domains = domains,
        .nodes = nodes,
        .host = config->host,
        .timeout_s = timeout_s,
    };
    const RefitExecutorConfig executor = {
        .topology = refit_case->topology, .profile = refit_case->profile, .rank = &gpu};
    g_autoptr(GError) own = NULL;

    for (guint r = 0; r < n_ranks; r++) {
        domains[r] = refit_topology_domain_of(refit_case->topology, r);
        nodes[r] = refit_topology_node_of(refit_case->topology, r);
    }
    if (!meet(endpoint, config, timeout_s, &gpu.peers, error))
        return FALSE;
    endpoint->gpu = refit_gpu_load(config->executor, &own);
    if (endpoint->gpu != NULL && !read_part(endpoint, &own))
        g_assert(own != NULL);
    if (endpoint->rendezvous != NULL
            ? !refit_rendezvous_agree(endpoint->rendezvous, "executor", own, error)
            : !agree_by_caller(endpoint, g_steal_pointer(&own), timeout_s, error))
        return FALSE;
    g_assert(endpoint->gpu != NULL); /* or this rank would have said so */
    endpoint->self = endpoint->gpu->executor.open(&executor, error);
    return endpoint->self != NULL;
}

static gboolean check_config(const RefitJob *job, const RefitEndpointConfig *config,
                             GError **error) {
    if (job->plan == NULL) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                            "the job has no plan; call refit_job_plan() first");
        return FALSE;
    }
    if (!refit_api_check_size(config->size, sizeof *config, "endpoint", error))
        return FALSE;
    if (config->rank < job->problem->n_ranks)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "rank %u: the topology has %u GPUs, from 0 on", config->rank,
                job->problem->n_ranks);
    return FALSE;
}

RefitStatus refit_endpoint_open(RefitJob *job, const RefitEndpointConfig *config,
                                RefitEndpoint **endpoint_out) {
    RefitEndpoint *endpoint = g_new0(RefitEndpoint, 1);
    GError *error = NULL;

    *endpoint_out = endpoint;
    endpoint->job = job;
    endpoint->rank = config->rank;
    endpoint->gather = config->gather;
    endpoint->gather_data = config->gather_data;
    g_atomic_int_inc(&job->n_endpoints);
    if (!check_config(job, config, &error) || !open_rank(endpoint, config, &error))
        return refit_api_fail(&endpoint->message, error);
    return REFIT_OK;
}

void refit_endpoint_close(RefitEndpoint *endpoint) {
    if (endpoint == NULL)
        return;
    if (endpoint->self != NULL)
        endpoint->gpu->executor.close(endpoint->self);
    refit_rendezvous_free(endpoint->rendezvous);
    refit_part_free(endpoint->part);
    for (guint side = 0; side < REFIT_N_SIDES; side++)
        g_free(endpoint->addresses[side]);
    g_atomic_int_add(&endpoint->job->n_endpoints, -1);
    g_free(endpoint->message);
    g_free(endpoint);
}

const char *refit_endpoint_message(const RefitEndpoint *endpoint) {
    return endpoint->message != NULL ? endpoint->message : "";
}

const char *refit_endpoint_place_note(const RefitEndpoint *endpoint) {
    return endpoint->self != NULL ? endpoint->gpu->place_note(endpoint->self) : NULL;
}

/* ---- parameters ---- */

uint32_t refit_endpoint_n_parameters(const RefitEndpoint *endpoint, RefitEnd side) {
    if ((side != REFIT_SOURCE && side != REFIT_DESTINATION) || endpoint->part == NULL ||
        endpoint->part->views[side] == NULL)
        return 0;
    return endpoint->part->views[side]->n_parameters;
}

static const RefitParameter *find_parameter(RefitEndpoint *endpoint, RefitEnd side, guint index) {
    guint n = refit_endpoint_n_parameters(endpoint, side);

    if (index < n)
        return &endpoint->part->views[side]->parameters[index];
    (void)refit_api_refuse(&endpoint->message, "parameter %u: rank %u has %u on side %d, from 0 on",
                           index, endpoint->rank, n, (int)side);
    return NULL;
}

RefitStatus refit_endpoint_parameter(RefitEndpoint *endpoint, RefitEnd side, uint32_t index,
                                     RefitParameterInfo *info) {
    const RefitParameter *parameter = find_parameter(endpoint, side, index);
    GError *error = NULL;

    if (parameter == NULL)
        return REFIT_STATUS_INVALID;
    if (!refit_api_check_size(info->size, sizeof *info, "parameter", &error))
        return refit_api_fail(&endpoint->message, error);
    *info = (RefitParameterInfo){
        .size = info->size,
        .name = parameter->name,
        .dtype = refit_dtype_name(parameter->dtype),
        .n_dims = parameter->n_dims,
        .bytes = parameter->bytes,
    };
    for (guint dim = 0; dim < parameter->n_dims; dim++)
        info->shape[dim] = parameter->shape[dim];
    return REFIT_OK;
}

RefitStatus refit_endpoint_bind(RefitEndpoint *endpoint, RefitEnd side, uint32_t index,
                                void *address) {
    if (find_parameter(endpoint, side, index) == NULL)
        return REFIT_STATUS_INVALID;
    endpoint->addresses[side][index] = (guint64)(guintptr)address;
    return REFIT_OK;
}

/* ---- runs ---- */

static RefitStatus check_ready(RefitEndpoint *endpoint, const char *what, gboolean ready) {
    if (endpoint->self != NULL && ready)
        return REFIT_OK;
    return refit_api_refuse(&endpoint->message, "rank %u: %s", endpoint->rank,
                            endpoint->self == NULL ? "the endpoint is not open" : what);
}

static RefitStatus check_bound(RefitEndpoint *endpoint) {
    for (guint side = 0; side < REFIT_N_SIDES; side++) {
        const RefitRankViews *views = endpoint->part->views[side];
        for (guint i = 0; views != NULL && i < views->n_parameters; i++)
            if (endpoint->addresses[side][i] == 0 && views->parameters[i].bytes > 0)
                return refit_api_refuse(
                    &endpoint->message, "rank %u: %s parameter %u, %s, is not bound to memory",
                    endpoint->rank, side == REFIT_SIDE_SOURCE ? "source" : "destination", i,
                    views->parameters[i].name);
    }
    return REFIT_OK;
}

RefitStatus refit_endpoint_prepare(RefitEndpoint *endpoint) {
    RefitExecutorWork work = {.schedule = endpoint->job->schedule,
                              .source = endpoint->addresses[REFIT_SIDE_SOURCE],
                              .destination = endpoint->addresses[REFIT_SIDE_DESTINATION]};
    GError *error = NULL;

    if (check_ready(endpoint, "a run is in progress", !endpoint->started) != REFIT_OK ||
        check_bound(endpoint) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    work.program = endpoint->part->program;
    endpoint->prepared = endpoint->gpu->executor.prepare(endpoint->self, &work, &error);
    return endpoint->prepared ? REFIT_OK : refit_api_fail(&endpoint->message, error);
}

RefitStatus refit_endpoint_follow(RefitEndpoint *endpoint, void *stream) {
    GError *error = NULL;

    if (check_ready(endpoint, "a run is in progress", !endpoint->started) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (stream != NULL && !endpoint->gpu->follow(endpoint->self, stream, &error))
        return refit_api_fail(&endpoint->message, error);
    endpoint->followed = TRUE;
    return REFIT_OK;
}

RefitStatus refit_endpoint_start(RefitEndpoint *endpoint, void *stream) {
    GError *error = NULL;

    if (check_ready(endpoint, "prepare it, and wait for the run before, first",
                    endpoint->prepared && !endpoint->started) != REFIT_OK ||
        check_ready(endpoint,
                    "state the stream of the engine that uses the destination parameters, or "
                    "streams by refit_endpoint_follow()",
                    stream != NULL || endpoint->followed ||
                        endpoint->part->views[REFIT_SIDE_DESTINATION] == NULL) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    endpoint->followed = FALSE;
    endpoint->started = endpoint->gpu->start(endpoint->self, stream, &error);
    return endpoint->started ? REFIT_OK : refit_api_fail(&endpoint->message, error);
}

RefitStatus refit_endpoint_wait(RefitEndpoint *endpoint, RefitMetrics *metrics) {
    GError *error = NULL;
    RefitGpuResult result;

    if (check_ready(endpoint, "no run was started", endpoint->started) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (metrics != NULL && !refit_api_check_size(metrics->size, sizeof *metrics, "metrics", &error))
        return refit_api_fail(&endpoint->message, error);
    endpoint->started = FALSE;
    if (!endpoint->gpu->wait(endpoint->self, NULL, NULL, &result, &error))
        return refit_api_fail(&endpoint->message, error);
    if (metrics != NULL)
        *metrics = (RefitMetrics){
            .size = metrics->size,
            .version = result.version,
            .duration_s = result.duration_s,
            .agreed_s = result.agreed_s,
            .network_in = result.in[REFIT_LINK_NETWORK],
            .network_out = result.out[REFIT_LINK_NETWORK],
            .nvlink_in = result.in[REFIT_LINK_NVLINK],
            .nvlink_out = result.out[REFIT_LINK_NVLINK],
            .local_bytes = result.in[REFIT_LINK_LOCAL],
            .n_groups = result.n_groups,
            .n_launches = result.n_launches,
        };
    return REFIT_OK;
}

RefitStatus refit_endpoint_run(RefitEndpoint *endpoint, void *stream, RefitMetrics *metrics) {
    RefitStatus status = refit_endpoint_start(endpoint, stream);

    return status == REFIT_OK ? refit_endpoint_wait(endpoint, metrics) : status;
}

void refit_endpoint_abort(RefitEndpoint *endpoint) {
    if (endpoint->self != NULL)
        endpoint->gpu->abort(endpoint->self);
}

RefitVersionState refit_endpoint_serves(const RefitEndpoint *endpoint) {
    if (endpoint->self == NULL)
        return REFIT_VERSION_OLD;
    switch (endpoint->gpu->serves(endpoint->self)) {
    case REFIT_SERVES_OLD:
        return REFIT_VERSION_OLD;
    case REFIT_SERVES_NEW:
        return REFIT_VERSION_NEW;
    case REFIT_SERVES_NONE:
        break;
    }
    return REFIT_VERSION_NONE;
}

uint64_t refit_endpoint_version(const RefitEndpoint *endpoint) {
    return endpoint->self != NULL ? endpoint->gpu->version(endpoint->self) : 0;
}

/* ---- memory ---- */

RefitStatus refit_endpoint_alloc(RefitEndpoint *endpoint, uint64_t bytes, void **address_out) {
    GError *error = NULL;
    guint64 address;

    if (check_ready(endpoint, "a run is in progress", !endpoint->started) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    address = endpoint->gpu->memory_alloc(endpoint->self, bytes, &error);
    if (address == 0)
        return refit_api_fail(&endpoint->message, error);
    *address_out = (void *)(guintptr)address;
    return REFIT_OK;
}

void refit_endpoint_free(RefitEndpoint *endpoint, void *address) {
    if (address != NULL && endpoint->self != NULL)
        endpoint->gpu->memory_free(endpoint->self, (guint64)(guintptr)address);
}

RefitStatus refit_endpoint_upload(RefitEndpoint *endpoint, void *address, const void *from,
                                  uint64_t bytes) {
    GError *error = NULL;

    if (check_ready(endpoint, "a run is in progress", !endpoint->started) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (!endpoint->gpu->memory_upload(endpoint->self, (guint64)(guintptr)address, from, bytes,
                                      &error))
        return refit_api_fail(&endpoint->message, error);
    return REFIT_OK;
}

RefitStatus refit_endpoint_download(RefitEndpoint *endpoint, void *to, void *address,
                                    uint64_t bytes) {
    GError *error = NULL;

    if (check_ready(endpoint, "a run is in progress", !endpoint->started) != REFIT_OK)
        return REFIT_STATUS_INVALID;
    if (!endpoint->gpu->memory_download(endpoint->self, to, (guint64)(guintptr)address, bytes,
                                        &error))
        return refit_api_fail(&endpoint->message, error);
    return REFIT_OK;
}
