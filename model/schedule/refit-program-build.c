/*
 * Making a program: the rank's messages, in step order, become steps, exchanges, pieces and copies.
 *
 * A group is what the rank has under one number, or in one batch of a sliced stage; it becomes a
 * step per link class. Everything is decided from the plan and the index, except where bytes lie on
 * this rank (refit-program-copies.c); so both ends list the same pieces. Messages that are not one
 * run in memory take wire memory, for a few chunks each: a stream has as many places as its window
 * has steps, each as large as its largest step, which are free again when the window lets the next
 * step in. Cost: the rank's pieces and turns.
 */

#include "model/schedule/refit-program-private.h"

#include <stdlib.h>

typedef struct {
    guint peer;
    gboolean sends;
    guint message;
} End;

typedef struct {
    const RefitProgramIndex *index;
    guint rank;
    guint n_streams;
    RefitCopier *copier; /* NULL: only the wire memory is asked for */
    RefitWaits *waits;
    const RefitLandings *landings;
    GArray *steps, *exchanges, *pieces; /* RefitProgramStep, RefitExchange, RefitProgramPiece */
    GArray *ordinals;                   /* guint per step: its place on its stream */
    guint64 n_turns;
    guint *counts;  /* per stream: steps so far */
    GArray **wires; /* per stream: guint64, bytes of each place */
    guint next_bucket;
    GArray *of_link[REFIT_N_LINKS]; /* scratch: guint, messages */
    GArray *ends, *numbers, *seeds; /* scratch: End, guint, RefitPieceSeed */
} Build;

/* ---- exchanges ---- */

static int compare_ends(gconstpointer left, gconstpointer right) {
    const End *a = left, *b = right;

    if (a->peer != b->peer)
        return a->peer < b->peer ? -1 : 1;
    if (a->sends != b->sends)
        return a->sends ? 1 : -1;
    return (a->message > b->message) - (a->message < b->message);
}

/* Is the message one run in memory? Sliced, it must be a single piece. */
static gboolean find_direct(const Build *build, RefitExchange *exchange) {
    guint64 next = 0;

    if (exchange->sliced && exchange->n_pieces > 1)
        return FALSE;
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

static gboolean add_pieces(Build *build, RefitExchange *exchange, const guint *messages, guint n,
                           gboolean local, GError **error) {
    guint64 at = 0;

    refit_program_list_pieces(build->index, messages, n, build->seeds);
    exchange->first_piece = build->pieces->len;
    exchange->n_pieces = build->seeds->len;
    for (guint i = 0; i < build->seeds->len; i++) {
        const RefitPieceSeed *seed = &g_array_index(build->seeds, RefitPieceSeed, i);
        RefitProgramPiece piece = {.transfer = seed->transfer,
                                   .tensor = seed->tensor,
                                   .dtype = seed->dtype,
                                   .slices =
                                       refit_program_message_slices(build->index, seed->message),
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

/* Places the message in the wire memory of its step, which is `*wire` full. `most`: bytes that it
 * has under one number. */
static gboolean take_wire(RefitExchange *exchange, guint64 most, guint64 chunk_bytes, guint64 *wire,
                          GError **error) {
    gboolean one_turn = !exchange->sliced && most <= chunk_bytes;
    guint64 slot = MIN(most, chunk_bytes), bytes;

    exchange->wire = *wire;
    exchange->wire_slots = one_turn ? 1 : REFIT_PROGRAM_WIRE_SLOTS;
    return refit_checked_round_up(slot, REFIT_PROGRAM_ALIGN, "staging bytes", &exchange->wire_bytes,
                                  error) &&
           refit_checked_mul(exchange->wire_bytes, exchange->wire_slots, "staging bytes", &bytes,
                             error) &&
           refit_checked_add(*wire, bytes, "staging bytes", wire, error);
}

/* Most bytes that the exchange has under one number of its step. Exactly, where a bound would mean
 * more chunks, if the pieces are listed. */
static guint64 most_bytes(const Build *build, const RefitProgramStep *step,
                          const RefitExchange *exchange, guint64 n_pieces, guint slices) {
    guint64 bound = refit_program_number_bytes(exchange->bytes, n_pieces, slices), most = 0;

    if (slices == 1 || build->copier == NULL || bound <= step->chunk_bytes)
        return bound;
    for (guint k = 0; k < step->n_numbers; k++)
        most = MAX(most, refit_program_slices_bytes(&g_array_index(build->pieces, RefitProgramPiece,
                                                                   exchange->first_piece),
                                                    exchange->n_pieces, step->number + k));
    return most;
}

/* Raises *n_chunks to what the exchange needs. */
static gboolean add_exchange(Build *build, const RefitProgramStep *step, const End *ends, guint n,
                             guint64 *n_chunks, guint64 *wire, GError **error) {
    const RefitPlan *plan = build->index->plan;
    gboolean local = ends[0].peer == build->rank;
    guint slices = refit_program_index_slices(build->index, step->batch, step->stage);
    RefitExchange exchange = {.peer = ends[0].peer, .sends = ends[0].sends, .sliced = slices > 1};
    guint64 n_pieces = 0, most;

    g_array_set_size(build->numbers, 0);
    for (guint i = 0; i < n; i++) {
        const RefitMessage *message = &plan->messages[ends[i].message];

        exchange.bytes += message->bytes;
        n_pieces += message->tensors;
        g_array_append_val(build->numbers, ends[i].message);
    }
    if (build->copier != NULL) {
        if (!add_pieces(build, &exchange, (const guint *)(gpointer)build->numbers->data, n, local,
                        error))
            return FALSE;
        exchange.direct = !local && find_direct(build, &exchange);
    }
    most = most_bytes(build, step, &exchange, n_pieces, slices);
    *n_chunks = MAX(*n_chunks, refit_program_count_chunks(most, step->chunk_bytes));
    if (!local && !exchange.direct && !take_wire(&exchange, most, step->chunk_bytes, wire, error))
        return FALSE;
    g_array_append_val(build->exchanges, exchange);
    return TRUE;
}

/* ---- steps ---- */

/* Wire memory of the step that comes next on its stream. */
static void take_place(Build *build, guint stream, gboolean local, guint64 wire) {
    guint window = local ? 1 : MAX(build->index->plan->window, 1);
    guint place = build->counts[stream]++ % window;
    GArray *wires = build->wires[stream];

    if (wires->len <= place)
        g_array_append_val(wires, wire);
    g_array_index(wires, guint64, place) = MAX(g_array_index(wires, guint64, place), wire);
    g_array_append_val(build->ordinals, place);
}

static gboolean touches_landings(const Build *build, guint first_copy) {
    for (guint i = first_copy; i < build->copier->copies->len; i++) {
        const RefitCopy *copy = &g_array_index(build->copier->copies, RefitCopy, i);

        if (copy->from.memory == REFIT_MEMORY_STAGING || copy->to.memory == REFIT_MEMORY_STAGING)
            return TRUE;
    }
    return FALSE;
}

static void list_ends(Build *build, const guint *messages, guint n, gboolean *receives_out) {
    const RefitPlan *plan = build->index->plan;

    *receives_out = FALSE;
    g_array_set_size(build->ends, 0);
    for (guint i = 0; i < n; i++) {
        const RefitPair *pair = &plan->pairs[plan->messages[messages[i]].pair];
        gboolean receives = pair->dst == build->rank;
        End end = {receives ? pair->src : pair->dst, !receives, messages[i]};

        *receives_out = *receives_out || receives;
        g_array_append_val(build->ends, end);
    }
    g_array_sort(build->ends, compare_ends);
}

static gboolean count_turns(Build *build, RefitProgramStep *step, guint64 n_chunks,
                            GError **error) {
    if (n_chunks > REFIT_PROGRAM_MAX_TURNS ||
        n_chunks * step->n_numbers > REFIT_PROGRAM_MAX_TURNS - build->n_turns) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "rank %u would have more than %u turns, with step %u in %" G_GUINT64_FORMAT
                    " chunks of %" G_GUINT64_FORMAT
                    " bytes; what lands in staging memory takes %" G_GUINT64_FORMAT
                    " bytes of it: state a larger staging budget, or use more batches or another "
                    "strategy",
                    build->rank, REFIT_PROGRAM_MAX_TURNS, step->number, n_chunks, step->chunk_bytes,
                    build->landings->bytes);
        return FALSE;
    }
    step->n_chunks = (guint)n_chunks;
    build->n_turns += n_chunks * step->n_numbers;
    return TRUE;
}

/* `group`: numbers of the steps of a sliced stage by link, else NULL. */
static gboolean add_step(Build *build, RefitLink link, const guint *group, GError **error) {
    const RefitPlan *plan = build->index->plan;
    const guint *messages = (const guint *)(gpointer)build->of_link[link]->data;
    guint n = build->of_link[link]->len, number = build->steps->len, last = 0;
    const RefitMessage *first = &plan->messages[messages[0]];
    RefitStepUse use = {.messages = messages, .n_messages = n, .group = group};
    RefitProgramStep step = {.number = first->step,
                             .batch = first->batch,
                             .stage = plan->pairs[first->pair].stage,
                             .link = link,
                             .first_exchange = build->exchanges->len};
    guint first_copy = build->copier != NULL ? build->copier->copies->len : 0;
    guint64 wire = 0, n_chunks = 1;

    for (guint i = 0; i < n; i++) {
        const RefitMessage *message = &plan->messages[messages[i]];

        last = MAX(last, message->step + refit_program_message_slices(build->index, message) - 1);
    }
    step.n_numbers = last - step.number + 1;
    step.stream = refit_program_stream(plan, step.stage, step.batch, link);
    step.chunk_bytes = refit_program_index_chunk_bytes(build->index, step.stage, link);
    list_ends(build, messages, n, &use.receives);
    for (guint i = 0, end; i < n; i = end) {
        const End *ends = (const End *)(gpointer)build->ends->data;

        for (end = i + 1;
             end < n && ends[end].peer == ends[i].peer && ends[end].sends == ends[i].sends;)
            end++;
        if (!add_exchange(build, &step, ends + i, end - i, &n_chunks, &wire, error))
            return FALSE;
    }
    if (!count_turns(build, &step, n_chunks, error))
        return FALSE;
    step.n_exchanges = build->exchanges->len - step.first_exchange;
    take_place(build, step.stream, link == REFIT_LINK_LOCAL, wire);
    g_array_append_val(build->steps, step);
    if (build->copier == NULL)
        return TRUE;
    use.stages = touches_landings(build, first_copy);
    refit_waits_enter(build->waits, build->steps, number, &use);
    return TRUE;
}

/* Messages [first, end) of the rank are one group; its steps come in the order of their numbers. */
static gboolean add_group(Build *build, guint first, guint end, gboolean sliced, GError **error) {
    const RefitPlan *plan = build->index->plan;
    const guint *messages = build->index->messages;
    guint group[REFIT_N_LINKS], order[REFIT_N_LINKS], n = 0;

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        g_array_set_size(build->of_link[link], 0);
    for (guint i = first; i < end; i++) {
        RefitLink link = plan->pairs[plan->messages[messages[i]].pair].link;

        if (build->of_link[link]->len == 0)
            order[n++] = link;
        g_array_append_val(build->of_link[link], messages[i]);
    }
    /* They were met by number; within one number, by link. */
    for (guint i = 1; i < n; i++)
        for (guint j = i; j > 0; j--) {
            const guint *a = &g_array_index(build->of_link[order[j - 1]], guint, 0);
            const guint *b = &g_array_index(build->of_link[order[j]], guint, 0);

            if (plan->messages[*a].step == plan->messages[*b].step && order[j - 1] > order[j]) {
                guint swapped = order[j];

                order[j] = order[j - 1];
                order[j - 1] = swapped;
            }
        }
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        group[link] = G_MAXUINT;
    for (guint i = 0; i < n; i++)
        group[order[i]] = build->steps->len + i;
    for (guint i = 0; i < n; i++)
        if (!add_step(build, order[i], sliced ? group : NULL, error))
            return FALSE;
    return TRUE;
}

/* ---- installs ---- */

static void add_install_pieces(Build *build, const RefitBucketTensor *bucket, guint number) {
    const RefitClass *klass = &build->index->plan->problem->classes[bucket->class_index];
    RefitCopier *copier = build->copier;
    guint n = 0;
    const RefitView *views =
        copier->views[REFIT_MEMORY_DESTINATION] == NULL
            ? NULL
            : refit_rank_views_find(copier->views[REFIT_MEMORY_DESTINATION], bucket->tensor, &n);

    for (guint v = 0; v < n; v++) {
        RefitProgramPiece piece = {
            .transfer = G_MAXUINT,
            .tensor = bucket->tensor,
            .dtype = klass->dtype,
            .slices = 1,
            .number = number,
            .bytes = refit_class_bytes(klass, refit_region_volume(&views[v].region)),
            .first_copy = copier->copies->len,
            .n_copies = 1};

        if (piece.bytes == 0)
            continue;
        refit_copier_add_install(copier, bucket, &views[v]);
        g_array_append_val(build->pieces, piece);
    }
}

/* After the last stage that brings buckets of a batch: what this rank needs of them. */
static void add_install(Build *build, const RefitMessage *message) {
    const RefitPlan *plan = build->index->plan;
    const RefitPair *pair = &plan->pairs[message->pair];
    const RefitStage *stage = &plan->stages[pair->stage];
    const GArray *buckets = build->landings->buckets;
    RefitExchange exchange = {.peer = build->rank, .first_piece = build->pieces->len};
    RefitProgramStep step = {
        .number = message->step - pair->offset + stage->n_offsets + stage->slices - 2,
        .n_numbers = 1,
        .n_chunks = 1,
        .chunk_bytes = G_MAXUINT64,
        .batch = message->batch,
        .stage = pair->stage,
        .stream = refit_program_stream(plan, pair->stage, message->batch, REFIT_LINK_LOCAL),
        .link = REFIT_LINK_LOCAL,
        .install = TRUE,
        .first_exchange = build->exchanges->len,
        .n_exchanges = 1};
    const RefitStepUse use = {.stages = TRUE};

    for (; build->next_bucket < buckets->len; build->next_bucket++) {
        const RefitBucketTensor *bucket =
            &g_array_index(buckets, RefitBucketTensor, build->next_bucket);

        if (bucket->batch > message->batch)
            break;
        add_install_pieces(build, bucket, step.number);
    }
    exchange.n_pieces = build->pieces->len - exchange.first_piece;
    if (exchange.n_pieces == 0)
        return;
    for (guint i = 0; i < exchange.n_pieces; i++)
        exchange.bytes +=
            g_array_index(build->pieces, RefitProgramPiece, exchange.first_piece + i).bytes;
    take_place(build, step.stream, TRUE, 0);
    g_array_append_val(build->exchanges, exchange);
    g_array_append_val(build->steps, step);
    refit_waits_enter(build->waits, build->steps, build->steps->len - 1, &use);
}

/* ---- the whole ---- */

static gboolean add_all(Build *build, GError **error) {
    const RefitPlan *plan = build->index->plan;
    const guint *messages = build->index->messages;
    guint end = build->index->message_offsets[build->rank + 1], batch = G_MAXUINT;

    for (guint first = build->index->message_offsets[build->rank], next; first < end;
         first = next) {
        const RefitMessage *message = &plan->messages[messages[first]];
        guint stage = plan->pairs[message->pair].stage;
        gboolean sliced = refit_program_index_slices(build->index, message->batch, stage) > 1;

        for (next = first + 1; next < end; next++) {
            const RefitMessage *other = &plan->messages[messages[next]];

            if (sliced ? other->batch != message->batch || plan->pairs[other->pair].stage != stage
                       : other->step != message->step)
                break;
        }
        if (message->batch != batch && build->copier != NULL)
            refit_waits_begin(build->waits, message->batch);
        batch = message->batch;
        if (!add_group(build, first, next, sliced, error))
            return FALSE;
        if (build->copier == NULL || build->landings->bucket_stages[batch] != stage + 1)
            continue;
        if (next < end && plan->messages[messages[next]].batch == batch &&
            plan->pairs[plan->messages[messages[next]].pair].stage == stage)
            continue;
        add_install(build, message);
    }
    return TRUE;
}

/* Wire memory follows the landings, stream after stream. */
static gboolean place_wires(Build *build, guint64 *bytes_out, GError **error) {
    guint64 bytes = build->landings->bytes, at;

    for (guint s = 0; s < build->n_streams; s++)
        for (guint i = 0; i < build->wires[s]->len; i++) {
            guint64 *wire = &g_array_index(build->wires[s], guint64, i);

            if (!refit_checked_round_up(bytes, REFIT_PROGRAM_ALIGN, "staging bytes", &at, error) ||
                !refit_checked_add(at, *wire, "staging bytes", &bytes, error))
                return FALSE;
            *wire = at;
        }
    for (guint i = 0; i < build->steps->len; i++) {
        const RefitProgramStep *step = &g_array_index(build->steps, RefitProgramStep, i);
        guint place = g_array_index(build->ordinals, guint, i);

        for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
            RefitExchange *exchange = &g_array_index(build->exchanges, RefitExchange, e);

            if (exchange->wire_bytes > 0)
                exchange->wire += g_array_index(build->wires[step->stream], guint64, place);
        }
    }
    *bytes_out = bytes;
    return TRUE;
}

/* Pieces of all messages of the rank, as far as that is a number of this type. */
static guint count_pieces(const RefitProgramIndex *index, guint rank) {
    guint64 n = 0;

    for (guint i = index->message_offsets[rank]; i < index->message_offsets[rank + 1]; i++)
        n += index->plan->messages[index->messages[i]].tensors;
    return (guint)MIN(n, G_MAXINT / sizeof(RefitCopy));
}

static void init(Build *build, const RefitProgramIndex *index, guint rank,
                 const RefitLandings *landings, guint n_pieces) {
    *build = (Build){
        .index = index,
        .rank = rank,
        .n_streams = index->n_streams,
        .landings = landings,
        .steps = g_array_new(FALSE, FALSE, sizeof(RefitProgramStep)),
        .exchanges = g_array_new(FALSE, FALSE, sizeof(RefitExchange)),
        .pieces = g_array_sized_new(FALSE, FALSE, sizeof(RefitProgramPiece), n_pieces),
        .ordinals = g_array_new(FALSE, FALSE, sizeof(guint)),
        .counts = g_new0(guint, MAX(index->n_streams, 1)),
        .wires = g_new(GArray *, MAX(index->n_streams, 1)),
        .ends = g_array_new(FALSE, FALSE, sizeof(End)),
        .numbers = g_array_new(FALSE, FALSE, sizeof(guint)),
        .seeds = g_array_new(FALSE, FALSE, sizeof(RefitPieceSeed)),
    };
    for (guint s = 0; s < index->n_streams; s++)
        build->wires[s] = g_array_new(FALSE, FALSE, sizeof(guint64));
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        build->of_link[link] = g_array_new(FALSE, FALSE, sizeof(guint));
}

static void clear(Build *build) {
    g_clear_pointer(&build->steps, g_array_unref);
    g_clear_pointer(&build->exchanges, g_array_unref);
    g_clear_pointer(&build->pieces, g_array_unref);
    g_array_unref(build->ordinals);
    g_free(build->counts);
    for (guint s = 0; s < build->n_streams; s++)
        g_array_unref(build->wires[s]);
    g_free(build->wires);
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        g_array_unref(build->of_link[link]);
    g_array_unref(build->ends);
    g_array_unref(build->numbers);
    g_array_unref(build->seeds);
}

gboolean refit_program_index_staging(const RefitProgramIndex *index, guint rank, guint64 *bytes_out,
                                     GError **error) {
    g_autoptr(RefitLandings) landings = refit_landings_new(index, rank, error);
    Build build;
    gboolean good;

    if (landings == NULL)
        return FALSE;
    init(&build, index, rank, landings, 0);
    good = add_all(&build, error) && place_wires(&build, bytes_out, error);
    clear(&build);
    return good;
}

static void sum_bytes(const Build *build, RefitProgram *program) {
    for (guint i = 0; i < build->steps->len; i++) {
        const RefitProgramStep *step = &g_array_index(build->steps, RefitProgramStep, i);

        for (guint e = step->first_exchange;
             !step->install && e < step->first_exchange + step->n_exchanges; e++) {
            const RefitExchange *exchange = &g_array_index(build->exchanges, RefitExchange, e);

            if (exchange->sends || step->link == REFIT_LINK_LOCAL)
                program->out[step->link] += exchange->bytes;
            if (!exchange->sends)
                program->in[step->link] += exchange->bytes;
        }
    }
}

static gpointer take_array(GArray **array, guint *n_out) {
    *n_out = (*array)->len;
    return g_array_free(g_steal_pointer(array), FALSE);
}

static RefitProgram *take_contents(Build *build) {
    RefitProgramStorage *storage = g_new0(RefitProgramStorage, 1);
    RefitProgram *program = &storage->program;
    GArray *turns = refit_program_list_turns(build->steps);

    sum_bytes(build, program);
    program->plan = build->index->plan;
    program->rank = build->rank;
    program->source = build->copier->views[REFIT_MEMORY_SOURCE];
    program->destination = build->copier->views[REFIT_MEMORY_DESTINATION];
    program->n_streams = build->n_streams;
    program->turns = take_array(&turns, &program->n_turns);
    program->steps = take_array(&build->steps, &program->n_steps);
    program->exchanges = take_array(&build->exchanges, &program->n_exchanges);
    program->pieces = take_array(&build->pieces, &program->n_pieces);
    program->copies = take_array(&build->copier->copies, &program->n_copies);
    program->waits = take_array(&build->waits->waits, &program->n_waits);
    storage->regions = g_steal_pointer(&build->copier->regions);
    return program;
}

static gboolean check_budget(const RefitProgramIndex *index, guint rank, guint64 bytes,
                             guint64 landing_bytes, GError **error) {
    guint64 budget = index->plan->problem->refit_case->budget_staging_bytes;

    if (budget == 0 || bytes <= budget)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE,
                "rank %u needs %" G_GUINT64_FORMAT " bytes of staging memory, %" G_GUINT64_FORMAT
                " of them for what lands there and the rest for messages on their way; the budget "
                "is %" G_GUINT64_FORMAT
                "; state a larger one, or use more batches or another strategy",
                rank, bytes, landing_bytes, budget);
    return FALSE;
}

RefitProgram *refit_program_new(const RefitProgramIndex *index, guint rank,
                                const RefitRankViews *source, const RefitRankViews *destination,
                                GError **error) {
    g_autoptr(RefitLandings) landings = refit_landings_new(index, rank, error);
    RefitProgram *program = NULL;
    guint n_pieces = count_pieces(index, rank);
    RefitCopier copier;
    RefitWaits waits;
    Build build;
    guint64 staging = 0;

    if (landings == NULL)
        return NULL;
    init(&build, index, rank, landings, n_pieces);
    refit_copier_init(&copier, index, rank, source, destination, landings, n_pieces);
    refit_waits_init(&waits, index, rank, landings);
    build.copier = &copier;
    build.waits = &waits;
    if (add_all(&build, error) && place_wires(&build, &staging, error) &&
        check_budget(index, rank, staging, landings->bytes, error)) {
        program = take_contents(&build);
        program->staging_bytes = staging;
    }
    clear(&build);
    refit_copier_clear(&copier);
    refit_waits_clear(&waits);
    return program;
}
