/*
 * A program written for NCCL M2N: the cases of a public suite (data/m2n-cases.tsv), each at the
 * smallest number of ranks that it has, moved through nccl_m2n.h on the CPU stand-in and compared
 * byte for byte with what meshes and placements say. One by one and as groups, ranks as threads and
 * as processes, in one NVLink domain and in several; and the cases that must be refused. Shapes
 * are shortened where that keeps the cuts, to keep the suite fast.
 */

#include "m2n-tensor.h"

#include <string.h>

enum { N_COLUMNS = 14, MAX_ELEMENTS = 12000, MAX_RANKS = 256 };

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

static guint read_uint(const char *text) {
    guint64 number;

    g_assert_true(g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT32, &number, NULL));
    return (guint)number;
}

static void read_side(char **columns, TensorSide *side) {
    g_auto(GStrv) ranks = g_strsplit(columns[0], "-", -1);
    g_auto(GStrv) sizes = g_strsplit(columns[1], "x", -1);
    g_auto(GStrv) places = g_strsplit(columns[2], ",", -1);

    side->first = (int)read_uint(ranks[0]);
    for (; sizes[side->n_axes] != NULL; side->n_axes++) {
        const char *place = places[side->n_axes];
        side->axes[side->n_axes] = (int)read_uint(sizes[side->n_axes]);
        side->places[side->n_axes] = place[0] == 'R'
                                         ? NCCL_RESHARD_REPLICATE
                                         : NCCL_RESHARD_SHARD((int)read_uint(place + 1));
    }
    g_assert_cmpint(side->n_axes, ==, NCCL_RESHARD_MAX_MESH_DIMS);
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

static void read_case(const char *line) {
    static const ncclDataType_t dtypes[] = {[1] = ncclUint8, [2] = ncclBfloat16, [4] = ncclFloat32};
    g_auto(GStrv) columns = g_strsplit(line, "\t", -1);
    Case row = {0};

    g_assert_cmpuint(g_strv_length(columns), ==, N_COLUMNS);
    g_auto(GStrv) shape = g_strsplit(columns[3], "x", -1);
    row.number = read_uint(columns[0]);
    row.world = read_uint(columns[4]);
    row.must_work = g_str_equal(columns[13], "ok");
    row.tensor.element = read_uint(columns[2]);
    row.tensor.dtype = dtypes[row.tensor.element];
    row.tensor.salt = row.number;
    for (; shape[row.tensor.n_dims] != NULL; row.tensor.n_dims++)
        row.tensor.shape[row.tensor.n_dims] = read_uint(shape[row.tensor.n_dims]);
    read_side(columns + 5, &row.tensor.source);
    read_side(columns + 9, &row.tensor.destination);
    for (guint i = 0; i < cases->len; i++) {
        Case *known = &g_array_index(cases, Case, i);
        if (known->number == row.number) {
            if (row.world < known->world)
                *known = row;
            return;
        }
    }
    g_array_append_val(cases, row);
}

static void read_cases(void) {
    g_autofree char *text = NULL;

    cases = g_array_new(FALSE, FALSE, sizeof(Case));
    g_assert_true(
        g_file_get_contents(REFIT_TEST_SOURCE_DIR "/data/m2n-cases.tsv", &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++)
        if (g_ascii_isdigit(lines[i][0]))
            read_case(lines[i]);
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
