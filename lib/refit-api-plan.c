/*
 * Plans of the C API: a description becomes a case, a problem, a plan, and what is read of it.
 *
 * The first plan closes the description, as all that follows borrows from it; later plans replace
 * the plan only. Each is proved to be complete and to end. Cost: that of planning and proving.
 */

#include "lib/refit-api-private.h"
#include "lib/refit-disk.h"
#include "lib/refit-part.h"

#include <string.h>

/* A text as a node, for readers that take what a case file says. */
static RefitDoc *doc_of_text(const char *text, const char *what, GError **error) {
    RefitJson *json = refit_json_new(0);
    gsize length;

    refit_json_string(json, NULL, text);
    g_autofree char *document = refit_json_finish(json, &length);
    return refit_doc_parse(document, length, what, error);
}

static RefitTopology *read_topology(const RefitJob *job, const RefitStore *store, GError **error) {
    g_autoptr(RefitDoc) doc = NULL;

    if (job->topology == NULL) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                            "there is no topology; set one");
        return NULL;
    }
    doc = doc_of_text(job->topology, "topology", error);
    return doc != NULL ? refit_topology_from_case(refit_doc_root(doc), store, error) : NULL;
}

static RefitProfile *read_profile(const RefitJob *job, const RefitStore *store, GError **error) {
    g_autoptr(RefitDoc) doc = NULL;

    if (job->profile == NULL)
        return refit_profile_built_in(error);
    doc = doc_of_text(job->profile, "profile", error);
    return doc != NULL ? refit_profile_from_case(refit_doc_root(doc), store, error) : NULL;
}

static RefitCase *make_case(const RefitJob *job, GError **error) {
    const char *data_dir = job->data_dir != NULL ? job->data_dir : REFIT_API_DATA_DIR;
    g_autofree char *layouts = g_build_filename(data_dir, "layouts", NULL);
    g_autofree char *topologies = g_build_filename(data_dir, "topologies", NULL);
    const RefitStore store = {layouts, topologies, &refit_disk};
    g_autoptr(RefitTopology) topology = read_topology(job, &store, error);
    RefitProfile *profile;

    if (topology == NULL)
        return NULL;
    profile = read_profile(job, &store, error);
    if (profile == NULL)
        return NULL;
    return refit_manifest_to_case(job->manifest, g_steal_pointer(&topology), profile, error);
}

static gboolean plan(RefitJob *job, const RefitStrategy *strategy, GError **error) {
    g_autoptr(RefitCase) made = NULL;
    RefitCase *refit_case = job->refit_case;
    g_autoptr(RefitProblem) problem = NULL;
    g_autoptr(RefitPlan) plan = NULL;
    g_autoptr(RefitSchedule) schedule = NULL;

    if (refit_case == NULL) {
        made = make_case(job, error);
        refit_case = made;
    }
    if (refit_case == NULL)
        return FALSE;
    if (job->staging > 0)
        refit_case->budget_staging_bytes = job->staging;
    if (job->problem == NULL) {
        problem = refit_problem_new(refit_case, error);
        if (problem == NULL)
            return FALSE;
    }
    plan = refit_plan_new(problem != NULL ? problem : job->problem, strategy, error);
    if (plan == NULL)
        return FALSE;
    schedule = refit_schedule_new(plan, error);
    if (schedule == NULL || !refit_schedule_check(schedule, error) ||
        !refit_schedule_check_budget(schedule, error))
        return FALSE;
    refit_schedule_free(job->schedule);
    refit_plan_free(job->plan);
    job->schedule = g_steal_pointer(&schedule);
    job->plan = g_steal_pointer(&plan);
    if (problem != NULL)
        job->problem = g_steal_pointer(&problem);
    if (made != NULL)
        job->refit_case = g_steal_pointer(&made);
    return TRUE;
}

RefitStatus refit_job_plan(RefitJob *job, const char *name) {
    const RefitStrategy *strategy;
    GError *error = NULL;

    if (g_atomic_int_get(&job->n_endpoints) > 0)
        return refit_api_refuse(&job->message, "the job has %d open endpoints; close them first",
                                g_atomic_int_get(&job->n_endpoints));
    strategy = refit_strategy_find(name != NULL ? name : REFIT_STRATEGY_DEFAULT, &error);
    if (strategy == NULL || !plan(job, strategy, &error))
        return refit_api_fail(&job->message, error);
    return REFIT_OK;
}

const char *refit_job_digest(const RefitJob *job) {
    return job->plan != NULL ? job->plan->digest : NULL;
}

const char *refit_job_strategy(const RefitJob *job) {
    return job->plan != NULL ? job->plan->strategy : NULL;
}

static gboolean has_plan(RefitJob *job) {
    if (job->plan != NULL)
        return TRUE;
    (void)refit_api_refuse(&job->message, "there is no plan; call refit_job_plan() first");
    return FALSE;
}

RefitStatus refit_job_json(RefitJob *job, char **text_out, size_t *length_out) {
    gsize length;

    if (!has_plan(job))
        return REFIT_STATUS_INVALID;
    if (text_out == NULL)
        return refit_api_refuse(&job->message, "there is no place for the text");
    *text_out = refit_plan_to_json(job->plan, &length);
    if (length_out != NULL)
        *length_out = length;
    return REFIT_OK;
}

/* ---- facts ---- */

RefitStatus refit_job_facts(RefitJob *job, RefitJobFacts *facts) {
    const RefitPlan *plan = job->plan;
    RefitBound bound;
    GError *error = NULL;

    if (!has_plan(job))
        return REFIT_STATUS_INVALID;
    if (!refit_api_check_size(facts->size, sizeof *facts, "facts of a job", &error) ||
        !refit_bound_compute(job->problem, &bound, &error))
        return refit_api_fail(&job->message, error);
    *facts = (RefitJobFacts){
        .size = facts->size,
        .n_ranks = job->problem->n_ranks,
        .n_tensors = refit_model_n_tensors(job->refit_case->model),
        .n_steps = plan->n_steps,
        .n_messages = plan->n_messages,
        .weight_bytes = job->problem->weight_bytes,
        .needed_bytes = job->problem->needed_bytes,
        .network_bytes = plan->link_bytes[REFIT_LINK_NETWORK],
        .nvlink_bytes = plan->link_bytes[REFIT_LINK_NVLINK],
        .local_bytes = plan->link_bytes[REFIT_LINK_LOCAL],
        .network_bound_bytes = bound.network_bytes,
        .time_bound_s = bound.time_s,
    };
    return REFIT_OK;
}

RefitStatus refit_job_rank_facts(RefitJob *job, uint32_t rank, RefitRankFacts *facts) {
    GError *error = NULL;

    if (!has_plan(job))
        return REFIT_STATUS_INVALID;
    if (rank >= job->problem->n_ranks)
        return refit_api_refuse(&job->message, "rank %u: the topology has %u, from 0 on", rank,
                                job->problem->n_ranks);
    if (!refit_api_check_size(facts->size, sizeof *facts, "facts of a rank", &error))
        return refit_api_fail(&job->message, error);
    const RefitRankAccount *account = &job->plan->accounts[rank];
    *facts = (RefitRankFacts){
        .size = facts->size,
        .network_in = account->in[REFIT_LINK_NETWORK],
        .network_out = account->out[REFIT_LINK_NETWORK],
        .nvlink_in = account->in[REFIT_LINK_NVLINK],
        .nvlink_out = account->out[REFIT_LINK_NVLINK],
        .local_bytes = account->in[REFIT_LINK_LOCAL],
        .staging_bytes = refit_schedule_staging_bytes(job->schedule, rank),
    };
    return REFIT_OK;
}
