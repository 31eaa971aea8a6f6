/*
 * Runs between views: the example of the header; joined neighbours; interleaved, transposed and
 * scalar regions; and, over pairs of frameworks and ranks, that the runs of all common regions
 * write every common element from its place on one side to its place on the other, by an element
 * loop.
 */

#include "test-views.h"

static GArray *new_runs(void) {
    return g_array_new(FALSE, FALSE, sizeof(RefitRun));
}

/* "from>to*length" of each run. */
static void assert_runs(const GArray *runs, const char *expected) {
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < runs->len; i++) {
        const RefitRun *run = &g_array_index(runs, RefitRun, i);

        g_string_append_printf(text,
                               "%s%" G_GUINT64_FORMAT ">%" G_GUINT64_FORMAT "*%" G_GUINT64_FORMAT,
                               i > 0 ? " " : "", run->from, run->to, run->length);
    }
    g_assert_cmpstr(text->str, ==, expected);
}

/* Runs of all of `name` that both ranks have. */
static GArray *runs_of(const RefitLayout *a, guint rank_a, const RefitLayout *b, guint rank_b,
                       const char *name) {
    g_autoptr(RefitRankViews) from = views_of(a, rank_a), to = views_of(b, rank_b);
    const RefitView *one = refit_rank_views_find(from, find(a, name), NULL);
    const RefitView *two = refit_rank_views_find(to, find(b, name), NULL);
    g_auto(RefitRegion) common = refit_region_intersect(&one->region, &two->region);
    GArray *runs = new_runs();

    refit_view_append_runs(one, two, &common, runs);
    return runs;
}

#define GQA                                                                                        \
    "family: dense\nconfig: {hidden_size: 4, vocab_size: 128, num_hidden_layers: 1, "              \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, intermediate_size: 4}\n"

/*
 * q [8, 4], k and v [4, 4]; KV groups of 4 + 2 + 2 rows. Megatron, one rank: q 0-3, k 0-1, v 0-1,
 * q 4-7, k 2-3, v 2-3. vLLM, two ranks: q 4-7, k 2-3, v 2-3 on the second.
 */
static void test_groups(void) {
    g_autoptr(RefitLayout) train = make(GQA, "{framework: megatron, gpus: 1}");
    g_autoptr(RefitLayout) serve = make(GQA, "{framework: vllm, gpus: 2, tp: 2}");
    g_autoptr(RefitLayout) whole = make(GQA, "{framework: vllm, gpus: 1}");
    g_autoptr(GArray) runs = runs_of(train, 4, serve, 5, "model.layers.0.self_attn.k_proj.weight");
    g_autoptr(GArray) two = runs_of(train, 4, whole, 4, "model.layers.0.self_attn.q_proj.weight");

    assert_runs(runs, "48>16*8"); /* rows 12-13 to rows 4-5 */
    assert_runs(two, "0>0*16 32>16*16");
}

/* Columns of the receiver: a run a row, of 2 of 4 columns; o_proj [4, 8]. */
static void test_columns(void) {
    g_autoptr(RefitLayout) train = make(GQA, "{framework: megatron, gpus: 1}");
    g_autoptr(RefitLayout) serve = make(GQA, "{framework: vllm, gpus: 2, tp: 2}");
    g_autoptr(GArray) runs = runs_of(train, 4, serve, 5, "model.layers.0.mlp.down_proj.weight");
    g_autoptr(GArray) back = runs_of(serve, 5, train, 4, "model.layers.0.mlp.down_proj.weight");

    assert_runs(runs, "2>0*2 6>2*2 10>4*2 14>6*2");
    assert_runs(back, "0>2*2 2>6*2 4>10*2 6>14*2");
}

#define STACK                                                                                      \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: experts.gate_up_proj, shape: [2, 2, 4], role: expert_gate_up_t}\n"                 \
    "  - {name: s, shape: []}\n"

/* [2, 2 in, 4 out] stored as [2, 4 out, 2 in]: element by element, in the receiver's order. */
static void test_transposed(void) {
    g_autoptr(RefitLayout) own = make(STACK, "{framework: fsdp, gpus: 2}");
    g_autoptr(RefitLayout) serve = make(STACK, "{framework: vllm, gpus: 1}");
    g_autoptr(GArray) runs = runs_of(own, 5, serve, 4, "experts.gate_up_proj");
    g_autoptr(GArray) scalar = runs_of(own, 5, serve, 4, "s");

    assert_runs(runs, "0>8*1 4>9*1 1>10*1 5>11*1 2>12*1 6>13*1 3>14*1 7>15*1");
    assert_runs(scalar, "0>0*1");
}

static void test_join(void) {
    g_autoptr(GArray) runs = new_runs();
    const RefitRun some[] = {{20, 8, 4}, {0, 0, 4}, {4, 4, 4}, {24, 12, 2}, {27, 14, 1}};

    g_array_append_vals(runs, some, G_N_ELEMENTS(some));
    refit_runs_join(runs);
    assert_runs(runs, "0>0*8 20>8*6 27>14*1");
    g_array_set_size(runs, 0);
    refit_runs_join(runs);
    g_assert_cmpuint(runs->len, ==, 0);
}

/* Every view of `a` against every view of the same tensor in `b`. */
static void check_pair(const RefitLayout *a, guint rank_a, const RefitLayout *b, guint rank_b) {
    g_autoptr(RefitRankViews) from = views_of(a, rank_a), to = views_of(b, rank_b);
    guint64 **maps_a = map_elements(a, from), **maps_b = map_elements(b, to);

    for (guint i = 0; i < to->n_views; i++) {
        const RefitView *two = &to->views[i];
        guint n;
        const RefitView *one = refit_rank_views_find(from, two->tensor, &n);

        for (guint j = 0; j < n; j++) {
            g_auto(RefitRegion) common = refit_region_intersect(&one[j].region, &two->region);
            g_autoptr(GArray) runs = new_runs();
            guint64 moved = 0, end = 0;

            if (refit_region_is_empty(&common))
                continue;
            refit_view_append_runs(&one[j], two, &common, runs);
            refit_runs_join(runs);
            for (guint r = 0; r < runs->len; r++) {
                const RefitRun *run = &g_array_index(runs, RefitRun, r);

                g_assert_cmpuint(run->to, >=, end);
                end = run->to + run->length;
                for (guint64 e = 0; e < run->length; e++)
                    g_assert_cmpuint(maps_a[one[j].parameter][run->from + e], ==,
                                     maps_b[two->parameter][run->to + e]);
                moved += run->length;
            }
            g_assert_cmpuint(moved, ==, refit_region_volume(&common));
        }
    }
    free_maps(maps_a);
    free_maps(maps_b);
}

static void test_pairs(void) {
    static const char *const models[] = {
        SMALL,
        "family: gpt_oss\nconfig: {hidden_size: 4, vocab_size: 128, num_hidden_layers: 1, "
        "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, attention_bias: true, "
        "intermediate_size: 8, num_local_experts: 4}\n",
    };
    static const char *const sides[] = {
        "{framework: megatron, gpus: 4, tp: 4, ep: 2, etp: 2, glu_interleave: 1}",
        "{framework: megatron, gpus: 2, tp: 2, experts: grouped}",
        "{framework: fsdp, gpus: 3}",
        "{framework: vllm, gpus: 4, tp: 2, ep: true}",
        "{framework: sglang, gpus: 2, tp: 2}",
    };

    for (guint m = 0; m < G_N_ELEMENTS(models); m++) {
        for (guint a = 0; a < G_N_ELEMENTS(sides); a++) {
            for (guint b = 0; b < G_N_ELEMENTS(sides); b++) {
                g_autoptr(RefitLayout) from = make(models[m], sides[a]);
                g_autoptr(RefitLayout) to = make(models[m], sides[b]);
                guint n_from = refit_layout_n_ranks(from), n_to = refit_layout_n_ranks(to);

                check_pair(from, 4 + (a + b) % n_from, to, 4 + b % n_to);
                check_pair(from, 4 + (a + 1) % n_from, to, 4 + (a + b + 1) % n_to);
            }
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/view-runs/rows-of-kv-groups-come-together", test_groups);
    g_test_add_func("/view-runs/columns-take-a-run-a-row", test_columns);
    g_test_add_func("/view-runs/a-transposed-parameter-takes-single-elements", test_transposed);
    g_test_add_func("/view-runs/neighbours-that-continue-each-other-are-joined", test_join);
    g_test_add_func("/view-runs/each-element-moves-to-its-place", test_pairs);
    return g_test_run();
}
