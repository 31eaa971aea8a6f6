/*
 * Making a program: the rank's steps and exchanges are those of the schedule; what is added is
 * where their bytes lie.
 *
 * Each exchange lists its pieces, which both ends do alike, and each piece its copies
 * (refit-program-copies.c). An exchange that the schedule sends or receives straight must be one
 * run in memory; any other has a place in its stream's wire memory, behind those of its step before
 * it. Cost: the rank's pieces and turns.
 */

#include "model/base/refit-checked.h"
#include "model/schedule/refit-program-private.h"

#include <string.h>

typedef struct {
    const RefitSchedule *schedule;
    guint rank;
    guint n_steps;
    RefitProgramStep *steps;
    guint first_exchange, n_exchanges; /* of the schedule */
    RefitExchange *exchanges;
    GArray *pieces; /* RefitProgramPiece */
    RefitCopier *copier;
    const RefitLandings *landings;
    guint next_bucket;
    guint64 *wires; /* per stream: bytes of a slot */
    guint *n_turns; /* per stream */
    GArray *seeds;  /* scratch: RefitPieceSeed */
} Build;

/* ---- exchanges ---- */

/* The message is one run in memory, as the schedule says; where? */
static gboolean find_run(const Build *build, RefitExchange *exchange) {
    guint64 next = 0;

    for (guint i = 0; i < exchange->n_pieces; i++) {
        const RefitProgramPiece *piece =
            &g_array_index(build->pieces, RefitProgramPiece, exchange->first_piece + i);
        const RefitCopy *copy = &g_array_index(build->copier->copies, RefitCopy, piece->first_copy);
        const RefitPlace *place = exchange->sends ? &copy->from : &copy->to;
        guint64 element, at;

        if (piece->n_copies != 1 || !refit_view_is_run(place->view, copy->region, &element))
            return FALSE;
        at = place->base + refit_program_bytes(piece->dtype, element);
        if (i == 0) {
            exchange->memory = place->memory;
            exchange->parameter =
                place->memory == REFIT_MEMORY_STAGING ? 0 : place->view->parameter;
            exchange->offset = at;
        } else if (place->memory != exchange->memory || at != next ||
                   (place->memory != REFIT_MEMORY_STAGING &&
                    place->view->parameter != exchange->parameter)) {
            return FALSE;
        }
        next = at + piece->bytes;
    }
    return TRUE;
}

static gboolean add_pieces(Build *build, const RefitScheduleExchange *planned,
                           RefitExchange *exchange, GError **error) {
    gboolean local = planned->kind == REFIT_EXCHANGE_COPY;
    guint64 at = 0;

    refit_program_list_pieces(build->schedule, build->schedule->messages + planned->first,
                              planned->n_messages, build->seeds);
    exchange->first_piece = build->pieces->len;
    exchange->n_pieces = build->seeds->len;
    for (guint i = 0; i < build->seeds->len; i++) {
        const RefitPieceSeed *seed = &g_array_index(build->seeds, RefitPieceSeed, i);
        RefitProgramPiece piece = {
            .transfer = seed->transfer,
            .tensor = seed->tensor,
            .dtype = seed->dtype,
            .slices = refit_schedule_message_slices(build->schedule, seed->message),
            .number = seed->message->step,
            .bytes = seed->bytes,
            .at = at,
            .first_copy = build->copier->copies->len};

        if (!refit_copier_add(build->copier, seed, exchange->sends || local,
                              !exchange->sends || local, error))
            return FALSE;
        piece.n_copies = build->copier->copies->len - piece.first_copy;
        g_array_append_val(build->pieces, piece);
        at += seed->bytes;
    }
    return TRUE;
}

static gboolean check_run(const Build *build, const RefitProgramStep *step, RefitExchange *exchange,
                          GError **error) {
    if (find_run(build, exchange))
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "rank %u, step %u: what it %s rank %u is not one run in its parameters, as the "
                "layout has it",
                build->rank, step->number, exchange->sends ? "sends to" : "receives from",
                exchange->peer);
    return FALSE;
}

static gboolean add_exchange(Build *build, const RefitProgramStep *step, guint number,
                             GError **error) {
    const RefitScheduleExchange *planned =
        &build->schedule->exchanges[build->first_exchange + number];
    RefitExchange *exchange = &build->exchanges[number];

    *exchange = (RefitExchange){.peer = planned->peer,
                                .sends = planned->kind == REFIT_EXCHANGE_SEND,
                                .sliced = planned->slices > 1,
                                .direct = planned->direct != 0,
                                .bytes = refit_schedule_exchange_bytes(build->schedule, planned)};
    return add_pieces(build, planned, exchange, error) &&
           (!exchange->direct || check_run(build, step, exchange, error));
}

/* Places the packed exchanges of a step of the schedule. */
static gboolean take_wires(Build *build, const RefitScheduleStep *step, GError **error) {
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(guint64));
    guint64 bytes;
    guint next = 0;

    if (!refit_schedule_place_wires(build->schedule, step, places, &bytes, error))
        return FALSE;
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *planned = &build->schedule->exchanges[e];
        RefitExchange *exchange = &build->exchanges[e - build->first_exchange];

        if (exchange->direct)
            continue;
        exchange->wire = g_array_index(places, guint64, next++);
        if (!refit_checked_round_up(
                refit_cutting_most(&step->cutting,
                                   refit_schedule_most_bytes(build->schedule, planned)),
                REFIT_SCHEDULE_ALIGN, "staging bytes", &exchange->wire_bytes, error))
            return FALSE;
    }
    build->wires[step->stream] = MAX(build->wires[step->stream], bytes);
    return TRUE;
}

/* ---- installs ---- */

static void add_install_pieces(Build *build, const RefitBucketTensor *bucket, guint number) {
    const RefitPlan *plan = build->schedule->plan;
    const RefitClass *klass = &plan->problem->classes[plan->sections[bucket->section].class_index];
    RefitCopier *copier = build->copier;
    guint n = 0;
    const RefitView *views =
        copier->views[REFIT_MEMORY_DESTINATION] == NULL
            ? NULL
            : refit_rank_views_find(copier->views[REFIT_MEMORY_DESTINATION], bucket->tensor, &n);

    for (guint v = 0; v < n; v++) {
        RefitProgramPiece piece = {.transfer = G_MAXUINT,
                                   .tensor = bucket->tensor,
                                   .dtype = klass->dtype,
                                   .slices = 1,
                                   .number = number,
                                   .first_copy = copier->copies->len,
                                   .n_copies = 1};

        piece.bytes = refit_class_bytes(klass, refit_copier_add_install(copier, bucket, &views[v]));
        if (piece.bytes > 0)
            g_array_append_val(build->pieces, piece);
    }
}

/* What this rank needs of the buckets of a batch. */
static gboolean add_install(Build *build, const RefitProgramStep *step, GError **error) {
    const GArray *buckets = build->landings->buckets;
    RefitExchange *exchange = &build->exchanges[step->first_exchange];
    guint64 planned = refit_schedule_exchange_bytes(
        build->schedule, &build->schedule->exchanges[build->first_exchange + step->first_exchange]);

    *exchange = (RefitExchange){.peer = build->rank, .first_piece = build->pieces->len};
    for (; build->next_bucket < buckets->len; build->next_bucket++) {
        const RefitBucketTensor *bucket =
            &g_array_index(buckets, RefitBucketTensor, build->next_bucket);

        if (bucket->batch > step->batch)
            break;
        add_install_pieces(build, bucket, step->number);
    }
    exchange->n_pieces = build->pieces->len - exchange->first_piece;
    for (guint i = 0; i < exchange->n_pieces; i++)
        exchange->bytes +=
            g_array_index(build->pieces, RefitProgramPiece, exchange->first_piece + i).bytes;
    if (exchange->bytes == planned)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "rank %u, step %u: its parameters take %" G_GUINT64_FORMAT
                " bytes out of buckets, but its layout needs %" G_GUINT64_FORMAT,
                build->rank, step->number, exchange->bytes, planned);
    return FALSE;
}

/* ---- the whole ---- */

static gboolean add_step(Build *build, RefitProgramStep *step, GError **error) {
    const RefitScheduleStep planned = *step;

    step->first_exchange -= build->first_exchange;
    build->n_turns[step->stream] += step->n_numbers * step->n_chunks;
    if (step->install != 0)
        return add_install(build, step, error);
    for (guint e = 0; e < step->n_exchanges; e++)
        if (!add_exchange(build, step, step->first_exchange + e, error))
            return FALSE;
    return step->link == REFIT_LINK_LOCAL || take_wires(build, &planned, error);
}

/* Wire memory follows the landings, stream after stream. */
static gboolean place_wires(const Build *build, guint64 *bytes_out, GError **error) {
    guint n_streams = build->schedule->n_streams;
    g_autofree guint64 *starts = g_new(guint64, MAX(n_streams, 1));

    *bytes_out = build->schedule->ranks[build->rank].landing_bytes;
    for (guint s = 0; s < n_streams; s++) {
        guint64 bytes;

        starts[s] = *bytes_out;
        if (!refit_checked_mul(build->wires[s], MIN(build->n_turns[s], REFIT_SCHEDULE_SLOTS),
                               "staging bytes", &bytes, error) ||
            !refit_checked_add(*bytes_out, bytes, "staging bytes", bytes_out, error))
            return FALSE;
    }
    for (guint i = 0; i < build->n_steps; i++)
        for (guint e = 0; e < build->steps[i].n_exchanges; e++) {
            RefitExchange *exchange = &build->exchanges[build->steps[i].first_exchange + e];

            if (exchange->wire_bytes == 0)
                continue;
            exchange->wire += starts[build->steps[i].stream];
            exchange->wire_step = build->wires[build->steps[i].stream];
            exchange->wire_slots =
                MIN(build->n_turns[build->steps[i].stream], REFIT_SCHEDULE_SLOTS);
        }
    return TRUE;
}

/* Pieces of all messages of the rank, as far as that is a number of this type. */
static guint count_pieces(const RefitSchedule *schedule, guint rank) {
    guint n_steps;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);
    guint64 n = 0;

    for (guint i = 0; i < n_steps; i++)
        for (guint e = 0; e < steps[i].n_exchanges; e++) {
            const RefitScheduleExchange *exchange =
                &schedule->exchanges[steps[i].first_exchange + e];

            for (guint m = 0; m < exchange->n_messages; m++)
                n += schedule->plan->messages[schedule->messages[exchange->first + m]].tensors;
        }
    return (guint)MIN(n, G_MAXINT / sizeof(RefitCopy));
}

static void sum_bytes(const Build *build, RefitProgram *program) {
    for (guint i = 0; i < build->n_steps; i++) {
        const RefitProgramStep *step = &build->steps[i];

        for (guint e = step->first_exchange;
             step->install == 0 && e < step->first_exchange + step->n_exchanges; e++) {
            const RefitExchange *exchange = &build->exchanges[e];

            if (exchange->sends || step->link == REFIT_LINK_LOCAL)
                program->out[step->link] += exchange->bytes;
            if (!exchange->sends)
                program->in[step->link] += exchange->bytes;
        }
    }
}

/* The rank's waits, which lie together. */
static RefitWait *copy_waits(const Build *build, guint *n_out) {
    guint first = build->n_steps > 0 ? build->steps[0].first_wait : 0, n = 0;

    for (guint i = 0; i < build->n_steps; i++) {
        build->steps[i].first_wait -= first;
        n += build->steps[i].n_waits;
    }
    *n_out = n;
    return g_memdup2(build->schedule->waits + first, n * sizeof(RefitWait));
}

static gpointer take_array(GArray **array, guint *n_out) {
    *n_out = (*array)->len;
    return g_array_free(g_steal_pointer(array), FALSE);
}

static RefitProgram *take_contents(Build *build) {
    RefitProgramStorage *storage = g_new0(RefitProgramStorage, 1);
    RefitProgram *program = &storage->program;
    GArray *turns = refit_schedule_list_turns(build->schedule, build->rank);

    sum_bytes(build, program);
    program->schedule = build->schedule;
    program->plan = build->schedule->plan;
    program->rank = build->rank;
    program->source = build->copier->views[REFIT_MEMORY_SOURCE];
    program->destination = build->copier->views[REFIT_MEMORY_DESTINATION];
    program->n_streams = build->schedule->n_streams;
    program->turns = take_array(&turns, &program->n_turns);
    program->n_steps = build->n_steps;
    program->waits = copy_waits(build, &program->n_waits);
    program->steps = g_steal_pointer(&build->steps);
    program->n_exchanges = build->n_exchanges;
    program->exchanges = g_steal_pointer(&build->exchanges);
    program->pieces = take_array(&build->pieces, &program->n_pieces);
    program->copies = take_array(&build->copier->copies, &program->n_copies);
    storage->regions = g_steal_pointer(&build->copier->regions);
    return program;
}

static void init(Build *build, const RefitSchedule *schedule, guint rank,
                 const RefitLandings *landings, guint n_pieces) {
    guint n_streams = MAX(schedule->n_streams, 1);
    const RefitScheduleStep *steps;

    *build = (Build){
        .schedule = schedule,
        .rank = rank,
        .landings = landings,
        .pieces = g_array_sized_new(FALSE, FALSE, sizeof(RefitProgramPiece), n_pieces),
        .wires = g_new0(guint64, n_streams),
        .n_turns = g_new0(guint, n_streams),
        .seeds = g_array_new(FALSE, FALSE, sizeof(RefitPieceSeed)),
    };
    steps = refit_schedule_steps(schedule, rank, &build->n_steps);
    build->steps = g_memdup2(steps, build->n_steps * sizeof *steps);
    /* They lie together, though not all in the order of the steps. */
    build->first_exchange = G_MAXUINT;
    for (guint i = 0; i < build->n_steps; i++) {
        build->first_exchange = MIN(build->first_exchange, steps[i].first_exchange);
        build->n_exchanges += steps[i].n_exchanges;
    }
    build->exchanges = g_new0(RefitExchange, MAX(build->n_exchanges, 1));
}

static void clear(Build *build) {
    g_free(build->steps);
    g_free(build->exchanges);
    g_clear_pointer(&build->pieces, g_array_unref);
    g_free(build->wires);
    g_free(build->n_turns);
    g_array_unref(build->seeds);
}

RefitProgram *refit_program_new(const RefitSchedule *schedule, guint rank,
                                const RefitRankViews *source, const RefitRankViews *destination,
                                GError **error) {
    g_autoptr(RefitLandings) landings = refit_landings_new(schedule, rank, error);
    RefitProgram *program = NULL;
    RefitCopier copier;
    Build build;
    guint64 staging = 0;
    guint n_pieces;
    gboolean made = TRUE;

    if (landings == NULL)
        return NULL;
    n_pieces = count_pieces(schedule, rank);
    init(&build, schedule, rank, landings, n_pieces);
    refit_copier_init(&copier, schedule, rank, source, destination, landings, n_pieces);
    build.copier = &copier;
    for (guint i = 0; made && i < build.n_steps; i++)
        made = add_step(&build, &build.steps[i], error);
    if (made && place_wires(&build, &staging, error)) {
        g_assert(staging == refit_schedule_staging_bytes(schedule, rank));
        program = take_contents(&build);
        program->staging_bytes = staging;
    }
    clear(&build);
    refit_copier_clear(&copier);
    return program;
}
