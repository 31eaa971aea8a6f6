/*
 * FSDP layouts: ceil chunks with short and empty tails, replica groups, the strided order over
 * tensor parallelism, row-parallel layers, scalars, the rank order, and refusals with their place.
 */

#include "test-layout.h"

/* 8 rows over 3: 3, 3, 2; 6 over 3: 2 each; a scalar everywhere. Side ranks start at 4. */
static void test_chunks(void) {
    g_autoptr(RefitLayout) layout = make(LIST, "{framework: fsdp, gpus: 3}");

    assert_held(layout, "w", "4 [0:3, 0:4]; 5 [3:6, 0:4]; 6 [6:8, 0:4]");
    assert_held(layout, "b", "4 [0:2]; 5 [2:4]; 6 [4:6]");
    assert_held(layout, "s", "4,5,6 []");
    g_assert_cmpstr(refit_layout_summary(layout), ==, "fsdp shard3");
    g_assert_cmpuint(refit_layout_n_stages(layout), ==, 1);
}

/* ceil(6 / 5) = 2: the last two of five ranks hold nothing of b, the last one 8 - 4 x 2 = 0 of w.
 */
static void test_empty_tails(void) {
    g_autoptr(RefitLayout) layout = make(LIST, "{framework: fsdp, gpus: 5}");

    assert_held(layout, "b", "4 [0:2]; 5 [2:4]; 6 [4:6]");
    assert_held(layout, "w", "4 [0:2, 0:4]; 5 [2:4, 0:4]; 6 [4:6, 0:4]; 7 [6:8, 0:4]");
}

/* Two replica groups of two: ranks 4, 5 and 6, 7 hold the same. */
static void test_replicas(void) {
    g_autoptr(RefitLayout) layout = make(LIST, "{framework: fsdp, gpus: 4, replicate: 2}");

    assert_held(layout, "w", "4,6 [0:4, 0:4]; 5,7 [4:8, 0:4]");
    g_assert_cmpstr(refit_layout_summary(layout), ==, "fsdp shard2 replicate2");
}

#define DENSE                                                                                      \
    "family: list\nconfig: {num_attention_heads: 2, num_key_value_heads: 2}\ntensors:\n"           \
    "  - {name: up, shape: [8, 4], role: dense_up}\n"                                              \
    "  - {name: down, shape: [4, 8], role: dense_down}\n"                                          \
    "  - {name: norm, shape: [4], role: norm}\n"                                                   \
    "  - {name: embed, shape: [10, 4], role: embedding}\n"

/*
 * tp 2 over shard 2, tp innermost: positions (shard, tp) = (0, 0), (0, 1), (1, 0), (1, 1). The rows
 * of `up` are cut by tp first, 0-3 and 4-7, and each half by FSDP: rank 5 = (0, 1) has 4-5.
 */
static void test_over_tensor_parallel(void) {
    g_autoptr(RefitLayout) layout = make(DENSE, "{framework: fsdp, gpus: 4, tp: 2}");

    assert_held(layout, "up", "4 [0:2, 0:4]; 6 [2:4, 0:4]; 5 [4:6, 0:4]; 7 [6:8, 0:4]");
    assert_held(layout, "down", "4 [0:2, 0:4]; 5 [0:2, 4:8]; 6 [2:4, 0:4]; 7 [2:4, 4:8]");
    assert_held(layout, "norm", "4,5 [0:2]; 6,7 [2:4]");
    /* 10 rows: tp halves of 5, then ceil(5 / 2) = 3 and 2. */
    assert_held(layout, "embed", "4 [0:3, 0:4]; 6 [3:5, 0:4]; 5 [5:8, 0:4]; 7 [8:10, 0:4]");
    g_assert_cmpstr(refit_layout_summary(layout), ==, "fsdp shard2 tp2");
}

static void test_shared(void) {
    g_autoptr(RefitLayout) layout = make(DENSE, "{framework: fsdp, gpus: 4}");

    g_assert_true(sharding_of(layout, "up") == sharding_of(layout, "norm"));
}

static void test_refusals(void) {
    assert_refused(LIST, "{framework: fsdp, gpus: 4, shard: 3}",
                   "c.yaml:1:42: train.shard: tp 1 * replicate 1 * shard 3 is not the 4 GPUs; "
                   "leave shard out or write 4");
    assert_refused(LIST, "{framework: fsdp, gpus: 4, replicate: 3}",
                   "c.yaml:1:46: train.replicate: tp 1 * replicate 3 does not divide the 4 GPUs; "
                   "choose sizes whose product does");
    assert_refused(DENSE, "{framework: fsdp, gpus: 4, tp: 4}", "c.yaml:1:39: train.tp: *");
    assert_refused(LIST, "{framework: fsdp, gpus: 4, pp: 2}",
                   "c.yaml:1:35: train.pp: unknown key (did you mean \"tp\"?)");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fsdp/chunks-are-ceil-sizes-with-a-short-tail", test_chunks);
    g_test_add_func("/fsdp/tails-may-be-empty", test_empty_tails);
    g_test_add_func("/fsdp/replica-groups-hold-the-same", test_replicas);
    g_test_add_func("/fsdp/tensor-parallelism-cuts-first", test_over_tensor_parallel);
    g_test_add_func("/fsdp/equal-cuts-share-one-sharding", test_shared);
    g_test_add_func("/fsdp/refusals-say-where-and-what-to-do", test_refusals);
    return g_test_run();
}
