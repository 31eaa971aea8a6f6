/*
 * A reference executor, one event at a time.
 *
 * A turn starts, its messages are packed, leave, arrive and are unpacked: each is an event of its
 * own, so that whatever a program allows to overlap can overlap here. Bytes are read and written at
 * the event and no earlier, which shows a wait that is missing as wrong bytes. A message leaves
 * when both ends have started it. Cost: events times a sweep over ranks and streams.
 */

#include "program-run.h"

#include <string.h>

#define PADDING 0xa5
#define MANY_TURNS 20000

/* ---- making programs ---- */

static RefitRankViews *views_of(const RefitLayout *layout, guint rank) {
    g_autoptr(GError) error = NULL;
    RefitRankViews *views = refit_rank_views_new(layout, rank, &error);

    g_assert_no_error(error);
    return views;
}

ProgramSet *program_set_new(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    const RefitCase *refit_case = plan->problem->refit_case;
    ProgramSet *set = g_new0(ProgramSet, 1);

    set->plan = plan;
    set->n_ranks = plan->problem->n_ranks;
    set->source = g_new0(RefitRankViews *, set->n_ranks);
    set->destination = g_new0(RefitRankViews *, set->n_ranks);
    set->programs = g_new0(RefitProgram *, set->n_ranks);
    set->schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    g_assert_true(refit_schedule_check(set->schedule, &error));
    g_assert_no_error(error);
    for (guint rank = 0; rank < set->n_ranks; rank++) {
        if (plan->problem->failed[rank])
            continue;
        if (refit_layout_has_rank(refit_case->source, rank))
            set->source[rank] = views_of(refit_case->source, rank);
        for (guint d = 0; d < refit_case->n_destinations; d++)
            if (refit_layout_has_rank(refit_case->destinations[d], rank))
                set->destination[rank] = views_of(refit_case->destinations[d], rank);
        set->programs[rank] = refit_program_new(set->schedule, rank, set->source[rank],
                                                set->destination[rank], &error);
        g_assert_no_error(error);
        g_assert_true(refit_program_check(set->programs[rank], &error));
        g_assert_no_error(error);
    }
    g_assert_true(
        refit_programs_check((const RefitProgram *const *)set->programs, set->n_ranks, &error));
    g_assert_no_error(error);
    return set;
}

void program_set_free(ProgramSet *set) {
    if (set == NULL)
        return;
    for (guint rank = 0; rank < set->n_ranks; rank++) {
        refit_program_free(set->programs[rank]);
        refit_rank_views_free(set->source[rank]);
        refit_rank_views_free(set->destination[rank]);
    }
    refit_schedule_free(set->schedule);
    g_free(set->source);
    g_free(set->destination);
    g_free(set->programs);
    g_free(set);
}

/* ---- memory ---- */

typedef struct {
    guint n;
    guint8 **bytes;
    guint64 *sizes;
} Memory;

/* The two sides and staging memory, by RefitMemory. */
typedef struct {
    Memory memory[REFIT_MEMORY_MESSAGE];
} Store;

static guint8 value_byte(guint tensor, guint64 element, guint byte) {
    guint64 x = ((guint64)tensor << 40) + element * 8 + byte / 8 + 1;

    x = (x ^ (x >> 31)) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 29)) * G_GUINT64_CONSTANT(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return (guint8)(x >> (byte % 8 * 8));
}

static void put_element(guint8 *bytes, guint64 place, RefitDtype dtype, guint tensor,
                        guint64 element) {
    guint bits = refit_dtype_bits(dtype);

    for (guint b = 0; b < bits / 8; b++)
        bytes[place * (bits / 8) + b] = value_byte(tensor, element, b);
    if (bits == 4) {
        guint shift = place % 2 * 4;

        bytes[place / 2] = (guint8)((bytes[place / 2] & ~(0xf << shift)) |
                                    (value_byte(tensor, element, 0) & 0xf) << shift);
    }
}

/* All elements of a view, dim by dim. */
static void put_view(guint8 *bytes, const RefitView *view, const RefitTensor *tensor,
                     RefitDtype dtype, guint dim, guint64 place, guint64 element) {
    if (dim == view->region.n_dims) {
        put_element(bytes, place, dtype, view->tensor, element);
        return;
    }
    const RefitIntervalList *list = view->region.dims[dim];
    for (guint i = 0; i < list->n; i++)
        for (guint64 k = list->items[i].lo; k < list->items[i].hi; k++)
            put_view(bytes, view, tensor, dtype, dim + 1,
                     place + (list->items[i].at + k - list->items[i].lo) * view->stride[dim],
                     element * tensor->shape[dim] + k);
}

guint8 *program_parameter_bytes(const RefitRankViews *views, guint parameter,
                                const RefitModel *model, gboolean filled) {
    guint64 size = views->parameters[parameter].bytes;
    guint8 *bytes = g_malloc(MAX(size, 1));

    memset(bytes, PADDING, size);
    for (guint v = 0; filled && v < views->n_views; v++) {
        const RefitView *view = &views->views[v];

        if (view->parameter == parameter)
            put_view(bytes, view, refit_model_tensor(model, view->tensor),
                     views->parameters[parameter].dtype, 0, view->offset, 0);
    }
    return bytes;
}

static void memory_init(Memory *memory, const RefitRankViews *views, const RefitModel *model,
                        gboolean filled) {
    memory->n = views == NULL ? 0 : views->n_parameters;
    memory->bytes = g_new(guint8 *, MAX(memory->n, 1));
    memory->sizes = g_new(guint64, MAX(memory->n, 1));
    for (guint p = 0; p < memory->n; p++) {
        memory->sizes[p] = views->parameters[p].bytes;
        memory->bytes[p] = program_parameter_bytes(views, p, model, filled);
    }
}

static void memory_clear(Memory *memory) {
    for (guint p = 0; p < memory->n; p++)
        g_free(memory->bytes[p]);
    g_free(memory->bytes);
    g_free(memory->sizes);
}

static guint8 *bytes_at(Store *store, guint memory, guint parameter, guint64 offset,
                        guint64 bytes) {
    Memory *self = &store->memory[memory];

    g_assert_cmpuint(memory, <, REFIT_MEMORY_MESSAGE);
    g_assert_cmpuint(parameter, <, self->n);
    g_assert_true(offset <= self->sizes[parameter] && bytes <= self->sizes[parameter] - offset);
    return self->bytes[parameter] + offset;
}

/* ---- messages ---- */

typedef enum { STARTED, PACKED, SENT, ARRIVED, DONE } State;

/* An exchange in one turn. */
typedef struct {
    const RefitProgram *program;
    const RefitExchange *exchange;
    const RefitTurn *turn;
    guint64 bytes;
    State state;
    GByteArray *on_the_way; /* of the sender; NULL until it leaves */
    guint *left;            /* of its turn: exchanges that are not done */
} Op;

typedef struct {
    const RefitProgram *program;
    Store store;
    GArray **on_stream; /* per stream: guint, its turns */
    guint *started;     /* per stream */
    guint *turn_left;   /* per turn: exchanges not done; G_MAXUINT before it starts */
    guint *done_prefix; /* per stream: turns done, without a gap */
    guint n_done;       /* turns done, without a gap */
    GPtrArray *ops;     /* of this rank; borrowed */
} Rank;

typedef struct {
    const ProgramSet *set;
    Rank *ranks;
    GPtrArray *ops; /* Op, started and not done */
    GRand *rand;
    ProgramOrder order;
} Run;

/*
 * Where the chunk of an op begins in what its exchange moves under its number, by the rule: so many
 * grains, and as many chunks as the step wants, but no more than grains.
 */
static guint64 chunk_begins(const Op *op) {
    const RefitCutting *cutting = &op->program->steps[op->turn->step].cutting;
    guint64 bytes = op->exchange->sliced ? 0 : op->exchange->bytes, grains, n;

    for (guint i = 0; op->exchange->sliced && i < op->exchange->n_pieces; i++) {
        guint64 from, to;

        refit_program_slice(&op->program->pieces[op->exchange->first_piece + i], op->turn->number,
                            &from, &to);
        bytes += to - from;
    }
    grains = (bytes + cutting->grain - 1) / cutting->grain;
    n = MIN(grains, cutting->n);
    g_assert_cmpuint(op->turn->chunk, <, n);
    return grains * op->turn->chunk / n * cutting->grain;
}

/* Where the message of an op lies at one end. */
static guint8 *message_at(Run *run, const Op *op) {
    const RefitExchange *exchange = op->exchange;
    Store *store = &run->ranks[op->program->rank].store;
    guint place = refit_program_turn_place(op->program, op->turn);
    guint64 from = 0, to;
    guint64 offset = exchange->offset;

    if (!exchange->direct) {
        g_assert_cmpuint(op->bytes, <=, exchange->wire_bytes);
        return bytes_at(store, REFIT_MEMORY_STAGING, 0,
                        exchange->wire + place % REFIT_SCHEDULE_SLOTS * exchange->wire_step,
                        op->bytes);
    }
    if (exchange->sliced)
        refit_program_slice(&op->program->pieces[exchange->first_piece], op->turn->number, &from,
                            &to);
    offset += from + chunk_begins(op);
    g_assert_cmpuint(refit_program_exchange_offset(op->program, exchange, op->turn), ==, offset);
    return bytes_at(store, exchange->memory, exchange->parameter, offset, op->bytes);
}

/* Copies between memory and `message`, which local copies do not touch. */
static void copy_runs(Run *run, const Op *op, guint8 *message) {
    Store *store = &run->ranks[op->program->rank].store;
    g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun));
    guint64 copied = 0;

    refit_program_append_runs(op->program, op->exchange, op->turn, runs);
    for (guint i = 0; i < runs->len; i++) {
        const RefitByteRun *item = &g_array_index(runs, RefitByteRun, i);
        const guint8 *from =
            item->from_memory == REFIT_MEMORY_MESSAGE
                ? message + item->from
                : bytes_at(store, item->from_memory, item->from_parameter, item->from, item->bytes);
        guint8 *to =
            item->to_memory == REFIT_MEMORY_MESSAGE
                ? message + item->to
                : bytes_at(store, item->to_memory, item->to_parameter, item->to, item->bytes);

        if (item->from_memory == REFIT_MEMORY_MESSAGE)
            g_assert_cmpuint(item->from + item->bytes, <=, op->bytes);
        if (item->to_memory == REFIT_MEMORY_MESSAGE)
            g_assert_cmpuint(item->to + item->bytes, <=, op->bytes);
        memmove(to, from, item->bytes);
        copied += item->bytes;
    }
    g_assert_cmpuint(copied, >=, op->bytes);
}

/* A message that is one run in memory is the same by its runs. */
static void check_direct(Run *run, const Op *op) {
    g_autofree guint8 *packed = g_malloc(op->bytes);

    if (op->exchange->sends) {
        copy_runs(run, op, packed);
        g_assert_true(memcmp(packed, message_at(run, op), op->bytes) == 0);
    } else {
        guint8 *message = message_at(run, op);

        memcpy(packed, message, op->bytes);
        memset(message, PADDING, op->bytes);
        copy_runs(run, op, packed);
        g_assert_true(memcmp(packed, message, op->bytes) == 0);
    }
}

static Op *find_peer(const Run *run, const Op *op) {
    const GPtrArray *ops = run->ranks[op->exchange->peer].ops;

    for (guint i = 0; i < ops->len; i++) {
        Op *other = g_ptr_array_index(ops, i);

        if (other->turn->number == op->turn->number && other->turn->chunk == op->turn->chunk &&
            other->exchange->peer == op->program->rank &&
            other->exchange->sends != op->exchange->sends)
            return other;
    }
    return NULL;
}

/* One event of an op. FALSE when nothing can happen to it now. */
static gboolean advance(Run *run, Op *op) {
    guint8 no_message = 0;
    Op *peer;

    if (op->exchange->peer == op->program->rank) {
        copy_runs(run, op, &no_message);
        op->state = DONE;
        return TRUE;
    }
    switch (op->state) {
    case STARTED:
        if (op->exchange->sends && op->exchange->direct)
            check_direct(run, op);
        else if (op->exchange->sends)
            copy_runs(run, op, message_at(run, op));
        op->state = PACKED;
        return TRUE;
    case PACKED:
        peer = find_peer(run, op);
        if (!op->exchange->sends || peer == NULL)
            return FALSE;
        g_assert_cmpuint(peer->bytes, ==, op->bytes);
        op->on_the_way = g_byte_array_new();
        g_byte_array_append(op->on_the_way, message_at(run, op), (guint)op->bytes);
        peer->on_the_way = g_byte_array_ref(op->on_the_way);
        peer->state = SENT;
        op->state = DONE;
        return TRUE;
    case SENT:
        memcpy(message_at(run, op), op->on_the_way->data, op->bytes);
        op->state = ARRIVED;
        return TRUE;
    case ARRIVED:
        if (op->exchange->direct)
            check_direct(run, op);
        else
            copy_runs(run, op, message_at(run, op));
        op->state = DONE;
        return TRUE;
    default:
        return FALSE;
    }
}

static void free_op(gpointer data) {
    Op *op = data;

    g_clear_pointer(&op->on_the_way, g_byte_array_unref);
    g_free(op);
}

/* ---- turns ---- */

/* Turns of step `on` and of those before it on its stream that `turn` waits for are done. */
static gboolean is_waited_for(const Rank *rank, const RefitTurn *turn, const RefitWait *wait) {
    const RefitProgramStep *on = &rank->program->steps[wait->step];
    guint n = on->n_numbers;

    if (wait->in_slices && turn->number <= on->number)
        return TRUE;
    if (wait->in_slices)
        n = MIN(n, turn->number - on->number);
    return rank->done_prefix[on->stream] >= on->first_turn + n * on->n_chunks;
}

static gboolean may_start(const Run *run, const Rank *rank, guint t) {
    const RefitTurn *turn = &rank->program->turns[t];
    const RefitProgramStep *step = &rank->program->steps[turn->step];
    guint place = refit_program_turn_place(rank->program, turn);

    if (step->link != REFIT_LINK_LOCAL && place >= REFIT_SCHEDULE_SLOTS &&
        rank->turn_left[g_array_index(rank->on_stream[step->stream], guint,
                                      place - REFIT_SCHEDULE_SLOTS)] != 0)
        return FALSE;
    if (run->order == PROGRAM_ORDER_SERIAL && rank->n_done < t)
        return FALSE;
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++)
        if (!is_waited_for(rank, turn, &rank->program->waits[w]))
            return FALSE;
    return TRUE;
}

static void start(Run *run, Rank *rank, guint t) {
    const RefitProgram *program = rank->program;
    const RefitTurn *turn = &program->turns[t];
    const RefitProgramStep *step = &program->steps[turn->step];

    rank->turn_left[t] = 0;
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitExchange *exchange = &program->exchanges[e];
        guint64 bytes = refit_program_exchange_bytes(program, exchange, turn);
        Op *op;

        if (bytes == 0)
            continue;
        op = g_new0(Op, 1);
        *op = (Op){.program = program,
                   .exchange = exchange,
                   .turn = turn,
                   .bytes = bytes,
                   .left = &rank->turn_left[t]};
        rank->turn_left[t]++;
        g_ptr_array_add(run->ops, op);
        g_ptr_array_add(rank->ops, op);
    }
}

static void count_done(Rank *rank, guint stream) {
    const GArray *turns = rank->on_stream[stream];

    while (rank->done_prefix[stream] < turns->len &&
           rank->turn_left[g_array_index(turns, guint, rank->done_prefix[stream])] == 0)
        rank->done_prefix[stream]++;
    while (rank->n_done < rank->program->n_turns && rank->turn_left[rank->n_done] == 0)
        rank->n_done++;
}

static gboolean is_chosen(const Run *run) {
    return run->order != PROGRAM_ORDER_RANDOM || g_rand_int_range(run->rand, 0, 3) == 0;
}

/* One sweep. *moved: something happened or was put off. */
static void sweep(Run *run, gboolean *moved) {
    for (guint r = 0; r < run->set->n_ranks; r++) {
        Rank *rank = &run->ranks[r];

        for (guint s = 0; rank->program != NULL && s < rank->program->n_streams; s++) {
            const GArray *turns = rank->on_stream[s];

            while (rank->started[s] < turns->len) {
                guint t = g_array_index(turns, guint, rank->started[s]);

                if (!may_start(run, rank, t))
                    break;
                *moved = TRUE;
                if (!is_chosen(run))
                    break;
                start(run, rank, t);
                rank->started[s]++;
                count_done(rank, s);
            }
        }
    }
    for (guint i = run->ops->len; i-- > 0;) {
        Op *op = g_ptr_array_index(run->ops, i);

        if (!is_chosen(run)) {
            *moved = TRUE;
            continue;
        }
        if (!advance(run, op))
            continue;
        *moved = TRUE;
    }
    for (guint i = run->ops->len; i-- > 0;) {
        Op *op = g_ptr_array_index(run->ops, i);
        Rank *rank = &run->ranks[op->program->rank];

        if (op->state != DONE)
            continue;
        (*op->left)--;
        g_ptr_array_remove_fast(rank->ops, op);
        g_ptr_array_remove_index_fast(run->ops, i);
        for (guint s = 0; s < rank->program->n_streams; s++)
            count_done(rank, s);
    }
}

/* ---- the whole ---- */

static void rank_init(Rank *rank, const ProgramSet *set, guint number) {
    const RefitModel *model = set->plan->problem->refit_case->model;
    const RefitProgram *program = set->programs[number];
    Memory *staging = &rank->store.memory[REFIT_MEMORY_STAGING];

    rank->program = program;
    rank->ops = g_ptr_array_new();
    memory_init(&rank->store.memory[REFIT_MEMORY_SOURCE], set->source[number], model, TRUE);
    memory_init(&rank->store.memory[REFIT_MEMORY_DESTINATION], set->destination[number], model,
                FALSE);
    staging->n = 1;
    staging->bytes = g_new0(guint8 *, 1);
    staging->sizes = g_new0(guint64, 1);
    if (program == NULL)
        return;
    staging->sizes[0] = program->staging_bytes;
    staging->bytes[0] = g_malloc(MAX(program->staging_bytes, 1));
    memset(staging->bytes[0], PADDING, program->staging_bytes);
    rank->on_stream = g_new(GArray *, program->n_streams);
    for (guint s = 0; s < program->n_streams; s++)
        rank->on_stream[s] = g_array_new(FALSE, FALSE, sizeof(guint));
    rank->started = g_new0(guint, program->n_streams);
    rank->done_prefix = g_new0(guint, program->n_streams);
    rank->turn_left = g_new(guint, MAX(program->n_turns, 1));
    for (guint t = 0; t < program->n_turns; t++) {
        const RefitProgramStep *step = &program->steps[program->turns[t].step];
        GArray *turns = rank->on_stream[step->stream];

        rank->turn_left[t] = G_MAXUINT;
        g_assert_cmpuint(refit_program_turn_place(program, &program->turns[t]), ==, turns->len);
        g_array_append_val(turns, t);
    }
}

static void rank_clear(Rank *rank) {
    for (guint m = 0; m < G_N_ELEMENTS(rank->store.memory); m++)
        memory_clear(&rank->store.memory[m]);
    for (guint s = 0; rank->program != NULL && s < rank->program->n_streams; s++)
        g_array_unref(rank->on_stream[s]);
    g_ptr_array_unref(rank->ops);
    g_free(rank->on_stream);
    g_free(rank->started);
    g_free(rank->done_prefix);
    g_free(rank->turn_left);
}

static char *compare_memory(const ProgramSet *set, guint rank, const RefitRankViews *views,
                            const Memory *got) {
    Memory wanted;
    char *complaint = NULL;

    memory_init(&wanted, views, set->plan->problem->refit_case->model, TRUE);
    for (guint p = 0; complaint == NULL && p < wanted.n; p++) {
        guint64 at = 0;

        while (at < wanted.sizes[p] && wanted.bytes[p][at] == got->bytes[p][at])
            at++;
        if (at < wanted.sizes[p])
            complaint = g_strdup_printf("rank %u: byte %" G_GUINT64_FORMAT " of %s is %02x and "
                                        "must be %02x",
                                        rank, at, views->parameters[p].name, got->bytes[p][at],
                                        wanted.bytes[p][at]);
    }
    memory_clear(&wanted);
    return complaint;
}

static char *compare_all(const Run *run) {
    const ProgramSet *set = run->set;

    for (guint r = 0; r < set->n_ranks; r++) {
        const Rank *rank = &run->ranks[r];
        char *complaint = NULL;

        for (guint s = 0; rank->program != NULL && s < rank->program->n_streams; s++)
            if (rank->done_prefix[s] < rank->on_stream[s]->len)
                return g_strdup_printf("rank %u, stream %u: stuck at turn %u of %u", r, s,
                                       rank->done_prefix[s], rank->on_stream[s]->len);
        complaint =
            compare_memory(set, r, set->source[r], &rank->store.memory[REFIT_MEMORY_SOURCE]);
        if (complaint == NULL)
            complaint = compare_memory(set, r, set->destination[r],
                                       &rank->store.memory[REFIT_MEMORY_DESTINATION]);
        if (complaint != NULL)
            return complaint;
    }
    return NULL;
}

char *program_set_run(const ProgramSet *set, ProgramOrder order, guint seed) {
    Run run = {.set = set,
               .ranks = g_new0(Rank, set->n_ranks),
               .ops = g_ptr_array_new_with_free_func(free_op),
               .rand = g_rand_new_with_seed(seed),
               .order = order};
    gboolean moved = TRUE;
    char *complaint;

    for (guint r = 0; r < set->n_ranks; r++)
        rank_init(&run.ranks[r], set, r);
    while (moved) {
        moved = FALSE;
        sweep(&run, &moved);
    }
    complaint = compare_all(&run);
    for (guint r = 0; r < set->n_ranks; r++)
        rank_clear(&run.ranks[r]);
    g_ptr_array_unref(run.ops);
    g_rand_free(run.rand);
    g_free(run.ranks);
    return complaint;
}

void program_set_assert_right(const ProgramSet *set, guint seed) {
    static const ProgramOrder orders[] = {PROGRAM_ORDER_EAGER, PROGRAM_ORDER_SERIAL,
                                          PROGRAM_ORDER_RANDOM, PROGRAM_ORDER_RANDOM};
    guint n_turns = 0;

    for (guint rank = 0; rank < set->n_ranks; rank++)
        n_turns += set->programs[rank] != NULL ? set->programs[rank]->n_turns : 0;
    for (guint i = 0; i < (n_turns > MANY_TURNS ? 1 : G_N_ELEMENTS(orders)); i++) {
        g_autofree char *complaint = program_set_run(set, orders[i], seed + i);

        g_assert_cmpstr(complaint, ==, NULL);
    }
}
