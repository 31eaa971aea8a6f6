/*
 * Who waits for whom, by playing the schedule.
 *
 * Every operation counts the members that have come to it. A rank enters a step by joining all its
 * operations; the last member to come completes the operation, which takes one off the open
 * operations of every rank that stands at it, and a rank with none left enters its next step. Each
 * (rank, step, operation) is handled once on entry and once on completion, so the cost is linear;
 * the order in which ranks are served does not change the outcome, as completing one operation
 * never keeps another from completing.
 */

#include "model/geometry/refit-geometry.h"
#include "validation/refit-progress.h"

typedef struct {
    guint first, n; /* slice of RefitProgress.members */
} Operation;

/* Steps of one rank: step s is joined[starts[s]] up to the next start. */
typedef struct {
    GArray *starts, *joined;
} Track;

struct _RefitProgress {
    guint n_ranks;
    Track *tracks;
    GArray *operations; /* of Operation */
    GArray *members;    /* of guint, ascending per operation */
};

RefitProgress *refit_progress_new(guint n_ranks) {
    RefitProgress *progress = g_new0(RefitProgress, 1);

    progress->n_ranks = n_ranks;
    progress->tracks = g_new0(Track, MAX(n_ranks, 1));
    progress->operations = g_array_new(FALSE, FALSE, sizeof(Operation));
    progress->members = g_array_new(FALSE, FALSE, sizeof(guint));
    return progress;
}

void refit_progress_free(RefitProgress *progress) {
    if (progress == NULL)
        return;
    for (guint rank = 0; rank < progress->n_ranks; rank++) {
        g_clear_pointer(&progress->tracks[rank].starts, g_array_unref);
        g_clear_pointer(&progress->tracks[rank].joined, g_array_unref);
    }
    g_free(progress->tracks);
    g_array_unref(progress->operations);
    g_array_unref(progress->members);
    g_free(progress);
}

guint refit_progress_add_operation(RefitProgress *progress, const guint *members, guint n_members) {
    Operation operation = {progress->members->len, 0};
    guint *copy;

    for (guint i = 0; i < n_members; i++)
        g_return_val_if_fail(members[i] < progress->n_ranks, 0);
    if (n_members > 0) {
        g_array_append_vals(progress->members, members, n_members);
        copy = &g_array_index(progress->members, guint, operation.first);
        refit_ranks_sort(copy, n_members);
        operation.n = refit_ranks_drop_repeats(copy, n_members);
        g_array_set_size(progress->members, operation.first + operation.n);
    }
    g_array_append_val(progress->operations, operation);
    return progress->operations->len - 1;
}

void refit_progress_begin_step(RefitProgress *progress, guint rank) {
    Track *track;

    g_return_if_fail(rank < progress->n_ranks);
    track = &progress->tracks[rank];
    if (track->starts == NULL) {
        track->starts = g_array_new(FALSE, FALSE, sizeof(guint));
        track->joined = g_array_new(FALSE, FALSE, sizeof(guint));
    }
    g_array_append_val(track->starts, track->joined->len);
}

void refit_progress_join(RefitProgress *progress, guint rank, guint operation) {
    g_return_if_fail(rank < progress->n_ranks && operation < progress->operations->len);
    g_return_if_fail(progress->tracks[rank].starts != NULL);
    g_array_append_val(progress->tracks[rank].joined, operation);
}

/* ---- playing ---- */

/* A rank that stands at an operation; `next` links those of one operation. */
typedef struct {
    guint rank, next;
} Waiter;

#define NO_WAITER G_MAXUINT

typedef struct {
    const RefitProgress *progress;
    guint *step;    /* per rank: number of steps behind it */
    guint *open;    /* per rank: operations of its step that are not done */
    guint *come;    /* per operation: members that stand at it */
    guint *waiters; /* per operation: first of those that stand at it */
    guint *visit;   /* per operation: last visit (a rank at a step) that joined it */
    gboolean *done; /* per operation */
    guint n_visits;
    GArray *pool;  /* of Waiter */
    GQueue *ready; /* ranks whose step is over */
} Game;

static guint n_steps(const RefitProgress *progress, guint rank) {
    const Track *track = &progress->tracks[rank];

    return track->starts == NULL ? 0 : track->starts->len;
}

static guint step_end(const Track *track, guint step) {
    return step + 1 < track->starts->len ? g_array_index(track->starts, guint, step + 1)
                                         : track->joined->len;
}

static gboolean is_member(const RefitProgress *progress, guint operation, guint rank) {
    const Operation *item = &g_array_index(progress->operations, Operation, operation);
    guint lo = item->first, hi = item->first + item->n;

    while (lo < hi) {
        guint middle = lo + (hi - lo) / 2;
        if (g_array_index(progress->members, guint, middle) < rank)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < item->first + item->n && g_array_index(progress->members, guint, lo) == rank;
}

static void complete(Game *game, guint operation) {
    game->done[operation] = TRUE;
    for (guint w = game->waiters[operation]; w != NO_WAITER;) {
        const Waiter *waiter = &g_array_index(game->pool, Waiter, w);
        if (--game->open[waiter->rank] == 0)
            g_queue_push_tail(game->ready, GUINT_TO_POINTER(waiter->rank));
        w = waiter->next;
    }
}

static void join(Game *game, guint rank, guint operation) {
    const Operation *item = &g_array_index(game->progress->operations, Operation, operation);
    Waiter waiter = {rank, game->waiters[operation]};

    if (game->done[operation] || game->visit[operation] == game->n_visits)
        return;
    game->visit[operation] = game->n_visits;
    game->waiters[operation] = game->pool->len;
    g_array_append_val(game->pool, waiter);
    game->open[rank]++;
    if (is_member(game->progress, operation, rank) && ++game->come[operation] == item->n)
        complete(game, operation);
}

/* Enters the rank's step. One extra open operation keeps it from being ready half way. */
static void enter(Game *game, guint rank) {
    const Track *track = &game->progress->tracks[rank];

    if (game->step[rank] == n_steps(game->progress, rank))
        return;
    game->n_visits++;
    game->open[rank] = 1;
    for (guint i = g_array_index(track->starts, guint, game->step[rank]);
         i < step_end(track, game->step[rank]); i++)
        join(game, rank, g_array_index(track->joined, guint, i));
    if (--game->open[rank] == 0)
        g_queue_push_tail(game->ready, GUINT_TO_POINTER(rank));
}

static void play(Game *game) {
    guint n_operations = game->progress->operations->len;

    for (guint operation = 0; operation < n_operations; operation++) {
        game->waiters[operation] = NO_WAITER;
        game->done[operation] =
            g_array_index(game->progress->operations, Operation, operation).n == 0;
    }
    for (guint rank = 0; rank < game->progress->n_ranks; rank++)
        enter(game, rank);
    while (!g_queue_is_empty(game->ready)) {
        guint rank = GPOINTER_TO_UINT(g_queue_pop_head(game->ready));
        game->step[rank]++;
        enter(game, rank);
    }
}

/* ---- who is stuck ---- */

static gboolean stands_at(const Game *game, guint rank, guint operation) {
    const Track *track = &game->progress->tracks[rank];

    if (game->step[rank] == n_steps(game->progress, rank))
        return FALSE;
    for (guint i = g_array_index(track->starts, guint, game->step[rank]);
         i < step_end(track, game->step[rank]); i++)
        if (g_array_index(track->joined, guint, i) == operation)
            return TRUE;
    return FALSE;
}

static RefitStuck describe(const Game *game, guint rank) {
    const RefitProgress *progress = game->progress;
    const Track *track = &progress->tracks[rank];
    RefitStuck stuck = {.rank = rank, .step = game->step[rank]};
    guint i = g_array_index(track->starts, guint, stuck.step);
    const Operation *item;

    while (game->done[g_array_index(track->joined, guint, i)])
        i++;
    stuck.operation = g_array_index(track->joined, guint, i);
    item = &g_array_index(progress->operations, Operation, stuck.operation);
    for (guint m = 0; m < item->n; m++) {
        stuck.missing = g_array_index(progress->members, guint, item->first + m);
        if (!stands_at(game, stuck.missing, stuck.operation))
            break;
    }
    stuck.missing_ended = game->step[stuck.missing] == n_steps(progress, stuck.missing);
    return stuck;
}

RefitProgressResult *refit_progress_run(const RefitProgress *progress) {
    guint n_ranks = MAX(progress->n_ranks, 1), n_operations = MAX(progress->operations->len, 1);
    RefitProgressResult *result = g_new0(RefitProgressResult, 1);
    g_autofree guint *step = g_new0(guint, n_ranks);
    g_autofree guint *open = g_new0(guint, n_ranks);
    g_autofree guint *come = g_new0(guint, n_operations);
    g_autofree guint *waiters = g_new0(guint, n_operations);
    g_autofree guint *visit = g_new0(guint, n_operations);
    g_autofree gboolean *done = g_new0(gboolean, n_operations);
    g_autoptr(GArray) pool = g_array_new(FALSE, FALSE, sizeof(Waiter));
    g_autoptr(GArray) stuck = g_array_new(FALSE, FALSE, sizeof(RefitStuck));
    g_autoptr(GQueue) ready = g_queue_new();
    Game game = {.progress = progress,
                 .step = step,
                 .open = open,
                 .come = come,
                 .waiters = waiters,
                 .visit = visit,
                 .done = done,
                 .pool = pool,
                 .ready = ready};

    play(&game);
    for (guint rank = 0; rank < progress->n_ranks; rank++) {
        if (step[rank] == n_steps(progress, rank))
            continue;
        RefitStuck item = describe(&game, rank);
        g_array_append_val(stuck, item);
    }
    result->finishes = stuck->len == 0;
    result->n_stuck = stuck->len;
    result->stuck = (RefitStuck *)(gpointer)g_array_free(g_steal_pointer(&stuck), FALSE);
    return result;
}

void refit_progress_result_free(RefitProgressResult *result) {
    if (result == NULL)
        return;
    g_free(result->stuck);
    g_free(result);
}
