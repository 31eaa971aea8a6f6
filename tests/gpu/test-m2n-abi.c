/*
 * A program written for NCCL M2N: the cases of a public suite (data/m2n-cases.tsv), each at the
 * smallest number of ranks that it has, moved through nccl_m2n.h on the CPU stand-in and compared
 * byte for byte with what meshes and placements say. One by one and as groups, ranks as threads and
 * as processes, in one NVLink domain and in several; and the cases that must be refused. Shapes
 * are shortened where that keeps the cuts, to keep the suite fast.
 */

#include "m2n-rows.h"
#include "m2n-tensor.h"

#include <string.h>

enum { MAX_ELEMENTS = 12000, MAX_RANKS = 256 };

typedef struct {
    guint number, world;
    gboolean must_work;
    Tensor tensor;
} Case;

static GArray *cases; /* of Case: each at its smallest number of ranks */

/* What a child is about, as its body takes no arguments. */
static struct {
    int world;
    RanksAs as;
    gboolean grouped;
} chosen;

/* ---- the table ---- */

static TensorSide side_of(const M2nSide *side) {
    TensorSide result = {.first = (int)side->first, .n_axes = NCCL_RESHARD_MAX_MESH_DIMS};

    g_assert_cmpuint(G_N_ELEMENTS(side->sizes), ==, NCCL_RESHARD_MAX_MESH_DIMS);
    for (guint axis = 0; axis < G_N_ELEMENTS(side->sizes); axis++) {
        result.axes[axis] = (int)side->sizes[axis];
        result.places[axis] = side->shard_dims[axis] < REFIT_MAX_DIMS
                                  ? NCCL_RESHARD_SHARD((int)side->shard_dims[axis])
                                  : NCCL_RESHARD_REPLICATE;
    }
    return result;
}

static size_t n_cuts(const TensorSide *side, int dim) {
    size_t n = 1;

    for (int axis = 0; axis < side->n_axes; axis++)
        n *= side->places[axis] == dim ? (size_t)side->axes[axis] : 1;
    return n;
}

static size_t n_elements(const Tensor *tensor) {
    size_t n = 1;

    for (int dim = 0; dim < tensor->n_dims; dim++)
        n *= tensor->shape[dim];
    return n;
}

/* Halves dims, longest first, as long as both sides cut them evenly. */
static void shorten(Tensor *tensor) {
    gboolean shorter = TRUE;

    while (n_elements(tensor) > MAX_ELEMENTS && shorter) {
        int longest = -1;
        for (int dim = 0; dim < tensor->n_dims; dim++) {
            size_t half = tensor->shape[dim] / 2;
            if (tensor->shape[dim] % 2 == 0 && half % n_cuts(&tensor->source, dim) == 0 &&
                half % n_cuts(&tensor->destination, dim) == 0 &&
                (longest < 0 || tensor->shape[dim] > tensor->shape[longest]))
                longest = dim;
        }
        shorter = longest >= 0;
        if (shorter)
            tensor->shape[longest] /= 2;
    }
}

static void add_case(const M2nRow *row) {
    static const ncclDataType_t dtypes[] = {[1] = ncclUint8, [2] = ncclBfloat16, [4] = ncclFloat32};
    Case added = {.number = row->number,
                  .world = row->world,
                  .must_work = row->must_work,
                  .tensor = {.n_dims = (int)row->n_dims,
                             .element = row->element_bytes,
                             .dtype = dtypes[row->element_bytes],
                             .salt = row->number,
                             .source = side_of(&row->source),
                             .destination = side_of(&row->destination)}};

    for (guint dim = 0; dim < row->n_dims; dim++)
        added.tensor.shape[dim] = row->shape[dim];
    for (guint i = 0; i < cases->len; i++) {
        Case *known = &g_array_index(cases, Case, i);
        if (known->number == added.number) {
            if (added.world < known->world)
                *known = added;
            return;
        }
    }
    g_array_append_val(cases, added);
}

static void read_cases(void) {
    g_autoptr(GArray) rows = m2n_rows_read();

    cases = g_array_new(FALSE, FALSE, sizeof(Case));
    for (guint i = 0; i < rows->len; i++)
        add_case(&g_array_index(rows, M2nRow, i));
    for (guint i = 0; i < cases->len; i++)
        shorten(&g_array_index(cases, Case, i).tensor);
}

static gboolean is_chosen(const Case *row) {
    return (int)row->world == chosen.world;
}

/* ---- bodies ---- */

#define M2N(call)                                                                                  \
    do {                                                                                           \
        if ((call) != ncclSuccess) {                                                               \
            check_failed(__FILE__, __LINE__, ncclM2nGetLastError());                               \
        }                                                                                          \
    } while (0)

static void move_one_by_one(Rank *rank, ncclM2nHandle_t handle) {
    for (guint i = 0; i < cases->len; i++) {
        const Case *row = &g_array_index(cases, Case, i);
        TensorOnRank tensor;
        if (!is_chosen(row) || !row->must_work)
            continue;
        tensor_open(&tensor, &row->tensor, rank->rank);
        if (row->number % 2 == 0)
            M2N(ncclReshard(handle, rank->comm, &tensor.sides[0], &tensor.sides[1], rank->stream));
        else
            M2N(ncclReshardWithWindow(handle, rank->comm, NULL, &tensor.sides[0], &tensor.sides[1],
                                      rank->stream));
        tensor_check(&tensor, &row->tensor);
        tensor_close(&tensor);
    }
}

static void move_as_group(Rank *rank, ncclM2nHandle_t handle) {
    g_autofree TensorOnRank *tensors = g_new0(TensorOnRank, cases->len);

    M2N(ncclM2nGroupStart());
    for (guint i = 0; i < cases->len; i++) {
        const Case *row = &g_array_index(cases, Case, i);
        if (!is_chosen(row) || !row->must_work)
            continue;
        tensor_open(&tensors[i], &row->tensor, rank->rank);
        M2N(ncclReshard(handle, rank->comm, &tensors[i].sides[0], &tensors[i].sides[1],
                        rank->stream));
    }
    M2N(ncclM2nGroupEnd());
    for (guint i = 0; i < cases->len; i++) {
        tensor_check(&tensors[i], &g_array_index(cases, Case, i).tensor);
        tensor_close(&tensors[i]);
    }
}

static void rank_moves(Rank *rank) {
    ncclM2nConfig_t config = NCCL_M2N_CONFIG_INITIALIZER;
    ncclM2nHandle_t handle;

    config.maxCta = 8;
    M2N(ncclM2nInit(&handle, &config));
    if (chosen.grouped)
        move_as_group(rank, handle);
    else
        move_one_by_one(rank, handle);
    M2N(ncclM2nFinalize(handle));
}

static void child_moves(void) {
    ranks_run(chosen.world, chosen.as, rank_moves);
}

/* As many ranks as devices, in domains of `domain`. */
static void check_world(int world, int domain, RanksAs as, gboolean grouped) {
    g_autofree char *devices = g_strdup_printf("REFIT_STANDIN_DEVICES=%d", world);
    g_autofree char *domains = g_strdup_printf("REFIT_DOMAIN_SIZE=%d", domain);
    const char *const environment[] = {devices, domains, "REFIT_TIMEOUT_S=60", NULL};

    chosen.world = world;
    chosen.as = as;
    chosen.grouped = grouped;
    child_passes(child_moves, environment);
}

static void test_table(void) {
    guint n_work = 0, by_world[MAX_RANKS + 1] = {0};

    for (guint i = 0; i < cases->len; i++) {
        const Case *row = &g_array_index(cases, Case, i);
        g_assert_cmpuint(row->world, <=, MAX_RANKS);
        n_work += row->must_work ? 1 : 0;
        by_world[row->world]++;
    }
    g_assert_cmpuint(cases->len, ==, 205);
    g_assert_cmpuint(n_work, ==, 203);
    g_assert_cmpuint(by_world[2] + by_world[4] + by_world[8] + by_world[256], ==, 205);
}

static void test_two_ranks(void) {
    check_world(2, 2, RANKS_AS_THREADS, FALSE);
}

static void test_four_ranks(void) {
    check_world(4, 4, RANKS_AS_THREADS, FALSE);
}

static void test_eight_ranks(void) {
    check_world(8, 8, RANKS_AS_THREADS, FALSE);
}

static void test_most_ranks(void) {
#if defined(__SANITIZE_THREAD__)
    g_test_skip("256 ranks take minutes under ThreadSanitizer");
#else
    check_world(256, 8, RANKS_AS_THREADS, FALSE);
#endif
}

static void test_network(void) {
    check_world(8, 2, RANKS_AS_THREADS, TRUE);
}

static void test_odd_domains(void) {
    check_world(8, 3, RANKS_AS_THREADS, TRUE);
}

static void test_group(void) {
    check_world(4, 4, RANKS_AS_THREADS, TRUE);
}

static void test_processes(void) {
    check_world(4, 1, RANKS_AS_PROCESSES, FALSE);
}

/* ---- refusal ---- */

static void rank_captures(Rank *rank) {
    cudaGraph_t graph;

    for (guint i = 0; i < cases->len; i++) {
        const Case *row = &g_array_index(cases, Case, i);
        TensorOnRank tensor;
        if (row->must_work)
            continue;
        tensor_open(&tensor, &row->tensor, rank->rank);
        CUDA(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeGlobal));
        CHECK(ncclReshard(NULL, rank->comm, &tensor.sides[0], &tensor.sides[1], rank->stream) ==
              ncclInvalidUsage);
        CHECK(strstr(ncclM2nGetLastError(), "graph") != NULL);
        CUDA(cudaStreamEndCapture(rank->stream, &graph));
        M2N(ncclReshard(NULL, rank->comm, &tensor.sides[0], &tensor.sides[1], rank->stream));
        tensor_check(&tensor, &row->tensor);
        tensor_close(&tensor);
    }
    M2N(ncclM2nFinalize(NULL));
}

static void child_captures(void) {
    ranks_run(4, RANKS_AS_PROCESSES, rank_captures);
}

static void test_capture(void) {
    child_passes(child_captures, NULL);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    read_cases();
    g_test_add_func("/m2n-abi/the-table-has-205-cases", test_table);
    g_test_add_func("/m2n-abi/cases-of-two-ranks", test_two_ranks);
    g_test_add_func("/m2n-abi/cases-of-four-ranks", test_four_ranks);
    g_test_add_func("/m2n-abi/cases-of-eight-ranks", test_eight_ranks);
    g_test_add_func("/m2n-abi/the-case-of-256-ranks", test_most_ranks);
    g_test_add_func("/m2n-abi/cases-over-a-network-as-one-group", test_network);
    g_test_add_func("/m2n-abi/cases-in-domains-that-do-not-divide-the-ranks", test_odd_domains);
    g_test_add_func("/m2n-abi/cases-as-one-group", test_group);
    g_test_add_func("/m2n-abi/cases-of-processes", test_processes);
    g_test_add_func("/m2n-abi/a-stream-that-is-captured-is-refused", test_capture);
    return g_test_run();
}
