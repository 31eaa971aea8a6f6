/*
 * What casting costs: messages whose bytes are in another form on the wire than in parameters, at
 * the source, at the destination, at both; strided ones; later hops; copies inside a GPU; what is
 * picked out of buckets. Times are worked out by hand.
 *
 * The tensor is 1 GB on the wire. NIC 50 GB/s: 20 ms; NVLink 500 GB/s: 2 ms; memory 2 TB/s. Pack
 * 100 GB/s and unpack 50 GB/s for a copy, which reads and writes each byte. No latency.
 */

#include "model/predict/refit-prediction.h"
#include "plan-cases.h"
#include "sim/refit-sim.h"

#include <math.h>

#define TOPOLOGY                                                                                   \
    "node:2 gpu:8 nvlink:500GBps nic:50GBps hbm:2000GBps nvlink_latency:0us nic_latency:0us "      \
    "spine_latency:0us"
#define TENSOR "  - {name: w, shape: [8, 62500000], role: other}\n"
#define RULES "rules: [{tensors: w, place: [replicate]}]"
#define WHOLE "0:8,0:62500000"
#define LEFT "0:8,0:31250000"

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
    profile.terms[REFIT_TERM_RUN].value = 1e-3;
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
    const RefitProfile profile = make_profile();
    g_autoptr(GError) error = NULL;
    RefitRunResult result;
    gpointer self = refit_executor_simgrid.open(refit_case->topology, &profile, &error);
    g_assert_no_error(error);
    g_assert_true(refit_executor_simgrid.prepare(self, plan, &error));
    g_assert_true(refit_executor_simgrid.run(self, NULL, NULL, &result, &error));
    g_assert_no_error(error);
    refit_executor_simgrid.close(self);
    if (fabs(result.duration_s - expected_s) > 1e-3 * expected_s)
        g_error("%.9g s is not within 0.1 %% of %.9g s", result.duration_s, expected_s);
}

static const Forms same = {REFIT_N_DTYPES, REFIT_N_DTYPES};
static const Forms from_f32 = {REFIT_DTYPE_F32, REFIT_N_DTYPES};
static const Forms to_f8 = {REFIT_N_DTYPES, REFIT_DTYPE_F8_E4M3};
static const Forms both = {REFIT_DTYPE_F32, REFIT_DTYPE_F8_E4M3};

static void one_message(RefitPlanBuilder *builder, guint first, G_GNUC_UNUSED guint second) {
    plan_case_add(builder, 0, WHOLE, 0, 8, first, REFIT_LANDING_HOME, NULL, 0);
}

/* Reads 2 GB and writes 1 GB: 15 ms at the rate of a copy; then reads 1 and writes 0.5: 15 ms. */
static void test_whole(void) {
    run(&same, FALSE, one_message, 20e-3);
    run(&from_f32, FALSE, one_message, 35e-3);
    run(&to_f8, FALSE, one_message, 35e-3);
    run(&both, FALSE, one_message, 50e-3);
}

/* A cast to a form of the same size costs as much as a copy. */
static void test_same_size(void) {
    const Forms forms = {REFIT_DTYPE_F16, REFIT_N_DTYPES};
    run(&forms, FALSE, one_message, 30e-3);
}

static void left_half(RefitPlanBuilder *builder, guint first, G_GNUC_UNUSED guint second) {
    plan_case_add(builder, 0, LEFT, 0, 8, first, REFIT_LANDING_HOME, NULL, 0);
}

/* 8 runs on both sides, 8 ms each; 0.5 GB: 5 and 10 ms to copy, 7.5 and 7.5 ms to cast. */
static void test_strided(void) {
    run(&same, FALSE, left_half, 8e-3 + 5e-3 + 10e-3 + 10e-3 + 8e-3);
    run(&both, FALSE, left_half, 8e-3 + 7.5e-3 + 10e-3 + 7.5e-3 + 8e-3);
}

static void two_hops(RefitPlanBuilder *builder, guint first, guint second) {
    guint dep = plan_case_add(builder, 0, WHOLE, 0, 8, first, REFIT_LANDING_HOME, NULL, 0);
    plan_case_add(builder, 0, WHOLE, 8, 9, second, REFIT_LANDING_HOME, &dep, 1);
}

/* The second hop sends what came; each destination casts for itself before it goes on. */
static void test_two_hops(void) {
    run(&same, FALSE, two_hops, 22e-3);
    run(&from_f32, FALSE, two_hops, 37e-3);
    run(&to_f8, FALSE, two_hops, 20e-3 + 15e-3 + 2e-3 + 15e-3);
}

static void inside(RefitPlanBuilder *builder, guint first, G_GNUC_UNUSED guint second) {
    plan_case_add(builder, 0, WHOLE, 0, 0, first, REFIT_LANDING_HOME, NULL, 0);
}

/* 1 + 1, 2 + 1, 1 + 0.5 and 2 + 0.5 GB of memory traffic. */
static void test_local(void) {
    run(&same, TRUE, inside, 1e-3);
    run(&from_f32, TRUE, inside, 1.5e-3);
    run(&to_f8, TRUE, inside, 0.75e-3);
    run(&both, TRUE, inside, 1.25e-3);
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
        g_autoptr(GError) error = NULL;
        RefitPrediction prediction;
        g_assert_true(refit_predict(&refit_executor_simgrid, plan, &prediction, &error));
        g_assert_no_error(error);
        g_assert_cmpfloat_with_epsilon(prediction.install_s, rows[i].install_s, 1e-9);
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
