/*
 * In which parts messages move: slices of a stage, chunks of what moves under one number.
 *
 * A sliced stage in which some rank would meet too many peers in one turn, or has to copy something
 * between two hops, is carried out hop after hop instead. Then the pool of wire memory is shared
 * out: a window of steps on every stream that has messages, and in each turn two slots for each
 * exchange, of which there are at most so many on any rank. All of it is counted from the plan's
 * messages, so all ranks come to the same. Cost: messages; those of sliced stages are sorted.
 */

#include "model/schedule/refit-program-private.h"

#include <string.h>

#define SLICE_ALIGN 16 /* bytes: a multiple of every element */

/* ---- slices ---- */

guint64 refit_program_cut(guint64 bytes, guint slices, guint slice) {
    if (slice >= slices)
        return bytes;
    guint64 at = bytes / slices * slice + bytes % slices * slice / slices;

    return at - at % SLICE_ALIGN;
}

guint64 refit_program_number_bytes(guint64 bytes, guint64 n_pieces, guint slices) {
    return slices == 1 ? bytes : MIN(bytes, bytes / slices + n_pieces * (SLICE_ALIGN + 1));
}

guint refit_program_index_slices(const RefitProgramIndex *index, guint batch, guint stage) {
    return index->slices[(gsize)batch * index->plan->n_stages + stage];
}

guint refit_program_message_slices(const RefitProgramIndex *index, const RefitMessage *message) {
    const RefitPair *pair = &index->plan->pairs[message->pair];

    if (pair->link == REFIT_LINK_LOCAL)
        return 1;
    return refit_program_index_slices(index, message->batch, pair->stage);
}

/* A local copy is made whole, so it cannot stand between the hops of a chain. */
static gboolean has_local_hop(const RefitProgramIndex *index, guint first, guint end) {
    const RefitPlan *plan = index->plan;

    for (guint m = first; m < end; m++) {
        guint n_deps;
        const guint *deps = refit_plan_deps_get(index->deps, plan->messages[m].pair, &n_deps);

        if (plan->pairs[plan->messages[m].pair].link != REFIT_LINK_LOCAL)
            continue;
        for (guint d = 0; d < n_deps; d++)
            if ((deps[d] & REFIT_PLAN_DEP_STAGE) == 0)
                return TRUE;
    }
    return FALSE;
}

/* ---- exchanges of a turn ---- */

typedef struct {
    RefitProgramIndex *index;
    GArray *pairs; /* scratch: guint, of the plan */
    guint *counts; /* scratch, per rank and link; zeros between calls */
    guint *most;   /* per stage and link: most exchanges of a rank in a turn */
    guint8 *used;  /* per stream: some rank has messages */
} Census;

static int compare_ends(gconstpointer left, gconstpointer right, gpointer user_data) {
    const RefitPair *pairs = user_data;
    const RefitPair *a = &pairs[*(const guint *)left], *b = &pairs[*(const guint *)right];

    if (a->src != b->src)
        return a->src < b->src ? -1 : 1;
    return (a->dst > b->dst) - (a->dst < b->dst);
}

/*
 * Pairs of the messages [first, end), one for each sender and receiver. Those of one step are
 * different, and of the hops of a chain some may be alike.
 */
static void list_pairs(const Census *census, guint first, guint end, gboolean one_step) {
    const RefitPlan *plan = census->index->plan;
    guint n = 0;

    g_array_set_size(census->pairs, 0);
    for (guint m = first; m < end; m++)
        g_array_append_val(census->pairs, plan->messages[m].pair);
    if (one_step)
        return;
    g_array_sort_with_data(census->pairs, compare_ends, (gpointer)plan->pairs);
    for (guint i = 0; i < census->pairs->len; i++) {
        guint pair = g_array_index(census->pairs, guint, i);

        if (n == 0 || compare_ends(&g_array_index(census->pairs, guint, n - 1), &pair,
                                   (gpointer)plan->pairs) != 0)
            g_array_index(census->pairs, guint, n++) = pair;
    }
    g_array_set_size(census->pairs, n);
}

/*
 * Counts the exchanges of each rank in a turn of the messages [first, end) of a stage: peers and
 * directions of all hops, which in the middle of a chain all have a slice. Returns the most of a
 * rank over all link classes, and raises `most` (by link).
 */
static guint count_exchanges(const Census *census, guint first, guint end, gboolean one_step,
                             guint *most) {
    const RefitPair *pairs = census->index->plan->pairs;
    guint most_together = 0;

    list_pairs(census, first, end, one_step);
    for (guint i = 0; i < census->pairs->len; i++) {
        const RefitPair *pair = &pairs[g_array_index(census->pairs, guint, i)];
        const guint ranks[] = {pair->src, pair->dst};

        for (guint e = 0; e < (pair->src == pair->dst ? 1u : 2u); e++) {
            guint *counts = census->counts + (gsize)ranks[e] * REFIT_N_LINKS, together = 0;

            counts[pair->link]++;
            most[pair->link] = MAX(most[pair->link], counts[pair->link]);
            for (guint link = 0; link < REFIT_N_LINKS; link++)
                together += counts[link];
            most_together = MAX(most_together, together);
        }
    }
    for (guint i = 0; i < census->pairs->len; i++) {
        const RefitPair *pair = &pairs[g_array_index(census->pairs, guint, i)];

        census->counts[(gsize)pair->src * REFIT_N_LINKS + pair->link] = 0;
        census->counts[(gsize)pair->dst * REFIT_N_LINKS + pair->link] = 0;
    }
    return most_together;
}

/* Messages [first, end) are all of a stage in a batch. */
static void enter_stage(const Census *census, guint batch, guint stage, guint first, guint end) {
    const RefitPlan *plan = census->index->plan;
    guint *slices = &census->index->slices[(gsize)batch * plan->n_stages + stage];
    guint most[REFIT_N_LINKS] = {0};

    if (*slices > 1 && (has_local_hop(census->index, first, end) ||
                        count_exchanges(census, first, end, FALSE, most) > REFIT_STEP_OPERATIONS)) {
        *slices = 1;
        memset(most, 0, sizeof most);
    }
    for (guint m = first, next; *slices == 1 && m < end; m = next) {
        for (next = m + 1; next < end && plan->messages[next].step == plan->messages[m].step;)
            next++;
        count_exchanges(census, m, next, TRUE, most);
    }
    for (guint link = 0; link < REFIT_N_LINKS; link++) {
        guint *most_of_stage = &census->most[(gsize)stage * REFIT_N_LINKS + link];

        *most_of_stage = MAX(*most_of_stage, most[link]);
        if (most[link] > 0)
            census->used[refit_program_stream(plan, stage, batch, link)] = 1;
    }
}

static void take_census(const Census *census) {
    const RefitPlan *plan = census->index->plan;
    guint n = (guint)plan->n_messages;

    for (guint first = 0, end; first < n; first = end) {
        guint batch = plan->messages[first].batch;
        guint stage = plan->pairs[plan->messages[first].pair].stage;

        for (end = first + 1; end < n && plan->messages[end].batch == batch &&
                              plan->pairs[plan->messages[end].pair].stage == stage;)
            end++;
        enter_stage(census, batch, stage, first, end);
    }
}

/* ---- chunks ---- */

guint64 refit_program_count_chunks(guint64 bytes, guint64 chunk_bytes) {
    return MAX(bytes / chunk_bytes + (bytes % chunk_bytes > 0 ? 1 : 0), 1);
}

guint64 refit_program_index_chunk_bytes(const RefitProgramIndex *index, guint stage,
                                        RefitLink link) {
    return index->chunk_bytes[(gsize)stage * REFIT_N_LINKS + link];
}

static gboolean has_landings(const RefitPlan *plan) {
    for (guint t = 0; t < plan->n_transfers; t++)
        if (plan->transfers[t].landing != REFIT_LANDING_HOME)
            return TRUE;
    return FALSE;
}

static gboolean find_pool(const RefitProgramIndex *index, guint64 *pool_out, GError **error) {
    const RefitProblem *problem = index->plan->problem;
    guint64 budget = problem->refit_case->budget_staging_bytes, most = 0;
    guint n_ranks = problem->n_ranks;

    *pool_out = REFIT_PROGRAM_POOL_BYTES;
    if (budget == 0)
        return TRUE;
    for (guint rank = has_landings(index->plan) ? 0 : n_ranks; rank < n_ranks; rank++) {
        g_autoptr(RefitLandings) landings = refit_landings_new(index, rank, error);

        if (landings == NULL)
            return FALSE;
        most = MAX(most, landings->bytes);
    }
    if (!refit_checked_round_up(most, REFIT_PROGRAM_ALIGN, "staging bytes", &most, error))
        return FALSE;
    *pool_out = MIN(budget - MIN(budget, most), REFIT_PROGRAM_POOL_BYTES);
    return TRUE;
}

static void share_out(const Census *census, guint64 pool) {
    RefitProgramIndex *index = census->index;
    const guint *most = census->most;
    gsize n = (gsize)index->plan->n_stages * REFIT_N_LINKS;
    guint n_streams = 0;
    guint64 share;
    gboolean enough = TRUE;

    for (guint stream = 0; stream < index->n_streams; stream++)
        n_streams += stream % REFIT_N_LINKS != REFIT_LINK_LOCAL && census->used[stream] != 0;
    share = pool / REFIT_PROGRAM_WIRE_SLOTS / MAX(index->plan->window, 1) / MAX(n_streams, 1);
    for (gsize i = 0; i < n; i++)
        if (i % REFIT_N_LINKS != REFIT_LINK_LOCAL)
            enough = enough && share / MAX(most[i], 1) >= REFIT_PROGRAM_ALIGN;
    index->chunk_bytes = g_new(guint64, MAX(n, 1));
    for (gsize i = 0; i < n; i++) {
        guint64 bytes = enough ? share / MAX(most[i], 1) : REFIT_PROGRAM_ALIGN;

        index->chunk_bytes[i] = i % REFIT_N_LINKS == REFIT_LINK_LOCAL
                                    ? G_MAXUINT64
                                    : bytes - bytes % REFIT_PROGRAM_ALIGN;
    }
}

gboolean refit_program_choose_parts(RefitProgramIndex *index, GError **error) {
    const RefitPlan *plan = index->plan;
    gsize n = MAX((gsize)plan->n_stages * REFIT_N_LINKS, 1);
    g_autoptr(GArray) pairs = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autofree guint *counts = g_new0(guint, MAX((gsize)plan->problem->n_ranks * REFIT_N_LINKS, 1));
    g_autofree guint *most = g_new0(guint, n);
    g_autofree guint8 *used = g_new0(guint8, MAX(index->n_streams, 1));
    const Census census = {index, pairs, counts, most, used};
    guint64 pool;

    index->slices = g_new(guint, MAX((gsize)plan->n_batches * plan->n_stages, 1));
    for (gsize i = 0; i < (gsize)plan->n_batches * plan->n_stages; i++)
        index->slices[i] = plan->stages[i % plan->n_stages].slices;
    take_census(&census);
    if (!find_pool(index, &pool, error))
        return FALSE;
    share_out(&census, pool);
    return TRUE;
}

/* ---- turns ---- */

static int compare_turns(gconstpointer left, gconstpointer right, gpointer user_data) {
    const RefitTurn *a = left, *b = right;
    const RefitProgramStep *steps = user_data;

    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    if (steps[a->step].install != steps[b->step].install)
        return steps[a->step].install ? 1 : -1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    return (steps[a->step].stream > steps[b->step].stream) -
           (steps[a->step].stream < steps[b->step].stream);
}

GArray *refit_program_list_turns(const GArray *steps) {
    GArray *turns = g_array_new(FALSE, FALSE, sizeof(RefitTurn));

    for (guint i = 0; i < steps->len; i++) {
        const RefitProgramStep *step = &g_array_index(steps, RefitProgramStep, i);

        for (guint k = 0; k < step->n_numbers * step->n_chunks; k++) {
            RefitTurn turn = {i, step->number + k / step->n_chunks, k % step->n_chunks};

            g_array_append_val(turns, turn);
        }
    }
    g_array_sort_with_data(turns, compare_turns, steps->data);
    return turns;
}
