/*
 * Runs without views against the views themselves: for small models of every family on every
 * framework, in native forms, explicit and random layouts, what a layout says of a tensor's rows
 * and of regions of a shard is what an element loop over the rank's view finds.
 */

#include "random-case.h"
#include "test-views.h"

typedef struct {
    guint n_tensors, n_kept;         /* that a layout holds; that keep their rows */
    guint n_runs, n_others, n_tried; /* regions */
} Counts;

/* Elements of `region`, row-major, are at places that follow each other. */
static gboolean is_run_of(const RefitView *view, const RefitRegion *region) {
    guint64 volume = refit_region_volume(region), first = 0;

    for (guint64 element = 0; element < volume; element++) {
        guint64 at = view->offset, rest = element;

        for (guint d = region->n_dims; d-- > 0; rest /= region->dims[d]->extent) {
            const RefitIntervalList *list = region->dims[d];
            guint64 index = rest % list->extent;
            guint i = 0;

            for (; index >= list->items[i].hi - list->items[i].lo; i++)
                index -= list->items[i].hi - list->items[i].lo;
            at += view->stride[d] * place_of(view->region.dims[d], list->items[i].lo + index);
        }
        if (element == 0)
            first = at;
        if (at != first + element)
            return FALSE;
    }
    return TRUE;
}

/* A part of a shard: of each dim all, one, or some next to each other. */
static RefitRegion part_of(const RefitRegion *shard) {
    RefitRegion part = {.n_dims = shard->n_dims};

    for (guint d = 0; d < shard->n_dims; d++) {
        guint extent = (guint)shard->dims[d]->extent;
        guint lo = (guint)g_test_rand_int_range(0, (gint32)extent), hi = lo + 1;

        switch (g_test_rand_int_range(0, 3)) {
        case 0:
            lo = 0;
            hi = extent;
            break;
        case 1:
            hi = lo + (guint)g_test_rand_int_range(1, (gint32)(extent - lo) + 1);
            break;
        default:
            break;
        }
        part.dims[d] = refit_interval_list_slice(shard->dims[d], lo, hi);
    }
    return part;
}

static void check_region(const RefitLayout *layout, guint rank, const RefitView *view,
                         const RefitRegion *region, Counts *counts) {
    gboolean run = is_run_of(view, region);

    counts->n_tried++;
    if (run)
        counts->n_runs++;
    else
        counts->n_others++;
    if (refit_layout_is_run(layout, view->tensor, rank, region) == run)
        return;
    g_autofree char *text = refit_region_to_string(region);
    g_error("%s: region %s of tensor %s is %s run of rank %u", refit_layout_summary(layout), text,
            refit_model_tensor(refit_layout_model(layout), view->tensor)->name, run ? "a" : "no",
            rank);
}

/* A tensor that keeps its rows: one view, which is the shard, and its regions. */
static void check_tensor(const RefitLayout *layout, guint rank, const RefitRankViews *views,
                         guint tensor, Counts *counts) {
    const RefitTensor *self = refit_model_tensor(refit_layout_model(layout), tensor);
    guint64 buffer[REFIT_MAX_DIMS];
    g_auto(RefitRegion) shard = {0}, full = refit_region_full(self->n_dims, self->shape);
    guint n = 0;
    const RefitView *view = refit_rank_views_find(views, tensor, &n);
    gboolean held = refit_sharding_local(refit_layout_sharding(layout, tensor), 0, rank,
                                         self->n_dims, self->shape, &shard, buffer, NULL) &&
                    !refit_region_is_empty(&shard);

    g_assert_cmpuint(n, ==, held ? 1 : 0);
    if (!held) {
        g_assert_false(refit_layout_is_run(layout, tensor, rank, &full));
        return;
    }
    g_assert_true(refit_region_equal(&view->region, &shard));
    check_region(layout, rank, view, &shard, counts);
    if (!refit_region_equal(&full, &shard))
        g_assert_false(refit_layout_is_run(layout, tensor, rank, &full));
    for (guint i = 0; i < 12; i++) {
        g_auto(RefitRegion) part = part_of(&shard);

        check_region(layout, rank, view, &part, counts);
    }
}

static void check_layout(const RefitLayout *layout, Counts *counts) {
    guint n_tensors = refit_model_n_tensors(refit_layout_model(layout));
    g_autofree gboolean *keeps = g_new0(gboolean, n_tensors);

    for (guint t = 0; t < n_tensors; t++) {
        if (refit_layout_sharding(layout, t) == NULL)
            continue;
        keeps[t] = refit_layout_keeps_rows(layout, t);
        counts->n_tensors++;
        counts->n_kept += keeps[t] ? 1 : 0;
    }
    for (guint i = 0; i < refit_layout_n_ranks(layout); i++) {
        guint rank = refit_layout_ranks(layout)[i];
        g_autoptr(RefitRankViews) views = views_of(layout, rank);

        for (guint t = 0; t < n_tensors; t++)
            if (keeps[t])
                check_tensor(layout, rank, views, t, counts);
    }
}

/* ---- families ---- */

typedef struct {
    const char *name, *body;
} Family;

static const Family families[] = {
    {"qwen3-moe", SMALL},         {"tied", TIED},
    {"deepseek", DEEPSEEK_SMALL}, {"qwen3-5", QWEN3_5_SMALL},
    {"nemotron", NEMOTRON_SMALL}, {"gpt-oss", GPT_OSS_SMALL},
    {"kimi-k3", KIMI_SMALL},      {"mixtral", MIXTRAL_SMALL},
};

/* Those that a model cannot have (as heads that do not divide) are left out. */
static guint check_sides(const char *framework, const char *const *sides) {
    Counts counts = {0};
    guint n = 0;

    for (guint f = 0; f < G_N_ELEMENTS(families); f++)
        for (guint s = 0; sides[s] != NULL; s++) {
            g_autoptr(GError) error = NULL;
            g_autofree char *text = g_strdup_printf("{framework: %s, %s}", framework, sides[s]);
            g_autoptr(RefitLayout) layout = parse(families[f].body, text, &error);

            if (layout == NULL)
                g_test_message("%s: %s", families[f].name, error->message);
            if (layout == NULL)
                continue;
            n++;
            check_layout(layout, &counts);
        }
    g_test_message("%s: %u layouts, %u of %u tensors, %u runs of %u regions", framework, n,
                   counts.n_kept, counts.n_tensors, counts.n_runs, counts.n_tried);
    /* Both answers come often. */
    g_assert_cmpuint(4 * counts.n_kept, >, counts.n_tensors);
    g_assert_cmpuint(counts.n_runs, >, 1000);
    g_assert_cmpuint(counts.n_others, >, 1000);
    return n;
}

static void test_megatron(void) {
    static const char *const sides[] = {
        "gpus: 1",
        "gpus: 2, tp: 2",
        "gpus: 4, tp: 4, ep: 2, etp: 2, glu_interleave: 1",
        "gpus: 4, tp: 2, ep: 4, experts: grouped, glu_interleave: 2",
        "gpus: 4, tp: 2, ep: 4, experts: grouped",
        "gpus: 4, tp: 2, pp: 2",
        NULL};

    g_assert_cmpuint(check_sides("megatron", sides), >=, 5 * G_N_ELEMENTS(families));
}

static void test_fsdp(void) {
    static const char *const sides[] = {"gpus: 1", "gpus: 3", "gpus: 4, tp: 2", NULL};

    g_assert_cmpuint(check_sides("fsdp", sides), >=, 2 * G_N_ELEMENTS(families));
}

static void test_vllm(void) {
    static const char *const sides[] = {"gpus: 1",
                                        "gpus: 2, tp: 2",
                                        "gpus: 4, tp: 4",
                                        "gpus: 4, tp: 2, ep: true",
                                        "gpus: 4, tp: 2, ep: true, redundant_experts: 4",
                                        "gpus: 4, tp: 2, pp: 2",
                                        NULL};

    g_assert_cmpuint(check_sides("vllm", sides), >=, 4 * G_N_ELEMENTS(families));
}

static void test_sglang(void) {
    static const char *const sides[] = {"gpus: 1", "gpus: 4, tp: 4, ep: 2",
                                        "gpus: 4, tp: 4, dp: 2, dp_attention: true, ep: 4", NULL};

    g_autoptr(RefitLayout) slots = make(
        DEEPSEEK_SMALL, "{framework: sglang, gpus: 4, tp: 4, ep: 2, shared_expert_as_slot: true}");
    Counts counts = {0};

    g_assert_cmpuint(check_sides("sglang", sides), >=, 2 * G_N_ELEMENTS(families));
    check_layout(slots, &counts);
    g_assert_cmpuint(counts.n_runs, >, 0);
}

static void test_explicit(void) {
    static const char *const sides[] = {
        "gpus: 2, rules: [{tensors: \"*\", mesh: [2], place: [replicate]}]",
        "gpus: 3, rules: [{tensors: \"*\", mesh: [1], ranks: [1], place: [replicate]}]",
        "gpus: 1, rules: [{tensors: \"*\", parts: [{mesh: [1], place: [replicate]}, {mesh: [1], "
        "place: [replicate]}]}]",
        NULL};

    check_sides("explicit", sides);
}

/* Scales of blocks have rows of their own. */
static void test_native(void) {
    static const char *const fp8[] = {
        "{framework: megatron, gpus: 4, tp: 4, ep: 2, etp: 2, experts: grouped}",
        "{framework: vllm, gpus: 4, tp: 4}", "{framework: vllm, gpus: 4, tp: 2, ep: true}",
        "{framework: sglang, gpus: 4, tp: 4, ep: 2}"};
    static const char *const mxfp4[] = {"{framework: megatron, gpus: 2, tp: 2, ep: 2}",
                                        "{framework: vllm, gpus: 2, tp: 2}",
                                        "{framework: sglang, gpus: 2, tp: 2, ep: 2}"};
    Counts counts = {0};

    for (guint s = 0; s < G_N_ELEMENTS(fp8); s++) {
        g_autoptr(RefitLayout) layout = make_native(FP8_QWEN, fp8[s]);

        check_layout(layout, &counts);
    }
    for (guint s = 0; s < G_N_ELEMENTS(mxfp4); s++) {
        g_autoptr(RefitLayout) layout = make_native(MXFP4_GPT_OSS, mxfp4[s]);

        check_layout(layout, &counts);
    }
    g_assert_cmpuint(counts.n_runs, >, 1000);
}

/* ---- random ---- */

static void test_random(void) {
    guint first = g_test_rand_int() & 0xffffff, n = g_test_thorough() ? 20000 : 500;
    Counts counts = {0};

    for (guint i = 0; i < n; i++) {
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);

        g_test_message("seed %u", first + i);
        check_layout(refit_case->source, &counts);
        for (guint d = 0; d < refit_case->n_destinations; d++)
            check_layout(refit_case->destinations[d], &counts);
    }
    g_test_message("%u of %u tensors, %u runs of %u regions", counts.n_kept, counts.n_tensors,
                   counts.n_runs, counts.n_tried);
    g_assert_cmpuint(4 * counts.n_kept, >, counts.n_tensors);
    g_assert_cmpuint(counts.n_runs, >, n);
    g_assert_cmpuint(counts.n_others, >, n);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout-runs/megatron-says-what-its-views-say", test_megatron);
    g_test_add_func("/layout-runs/fsdp-says-what-its-views-say", test_fsdp);
    g_test_add_func("/layout-runs/vllm-says-what-its-views-say", test_vllm);
    g_test_add_func("/layout-runs/sglang-says-what-its-views-say", test_sglang);
    g_test_add_func("/layout-runs/native-forms-say-what-their-views-say", test_native);
    g_test_add_func("/layout-runs/explicit-layouts-say-what-their-views-say", test_explicit);
    g_test_add_func("/layout-runs/random-layouts-say-what-their-views-say", test_random);
    return g_test_run();
}
