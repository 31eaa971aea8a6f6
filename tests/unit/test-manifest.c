/*
 * Manifests: a case from declarations, and every refusal with its code and message: names, devices,
 * shapes, sizes on the wire, geometry, granules, tiles, bytes, local shapes, ranks beyond the
 * topology. Withdrawn and failed ranks, scales that follow their tensor, padding, 0-d tensors.
 */

#include "model/case/refit-manifest.h"
#include "plan-cases.h"

/* "S0 S1 R" for a mesh of `ranks` ranks from `first` on. */
static RefitSharding *place(guint first, guint n_axes, const guint *sizes, const gint *dims) {
    g_autoptr(GError) error = NULL;
    RefitSharding *sharding = refit_sharding_new();
    RefitPlacement placements[REFIT_MAX_AXES] = {0};
    guint ranks[64], n = 1;
    for (guint axis = 0; axis < n_axes; axis++) {
        n *= sizes[axis];
        if (dims[axis] >= 0)
            placements[axis] = (RefitPlacement){
                .kind = REFIT_PLACEMENT_SHARD, .dim = (guint)dims[axis], .order = axis};
    }
    for (guint i = 0; i < n; i++)
        ranks[i] = first + i;
    RefitMesh *mesh = refit_mesh_new(n_axes, sizes, ranks, n, &error);
    g_assert_no_error(error);
    g_assert_true(refit_sharding_add(sharding, mesh, placements, &error));
    g_assert_no_error(error);
    return sharding;
}

/* Over one axis; dim -1 replicates. */
static RefitSharding *line(guint first, guint n, gint dim) {
    return place(first, 1, &n, &dim);
}

static guint add(RefitManifest *manifest, const char *name, guint64 rows, guint64 columns) {
    g_autoptr(GError) error = NULL;
    RefitTensor tensor = {.name = (char *)name,
                          .n_dims = 2,
                          .shape = {rows, columns},
                          .role = REFIT_ROLE_OTHER,
                          .layer = REFIT_NO_LAYER,
                          .expert = REFIT_NO_EXPERT};
    guint index;
    g_assert_true(refit_manifest_add(manifest, &tensor, &index, &error));
    g_assert_no_error(error);
    return index;
}

static RefitCase *to_case(const RefitManifest *manifest, GError **error) {
    RefitTopology *topology =
        refit_topology_parse_line("node:2 gpu:4 nvlink:450GBps nic:50GBps", NULL);
    RefitProfile *profile = refit_profile_from_case(NULL, input_store(), NULL);
    g_assert_nonnull(topology);
    g_assert_nonnull(profile);
    return refit_manifest_to_case(manifest, topology, profile, error);
}

static void assert_refused(const RefitManifest *manifest, RefitError code, const char *message) {
    g_autoptr(GError) error = NULL;
    g_assert_null(to_case(manifest, &error));
    input_assert_error(error, code, message);
}

/* w [8, 4] by rows on ranks 0-1, whole on ranks 4-5. */
static RefitManifest *plain(void) {
    RefitManifest *manifest = refit_manifest_new();
    guint w = add(manifest, "w", 8, 4);
    refit_manifest_place(manifest, w, REFIT_SIDE_SOURCE, line(0, 2, 0));
    refit_manifest_place(manifest, w, REFIT_SIDE_DESTINATION, line(4, 2, -1));
    return manifest;
}

static void test_case_of_it(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = plain();
    const guint64 shard[] = {4, 4}, whole[] = {8, 4};
    refit_manifest_require(manifest, "w");
    refit_manifest_state_shape(manifest, 0, REFIT_SIDE_DESTINATION, 2, whole);
    refit_manifest_state_wire(manifest, 0, REFIT_SIDE_DESTINATION, REFIT_DTYPE_BF16);
    refit_manifest_state_local(manifest, 0, REFIT_SIDE_SOURCE, 1, 2, shard);
    refit_manifest_state_local(manifest, 0, REFIT_SIDE_DESTINATION, 5, 2, whole);
    refit_manifest_bind(manifest, 0, "node0:gpu0");
    refit_manifest_bind(manifest, 0, "node0:gpu0"); /* said twice is no second rank */
    refit_manifest_bind(manifest, 1, "node0:gpu1");
    g_autoptr(RefitCase) refit_case = to_case(manifest, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_layout_n_ranks(refit_case->source), ==, 2);
    g_assert_cmpuint(refit_layout_n_ranks(refit_case->destinations[0]), ==, 2);
    g_assert_cmpuint(refit_model_bytes(refit_case->model), ==, 64);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->needed_bytes, ==, 128);
    g_assert_cmpuint(problem->classes[0].cells->n_cells, ==, 2);
}

static void test_names(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = plain();
    RefitTensor again = {.name = (char *)"w", .n_dims = 0};
    guint index = 77;
    g_assert_false(refit_manifest_add(manifest, &again, &index, &error));
    input_assert_error(error, REFIT_ERROR_NAME_COLLISION,
                       "tensors 0 and 1 are both named w; use names that hold for the whole model, "
                       "not for one stage of it");
    g_assert_cmpuint(index, ==, 77);
    refit_manifest_require(manifest, "rope.inv_freq");
    assert_refused(manifest, REFIT_ERROR_NAME_MISSING,
                   "tensor rope.inv_freq is required but is not among the 1 declared; declare it "
                   "with the ranks that hold it");
}

static void test_devices(void) {
    g_autoptr(RefitManifest) manifest = plain();
    refit_manifest_bind(manifest, 0, "gpu0");
    refit_manifest_bind(manifest, 4, "gpu0");
    assert_refused(manifest, REFIT_ERROR_DEVICE_DUP,
                   "ranks 0 and 4 both run on device gpu0; give each rank its own, or make the two "
                   "one rank of both sides");
}

static void test_shapes(void) {
    g_autoptr(RefitManifest) manifest = plain();
    const guint64 turned[] = {4, 8}, fewer[] = {32};
    refit_manifest_state_shape(manifest, 0, REFIT_SIDE_DESTINATION, 2, turned);
    assert_refused(manifest, REFIT_ERROR_SHAPE_MISMATCH,
                   "tensor w is [8, 4], but the destination has it as [4, 8]; both sides must name "
                   "the same logical tensor");
    refit_manifest_state_shape(manifest, 0, REFIT_SIDE_DESTINATION, 1, fewer);
    assert_refused(manifest, REFIT_ERROR_SHAPE_MISMATCH,
                   "tensor w is [8, 4], but the destination has it as [32]; *");
}

static void test_wire(void) {
    g_autoptr(RefitManifest) manifest = plain();
    refit_manifest_state_wire(manifest, 0, REFIT_SIDE_DESTINATION, REFIT_DTYPE_F32);
    assert_refused(
        manifest, REFIT_ERROR_WIRE_SIZE,
        "tensor w: BF16, 16 bits an element, is on the wire, but the destination expects "
        "F32, 32 bits; agree on one before moving anything");
    refit_manifest_state_wire(manifest, 0, REFIT_SIDE_DESTINATION, REFIT_DTYPE_F16);
    assert_refused(manifest, REFIT_ERROR_WIRE_SIZE, "tensor w: *");
}

static void test_geometry(void) {
    g_autoptr(RefitManifest) manifest = plain();
    refit_manifest_place(manifest, 0, REFIT_SIDE_DESTINATION, line(4, 2, 2));
    assert_refused(manifest, REFIT_ERROR_DIM_RANGE, "tensor w on the destination: *");
    refit_manifest_place(manifest, 0, REFIT_SIDE_DESTINATION, line(7, 2, 0));
    assert_refused(manifest, REFIT_ERROR_INVALID,
                   "rank 8 is on the destination, but the topology has 8 GPUs; give it more nodes "
                   "or the layouts fewer ranks");
}

static void test_scalar(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = refit_manifest_new();
    RefitTensor scalar = {.name = (char *)"s", .dtype = REFIT_DTYPE_F32, .layer = -1, .expert = -1};
    guint index;
    g_assert_true(refit_manifest_add(manifest, &scalar, &index, &error));
    refit_manifest_place(manifest, index, REFIT_SIDE_SOURCE, line(0, 2, -1));
    refit_manifest_place(manifest, index, REFIT_SIDE_DESTINATION, line(4, 2, -1));
    refit_manifest_withdraw(manifest, index, REFIT_SIDE_SOURCE, 0);
    g_autoptr(RefitCase) refit_case = to_case(manifest, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->needed_bytes, ==, 8);
    g_assert_cmpuint(problem->classes[0].cells->cells[0].n_holders, ==, 1);
    g_assert_cmpuint(problem->classes[0].cells->cells[0].holders[0], ==, 1);
    refit_manifest_place(manifest, index, REFIT_SIDE_DESTINATION, line(4, 2, 0));
    assert_refused(manifest, REFIT_ERROR_SCALAR_SHARD, "tensor s on the destination: *");
}

static void test_cuts(void) {
    for (guint round = 0; round < 3; round++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitManifest) manifest = refit_manifest_new();
        RefitTensor tensor = {.name = (char *)"k",
                              .n_dims = 2,
                              .shape = {6, 6},
                              .dtype = round == 2 ? REFIT_DTYPE_F4 : REFIT_DTYPE_BF16,
                              .layer = -1,
                              .expert = -1};
        guint index;
        tensor.granule[round == 2 ? 1 : 0] = round == 2 ? 0 : 2;
        tensor.tiled = round == 1;
        g_assert_true(refit_manifest_add(manifest, &tensor, &index, &error));
        gint dim = round == 2 ? 1 : 0;
        refit_manifest_place(manifest, index, REFIT_SIDE_SOURCE, line(0, 3, dim)); /* at 2 and 4 */
        refit_manifest_place(manifest, index, REFIT_SIDE_DESTINATION, line(4, 1, -1));
        g_autoptr(RefitCase) fits = to_case(manifest, &error);
        g_assert_no_error(error);
        refit_manifest_place(manifest, index, REFIT_SIDE_SOURCE, line(0, 2, dim)); /* at 3 */
        static const RefitError codes[] = {REFIT_ERROR_GRANULE_SPLIT, REFIT_ERROR_TILE_SPLIT,
                                           REFIT_ERROR_SUBBYTE_SPLIT};
        assert_refused(manifest, codes[round], "tensor k: *");
    }
}

static void test_locals(void) {
    g_autoptr(RefitManifest) manifest = plain();
    const guint64 shape[] = {3, 4};
    refit_manifest_state_local(manifest, 0, REFIT_SIDE_SOURCE, 1, 2, shape);
    assert_refused(manifest, REFIT_ERROR_LOCAL_SHAPE,
                   "tensor w: rank 1 of the source reports [3, 4], but its layout gives it [4, 4]; "
                   "correct the global shape or the layout");
    g_autoptr(RefitManifest) stranger = plain();
    refit_manifest_state_local(stranger, 0, REFIT_SIDE_SOURCE, 6, 2, shape);
    assert_refused(
        stranger, REFIT_ERROR_LOCAL_SHAPE,
        "tensor w: rank 6 of the source reports [3, 4], but its layout gives it nothing; "
        "correct the global shape or the layout");
}

/* Padding is no part of what ranks report. */
static void test_padding(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = refit_manifest_new();
    guint w = add(manifest, "w", 50, 2);
    RefitSharding *padded = line(0, 4, 0);
    refit_sharding_set_padded(padded, 0, 64);
    refit_manifest_place(manifest, w, REFIT_SIDE_SOURCE, padded);
    refit_manifest_place(manifest, w, REFIT_SIDE_DESTINATION, line(4, 1, -1));
    const guint64 last[] = {2, 2};
    refit_manifest_state_local(manifest, w, REFIT_SIDE_SOURCE, 3, 2, last);
    g_autoptr(RefitCase) refit_case = to_case(manifest, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->needed_bytes, ==, 200);
}

static void test_withdrawn(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = plain();
    refit_manifest_place(manifest, 0, REFIT_SIDE_SOURCE, line(0, 4, -1));
    for (guint rank = 1; rank < 4; rank++)
        refit_manifest_withdraw(manifest, 0, REFIT_SIDE_SOURCE, rank);
    g_autoptr(RefitCase) refit_case = to_case(manifest, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->classes[0].cells->cells[0].n_holders, ==, 1);
    refit_manifest_withdraw(manifest, 0, REFIT_SIDE_SOURCE, 0);
    g_autoptr(RefitCase) empty = to_case(manifest, &error);
    g_assert_no_error(error);
    g_assert_null(refit_problem_new(empty, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_NOT_COVERED);
}

/* Blocks of 3 x 4 over [8, 4]: rows 0-3 touch blocks 0 and 1, rows 4-7 blocks 1 and 2. */
static void test_scales(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = plain();
    RefitTensor scale = {.name = (char *)"s",
                         .n_dims = 2,
                         .shape = {3, 1},
                         .dtype = REFIT_DTYPE_F32,
                         .layer = -1,
                         .expert = -1,
                         .scale = TRUE,
                         .scale_of = 0,
                         .block = {3, 4}};
    guint index;
    g_assert_true(refit_manifest_add(manifest, &scale, &index, &error));
    const guint64 local[] = {2, 1};
    refit_manifest_state_local(manifest, index, REFIT_SIDE_SOURCE, 0, 2, local);
    refit_manifest_state_local(manifest, index, REFIT_SIDE_SOURCE, 1, 2, local);
    g_autoptr(RefitCase) refit_case = to_case(manifest, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->needed_bytes, ==, 128 + 2 * 12);
    g_assert_cmpuint(problem->classes[1].cells->n_cells, ==, 3); /* block 1 is on both */
    g_autoptr(RefitManifest) wrong = plain();
    scale.shape[0] = 4;
    g_assert_true(refit_manifest_add(wrong, &scale, &index, &error));
    assert_refused(wrong, REFIT_ERROR_SHAPE_MISMATCH,
                   "tensor s is [4, 1], but w has [3, 1] blocks; give it one element per block, or "
                   "a layout of its own");
}

static void test_failed(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = plain();
    refit_manifest_fail_rank(manifest, 5);
    refit_manifest_fail_rank(manifest, 0);
    refit_manifest_fail_rank(manifest, 5);
    g_autoptr(RefitCase) refit_case = to_case(manifest, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_case->n_failed, ==, 2);
    g_assert_cmpuint(refit_case->failed[0], ==, 0);
    g_assert_cmpuint(refit_case->failed[1], ==, 5);
    g_assert_null(refit_problem_new(refit_case, &error));
    input_assert_error(error, REFIT_ERROR_DATA_LOST,
                       "tensor w: region [0:4, 0:4] is needed by rank 4 but was held only by ranks "
                       "that failed, such as 0; bring one of them back or load the tensor from "
                       "storage");
    refit_manifest_fail_rank(manifest, 8);
    assert_refused(manifest, REFIT_ERROR_INVALID,
                   "rank 8 has failed, but the topology has 8 GPUs, counted from 0");
}

static void test_overflow(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitManifest) manifest = refit_manifest_new();
    RefitTensor huge = {.name = (char *)"h", .n_dims = 2, .shape = {G_MAXUINT64, 2}};
    guint index;
    g_assert_false(refit_manifest_add(manifest, &huge, &index, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
    g_assert_true(g_str_has_prefix(error->message, "tensor h: "));
    g_autoptr(RefitCase) empty = to_case(manifest, NULL);
    g_assert_nonnull(empty);
    g_assert_cmpuint(refit_layout_n_ranks(empty->source), ==, 0);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/manifest/declarations-make-a-case", test_case_of_it);
    g_test_add_func("/manifest/names-collide-or-are-missing", test_names);
    g_test_add_func("/manifest/two-ranks-on-one-device-are-refused", test_devices);
    g_test_add_func("/manifest/global-shapes-must-agree", test_shapes);
    g_test_add_func("/manifest/sizes-on-the-wire-must-agree", test_wire);
    g_test_add_func("/manifest/geometry-is-checked", test_geometry);
    g_test_add_func("/manifest/scalars-are-held-whole", test_scalar);
    g_test_add_func("/manifest/cuts-keep-granules-tiles-and-bytes", test_cuts);
    g_test_add_func("/manifest/local-shapes-must-be-those-of-the-layout", test_locals);
    g_test_add_func("/manifest/padding-is-not-reported", test_padding);
    g_test_add_func("/manifest/withdrawn-ranks-hold-nothing", test_withdrawn);
    g_test_add_func("/manifest/scales-follow-their-tensor", test_scales);
    g_test_add_func("/manifest/what-only-failed-ranks-held-is-lost", test_failed);
    g_test_add_func("/manifest/sizes-beyond-64-bits-are-refused", test_overflow);
    return g_test_run();
}
