/*
 * What casting costs: messages whose bytes are in another form on the wire than in parameters, at
 * the source, at the destination, at both; strided ones; later hops; copies inside a GPU; what is
 * picked out of buckets. Times are worked out by hand.
 *
 * The tensor is 8 MB on the wire, one turn. NIC 50 GB/s: 160 us; NVLink 500 GB/s: 16 us; memory
 * 2 TB/s. Pack 100 GB/s and unpack 50 GB/s for a copy, which reads and writes each byte; 8 us per
 * run. No latency.
 */

#include "model/predict/refit-prediction.h"
#include "sim-run.h"

#define TOPOLOGY                                                                                   \
    "node:2 gpu:8 nvlink:500GBps nic:50GBps hbm:2000GBps nvlink_latency:0us nic_latency:0us "      \
    "spine_latency:0us"
#define TENSOR "  - {name: w, shape: [8, 500000], role: other}\n"
#define RULES "rules: [{tensors: w, place: [replicate]}]"
#define WHOLE "0:8,0:500000"
#define LEFT "0:8,0:250000"

/* The same tensors as a side holds them in another dtype. */
static RefitLayout *held(const RefitCase *refit_case, const RefitLayout *layout, const char *tensor,
                         const char *rules, RefitDtype dtype) {
    g_autofree char *text =
        g_strdup_printf("schema: refit.model/1\nname: made-up\nfamily: list\ntensors:\n%s", tensor);
    g_autoptr(RefitDoc) doc = input_doc(text);
    const RefitModelOptions options = {.dtype = dtype, .mtp = TRUE};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    return plan_case_side(refit_layout_side(layout), model, refit_layout_ranks(layout)[0],
                          refit_layout_n_ranks(layout), refit_topology_n_gpus(refit_case->topology),
                          rules);
}

/* Forms of the sides; REFIT_N_DTYPES: as on the wire. */
typedef struct {
    RefitDtype source, destination;
} Forms;

static void set_held(RefitCase *refit_case, const Forms *forms, const char *tensor,
                     const char *source, const char *destination) {
    if (forms->source != REFIT_N_DTYPES)
        refit_case->source_held =
            held(refit_case, refit_case->source, tensor, source, forms->source);
    if (forms->destination == REFIT_N_DTYPES)
        return;
    refit_case->destinations_held = g_new0(RefitLayout *, 1);
    refit_case->destinations_held[0] =
        held(refit_case, refit_case->destinations[0], tensor, destination, forms->destination);
}

/* Ranks 0-7 hold the tensor, ranks 8 and 9 need it; `overlap`: rank 0 does. */
static RefitCase *make_case(const Forms *forms, gboolean overlap) {
    RefitCase *refit_case = plan_case_new(TOPOLOGY, TENSOR, 8, RULES, 2, RULES);
    if (overlap) {
        refit_layout_free(refit_case->destinations[0]);
        refit_case->destinations[0] =
            plan_case_side("generation", refit_case->model, 0, 1, 16, RULES);
    }
    set_held(refit_case, forms, TENSOR, RULES, RULES);
    return refit_case;
}

static RefitProfile make_profile(void) {
    RefitProfile profile = {0};
    profile.terms[REFIT_TERM_PACK].value = 100e9;
    profile.terms[REFIT_TERM_UNPACK].value = 50e9;
    profile.terms[REFIT_TERM_RUN].value = 8e-6;
    return profile;
}

typedef void (*Build)(RefitPlanBuilder *builder, guint first, guint second);

static void run(const Forms *forms, gboolean overlap, Build build, double expected_s) {
    g_autoptr(RefitCase) refit_case = make_case(forms, overlap);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint first = refit_plan_builder_add_stage(builder, "first", 1);
    guint second = refit_plan_builder_add_stage(builder, "second", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    build(builder, first, second);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);
    const RefitProfile profile = make_profile();

    for (guint mode = 0; mode < SIM_N_MODES; mode++) {
        g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
        RefitRunResult result;

        sim_run_as(schedule, &profile, (SimMode)mode, events, &result);
        if (!sim_is_about(result.duration_s, expected_s, expected_s))
            g_error("%s: %.9g s is not within 0.1 %% of %.9g s", sim_mode_name(mode),
                    result.duration_s, expected_s);
    }
}

static const Forms same = {REFIT_N_DTYPES, REFIT_N_DTYPES};
static const Forms from_f32 = {REFIT_DTYPE_F32, REFIT_N_DTYPES};
static const Forms to_f8 = {REFIT_N_DTYPES, REFIT_DTYPE_F8_E4M3};
static const Forms both = {REFIT_DTYPE_F32, REFIT_DTYPE_F8_E4M3};

static void one_message(RefitPlanBuilder *builder, guint first, G_GNUC_UNUSED guint second) {
    plan_case_add(builder, 0, WHOLE, 0, 8, first, REFIT_LANDING_HOME, NULL, 0);
}

/* Reads 16 MB and writes 8 MB: 120 us at the rate of a copy; then reads 8 and writes 4: 120 us.
 * Each is one run. */
static void test_whole(void) {
    run(&same, FALSE, one_message, 160e-6);
    run(&from_f32, FALSE, one_message, 288e-6);
    run(&to_f8, FALSE, one_message, 288e-6);
    run(&both, FALSE, one_message, 416e-6);
}

/* A cast to a form of the same size costs as much as a copy. */
static void test_same_size(void) {
    const Forms forms = {REFIT_DTYPE_F16, REFIT_N_DTYPES};
    run(&forms, FALSE, one_message, 248e-6);
}

static void left_half(RefitPlanBuilder *builder, guint first, G_GNUC_UNUSED guint second) {
    plan_case_add(builder, 0, LEFT, 0, 8, first, REFIT_LANDING_HOME, NULL, 0);
}

/* 8 runs on both sides, 64 us; 4 MB: 40 and 80 us to copy, 60 and 60 us to cast. */
static void test_strided(void) {
    run(&same, FALSE, left_half, 64e-6 + 40e-6 + 80e-6 + 80e-6 + 64e-6);
    run(&both, FALSE, left_half, 64e-6 + 60e-6 + 80e-6 + 60e-6 + 64e-6);
}

static void two_hops(RefitPlanBuilder *builder, guint first, guint second) {
    guint dep = plan_case_add(builder, 0, WHOLE, 0, 8, first, REFIT_LANDING_HOME, NULL, 0);
    plan_case_add(builder, 0, WHOLE, 8, 9, second, REFIT_LANDING_HOME, &dep, 1);
}

/* The second hop sends what came; each destination casts for itself before it goes on. */
static void test_two_hops(void) {
    run(&same, FALSE, two_hops, 176e-6);
    run(&from_f32, FALSE, two_hops, 304e-6);
    run(&to_f8, FALSE, two_hops, 160e-6 + 128e-6 + 16e-6 + 128e-6);
}

static void inside(RefitPlanBuilder *builder, guint first, G_GNUC_UNUSED guint second) {
    plan_case_add(builder, 0, WHOLE, 0, 0, first, REFIT_LANDING_HOME, NULL, 0);
}

/* 8 + 8, 16 + 8, 8 + 4 and 16 + 4 MB of memory traffic. */
static void test_local(void) {
    run(&same, TRUE, inside, 8e-6);
    run(&from_f32, TRUE, inside, 12e-6);
    run(&to_f8, TRUE, inside, 6e-6);
    run(&both, TRUE, inside, 10e-6);
}

/* Each destination takes 32 B out of the bucket, at 1 B/s for a copy. */
static void test_buckets(void) {
    static const struct {
        Forms forms;
        double install_s;
    } rows[] = {
        {{REFIT_N_DTYPES, REFIT_N_DTYPES}, 32},
        {{REFIT_DTYPE_F32, REFIT_N_DTYPES}, 32},
        {{REFIT_N_DTYPES, REFIT_DTYPE_F32}, 48},
        {{REFIT_N_DTYPES, REFIT_DTYPE_F8_E4M3}, 24},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(RefitCase) refit_case = plan_case_worked();
        g_autofree char *tensor = input_replace(WORKED_TENSOR, "dtype: bf16, ", "");
        set_held(refit_case, &rows[i].forms, tensor, WORKED_SOURCE, WORKED_DESTINATION);
        refit_case->profile = g_new0(RefitProfile, 1);
        refit_case->profile->name = g_strdup("made-up");
        refit_case->profile->terms[REFIT_TERM_INSTALL].value = 1;
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
        g_autoptr(RefitSchedule) schedule = schedule_of(plan);

        for (guint mode = 0; mode < SIM_N_MODES; mode++) {
            g_autoptr(GError) error = NULL;
            const RefitPredictionOptions options = {.exact = mode == SIM_EXACT};
            RefitPrediction prediction;

            g_assert_true(
                refit_predict(&refit_executor_simgrid, schedule, &options, &prediction, &error));
            g_assert_no_error(error);
            g_assert_cmpfloat_with_epsilon(prediction.install_s, rows[i].install_s, 1e-9);
            /* What moves is nothing against it. */
            g_assert_cmpfloat_with_epsilon(prediction.step_s, rows[i].install_s, 1e-3);
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim-cast/whole-tensors-are-cast-on-either-side", test_whole);
    g_test_add_func("/sim-cast/equal-sizes-cost-a-copy", test_same_size);
    g_test_add_func("/sim-cast/packing-casts-on-the-way", test_strided);
    g_test_add_func("/sim-cast/later-hops-send-what-came", test_two_hops);
    g_test_add_func("/sim-cast/copies-inside-a-gpu-touch-both-forms", test_local);
    g_test_add_func("/sim-cast/buckets-are-cast-when-installed", test_buckets);
    return g_test_run();
}
