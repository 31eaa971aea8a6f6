/*
 * Where ranks are, against where the topology says they are.
 *
 * The problem: a plan counts on nodes and NVLink domains that somebody has declared; ranks that are
 * numbered otherwise, or a domain that is none, would be slow, or measured as what they are not.
 * Method: when it opens, each rank says its host, its GPU, which GPUs of its process that one
 * cannot reach, and its NVLink fabric; rank 0 compares. What no machine can say is noted, not
 * refused. Cost: 200 bytes from each rank, once; a pass over all of them for each question.
 */

#include "gpu/executor/refit-gpu-private.h"

#include "gpu/executor/refit-host.h"

#include <string.h>

/* ---- what a rank says ---- */

static guint32 number_of(const char *gpu) {
    return g_str_hash(gpu);
}

static gboolean read_bus_id(int device, char *text, gsize size, GError **error) {
    if (!REFIT_GPU_CUDA(cudaDeviceGetPCIBusId(text, (int)size, device), error))
        return FALSE;
    for (char *c = text; *c != '\0'; c++)
        *c = g_ascii_tolower(*c);
    return TRUE;
}

/* Those that this process sees, as far as there is room. */
static gboolean read_unreachable(int device, RefitGpuPlace *place, GError **error) {
    int n = 0;

    if (!REFIT_GPU_CUDA(cudaGetDeviceCount(&n), error))
        return FALSE;
    for (int other = 0; other < n && place->n_unreachable < REFIT_GPU_UNREACHABLE; other++) {
        char text[REFIT_GPU_NAME];
        int can = 1;

        if (other == device)
            continue;
        if (!REFIT_GPU_CUDA(cudaDeviceCanAccessPeer(&can, device, other), error))
            return FALSE;
        if (can != 0)
            continue;
        if (!read_bus_id(other, text, sizeof text, error))
            return FALSE;
        place->unreachable[place->n_unreachable++] = number_of(text);
    }
    return TRUE;
}

void refit_gpu_place_host(const char *stated, RefitGpuPlace *place) {
    RefitHost host;

    refit_host_find(stated, &host);
    memset(place, 0, sizeof *place); /* padding too: it is sent */
    place->host = host.id;
    G_STATIC_ASSERT(sizeof place->host_name == sizeof host.name);
    memcpy(place->host_name, host.name, sizeof host.name);
}

gboolean refit_gpu_place_device(int device, const char *stated, RefitGpuPlace *place,
                                GError **error) {
    if (stated != NULL) {
        g_strlcpy(place->gpu, stated, sizeof place->gpu);
        return TRUE;
    }
    if (!read_bus_id(device, place->gpu, sizeof place->gpu, error) ||
        !read_unreachable(device, place, error))
        return FALSE;
    refit_gpu_fabric_find(place);
    return TRUE;
}

/* ---- names ---- */

void refit_gpu_places_heard(RefitGpuRank *self) {
    const RefitGpuPlace *first = self->places;

    self->several_hosts = FALSE;
    for (guint r = 0; r < self->n_ranks; r++) { /* as they came */
        self->places[r].host_name[REFIT_GPU_HOST_NAME - 1] = '\0';
        self->places[r].gpu[REFIT_GPU_NAME - 1] = '\0';
    }
    for (guint r = 1; r < self->n_ranks; r++)
        self->several_hosts |= self->places[r].host_name[0] != '\0' &&
                               first->host_name[0] != '\0' && self->places[r].host != first->host;
}

const char *refit_gpu_host_of(const RefitGpuRank *self, guint rank) {
    return self->places != NULL && self->several_hosts && rank < self->n_ranks &&
                   self->places[rank].host_name[0] != '\0'
               ? self->places[rank].host_name
               : NULL;
}

/* ---- checks ---- */

static guint hash_gpu(gconstpointer place) {
    return (guint)((const RefitGpuPlace *)place)->host ^
           number_of(((const RefitGpuPlace *)place)->gpu);
}

static gboolean equal_gpus(gconstpointer a, gconstpointer b) {
    const RefitGpuPlace *x = a, *y = b;

    return x->host == y->host && g_str_equal(x->gpu, y->gpu);
}

static gboolean check_devices(const RefitGpuRank *self, GError **error) {
    g_autoptr(GHashTable) seen = g_hash_table_new(hash_gpu, equal_gpus);

    for (guint r = 0; r < self->n_ranks; r++) {
        RefitGpuPlace *place = &self->places[r];
        const RefitGpuPlace *other = g_hash_table_lookup(seen, place);

        if (other != NULL) {
            g_set_error(
                error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "ranks %u and %u are both on GPU %s of host %s, and each rank needs one of its "
                "own: give ranks of one host different local ranks, or let each process see "
                "another GPU (CUDA_VISIBLE_DEVICES)",
                (guint)(other - self->places), r, place->gpu, place->host_name);
            return FALSE;
        }
        g_hash_table_add(seen, place);
    }
    return TRUE;
}

/* How ranks lie on hosts. */
typedef struct {
    guint n_hosts, least, most; /* ranks of a host */
    gboolean in_turn;           /* ranks of a host follow each other */
} Spread;

static Spread find_spread(const RefitGpuRank *self) {
    g_autoptr(GHashTable) counts = g_hash_table_new(g_int64_hash, g_int64_equal);
    Spread spread = {.least = G_MAXUINT, .in_turn = TRUE};
    GHashTableIter iterator;
    gpointer count;

    for (guint r = 0; r < self->n_ranks; r++) {
        gpointer host = &self->places[r].host;
        guint n = GPOINTER_TO_UINT(g_hash_table_lookup(counts, host));

        spread.in_turn &= n == 0 || self->places[r - 1].host == self->places[r].host;
        g_hash_table_insert(counts, host, GUINT_TO_POINTER(n + 1));
    }
    spread.n_hosts = g_hash_table_size(counts);
    g_hash_table_iter_init(&iterator, counts);
    while (g_hash_table_iter_next(&iterator, NULL, &count)) {
        spread.least = MIN(spread.least, GPOINTER_TO_UINT(count));
        spread.most = MAX(spread.most, GPOINTER_TO_UINT(count));
    }
    return spread;
}

/* What was found, and how to go on from there. `per_node`: ranks of a declared node. */
static char *advise(const RefitGpuRank *self, guint per_node) {
    const Spread spread = find_spread(self);
    GString *text = g_string_new(NULL);

    if (spread.least == spread.most)
        g_string_append_printf(text, "found: %u host%s with %u ranks%s%s", spread.n_hosts,
                               spread.n_hosts == 1 ? "" : "s", spread.least,
                               spread.n_hosts == 1 ? "" : " each",
                               spread.in_turn ? "" : ", numbered in turns");
    else
        g_string_append_printf(text, "found: %u hosts with %u to %u ranks", spread.n_hosts,
                               spread.least, spread.most);
    g_string_append_printf(text,
                           "; start %u ranks on each host and number them host by host, so "
                           "that a rank is node x %u + local rank (srun --distribution=block, "
                           "mpirun --map-by slot)",
                           per_node, per_node);
    if (spread.least == spread.most && spread.in_turn)
        g_string_append_printf(text, ", or state the topology that is there (node:%u gpu:%u)",
                               spread.n_hosts, spread.least);
    g_string_append(text, "; hosts are told apart by NCCL_HOSTID, else by host name and boot");
    return g_string_free(text, FALSE);
}

static guint ranks_of_first_node(const RefitGpuRank *self) {
    guint n = 0;

    for (guint r = 0; r < self->n_ranks; r++)
        n += self->nodes[r] == self->nodes[0];
    return n;
}

static gboolean check_nodes(const RefitGpuRank *self, GError **error) {
    g_autoptr(GHashTable) of_node = g_hash_table_new(NULL, NULL); /* 1 + first rank */
    g_autoptr(GHashTable) of_host = g_hash_table_new(g_int64_hash, g_int64_equal);

    for (guint r = 0; self->nodes != NULL && r < self->n_ranks; r++) {
        gpointer node = GUINT_TO_POINTER(self->nodes[r]);
        guint same_node = GPOINTER_TO_UINT(g_hash_table_lookup(of_node, node));
        guint same_host = GPOINTER_TO_UINT(g_hash_table_lookup(of_host, &self->places[r].host));
        g_autofree char *advice = NULL;

        if (same_node > 0 && self->places[same_node - 1].host != self->places[r].host) {
            advice = advise(self, ranks_of_first_node(self));
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "ranks %u and %u are declared as GPUs of one node, %u, but are on hosts %s "
                        "and %s; %s",
                        same_node - 1, r, self->nodes[r], self->places[same_node - 1].host_name,
                        self->places[r].host_name, advice);
            return FALSE;
        }
        if (same_host > 0 && self->nodes[same_host - 1] != self->nodes[r]) {
            advice = advise(self, ranks_of_first_node(self));
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "ranks %u and %u are declared as GPUs of nodes %u and %u, but are both on "
                        "host %s; %s",
                        same_host - 1, r, self->nodes[same_host - 1], self->nodes[r],
                        self->places[r].host_name, advice);
            return FALSE;
        }
        if (same_node == 0)
            g_hash_table_insert(of_node, node, GUINT_TO_POINTER(r + 1));
        if (same_host == 0)
            g_hash_table_insert(of_host, &self->places[r].host, GUINT_TO_POINTER(r + 1));
    }
    return TRUE;
}

/* The rank of that GPU on the host and in the NVLink domain of `rank`; n_ranks: none. */
static guint find_neighbour(const RefitGpuRank *self, GHashTable *by_number, guint rank,
                            guint32 number) {
    const GArray *ranks = g_hash_table_lookup(by_number, GUINT_TO_POINTER(number));

    for (guint i = 0; ranks != NULL && i < ranks->len; i++) {
        guint other = g_array_index(ranks, guint, i);

        if (self->places[other].host == self->places[rank].host &&
            self->domains[other] == self->domains[rank])
            return other;
    }
    return self->n_ranks;
}

static void free_ranks(gpointer ranks) {
    g_array_unref(ranks);
}

static gboolean check_peers(const RefitGpuRank *self, GError **error) {
    g_autoptr(GHashTable) by_number = g_hash_table_new_full(NULL, NULL, NULL, free_ranks);
    guint n_unreachable = 0;

    for (guint r = 0; r < self->n_ranks; r++)
        n_unreachable += self->places[r].n_unreachable;
    for (guint r = 0; n_unreachable > 0 && r < self->n_ranks; r++) {
        gpointer number = GUINT_TO_POINTER(number_of(self->places[r].gpu));
        GArray *ranks = g_hash_table_lookup(by_number, number);

        if (ranks == NULL) {
            ranks = g_array_new(FALSE, FALSE, sizeof(guint));
            g_hash_table_insert(by_number, number, ranks);
        }
        g_array_append_val(ranks, r);
    }
    for (guint r = 0; n_unreachable > 0 && r < self->n_ranks; r++) {
        const RefitGpuPlace *place = &self->places[r];

        for (guint i = 0; i < MIN(place->n_unreachable, REFIT_GPU_UNREACHABLE); i++) {
            guint other = find_neighbour(self, by_number, r, place->unreachable[i]);

            if (other == self->n_ranks)
                continue;
            g_set_error(
                error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "ranks %u and %u are declared in one NVLink domain, %u, but GPU %s of host %s has "
                "no peer access to GPU %s (cudaDeviceCanAccessPeer): see nvidia-smi topo -p2p r, "
                "and what keeps GPUs apart (IOMMU, virtual machines); where they have no NVLink, "
                "state a topology with gpu:1 and give each rank an NCCL_HOSTID of its own, so "
                "that NCCL takes the network",
                r, other, self->domains[r], place->gpu, place->host_name, self->places[other].gpu);
            return FALSE;
        }
    }
    return TRUE;
}

static char *describe_fabric(const RefitGpuPlace *place) {
    GString *text = g_string_new(NULL);

    if (place->fabric != REFIT_GPU_FABRIC_KNOWN) {
        g_string_append(text,
                        place->fabric == REFIT_GPU_FABRIC_NONE ? "none" : "one that is not known");
        return g_string_free(text, FALSE);
    }
    g_string_append(text, "cluster ");
    for (guint i = 0; i < sizeof place->cluster; i++)
        g_string_append_printf(text, "%02x", place->cluster[i]);
    g_string_append_printf(text, " clique %u", place->clique);
    return g_string_free(text, FALSE);
}

static gboolean one_fabric(const RefitGpuPlace *a, const RefitGpuPlace *b) {
    return a->clique == b->clique && memcmp(a->cluster, b->cluster, sizeof a->cluster) == 0;
}

/* An NVLink domain that spans hosts, by two ranks of different ones; `other` 0: it spans none. */
typedef struct {
    guint first, other;
    guint known; /* 1 + first rank whose fabric is known */
} Domain;

static gboolean refuse_fabric(const RefitGpuRank *self, guint a, guint b, GError **error) {
    g_autofree char *of_a = describe_fabric(&self->places[a]);
    g_autofree char *of_b = describe_fabric(&self->places[b]);

    g_set_error(
        error, REFIT_ERROR, REFIT_ERROR_INVALID,
        "ranks %u and %u are declared in one NVLink domain, %u, that spans hosts, but no NVLink "
        "fabric joins their GPUs: %s of host %s has %s, %s of host %s has %s; state a topology "
        "whose domains are as large as what NVLink joins (domain:1 where hosts have NVLink of "
        "their own), or see nvidia-smi -q, Fabric, and the fabric manager",
        a, b, self->domains[a], self->places[a].gpu, self->places[a].host_name, of_a,
        self->places[b].gpu, self->places[b].host_name, of_b);
    return FALSE;
}

static GHashTable *find_domains(const RefitGpuRank *self) {
    GHashTable *domains = g_hash_table_new_full(NULL, NULL, NULL, g_free);

    for (guint r = 0; r < self->n_ranks; r++) {
        gpointer number = GUINT_TO_POINTER(self->domains[r]);
        Domain *domain = g_hash_table_lookup(domains, number);

        if (domain == NULL) {
            domain = g_new0(Domain, 1);
            domain->first = r;
            g_hash_table_insert(domains, number, domain);
        } else if (domain->other == 0 && self->places[r].host != self->places[domain->first].host) {
            domain->other = r;
        }
    }
    return domains;
}

static char *note_unknown(const RefitGpuRank *self, const Domain *domain, guint rank) {
    return g_strdup_printf(
        "NVLink domain %u spans hosts %s and %s; whether NVLink joins them is not "
        "known, as the management library of the driver (NVML) does not say on "
        "host %s",
        self->domains[rank], self->places[domain->first].host_name,
        self->places[domain->other].host_name, self->places[rank].host_name);
}

static gboolean check_fabrics(const RefitGpuRank *self, char **note_out, GError **error) {
    g_autoptr(GHashTable) domains = find_domains(self);

    for (guint r = 0; r < self->n_ranks; r++) {
        const RefitGpuPlace *place = &self->places[r];
        Domain *domain = g_hash_table_lookup(domains, GUINT_TO_POINTER(self->domains[r]));

        if (domain->other == 0)
            continue;
        if (place->fabric == REFIT_GPU_FABRIC_NONE)
            return refuse_fabric(self, r,
                                 place->host == self->places[domain->first].host ? domain->other
                                                                                 : domain->first,
                                 error);
        if (place->fabric == REFIT_GPU_FABRIC_UNKNOWN) {
            if (*note_out == NULL)
                *note_out = note_unknown(self, domain, r);
        } else if (domain->known == 0) {
            domain->known = r + 1;
        } else if (!one_fabric(&self->places[domain->known - 1], place)) {
            return refuse_fabric(self, domain->known - 1, r, error);
        }
    }
    return TRUE;
}

gboolean refit_gpu_places_check(const RefitGpuRank *self, char **note_out, GError **error) {
    return check_devices(self, error) && check_nodes(self, error) && check_peers(self, error) &&
           check_fabrics(self, note_out, error);
}
