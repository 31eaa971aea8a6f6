/*
 * From a program to what is submitted: for each turn its messages with their addresses, the
 * descriptors of what is packed, unpacked and copied, the turns that it waits for, and its events.
 * All of it is made once, so that a run only submits. Staging memory and the table of descriptors
 * are allocated here and at no other time: cudaMalloc and cudaFree wait for the whole device, which
 * may be waiting for another rank. Cost: the runs of all pieces, and 168 bytes of device memory per
 * descriptor.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <string.h>

typedef struct {
    RefitGpuRank *self;
    const RefitProgram *program;
    RefitGpuWork *work;
    RefitGpuPlaces places;
    RefitStridedTable *table;
    GArray *runs;                    /* RefitByteRun */
    GArray *packs, *unpacks;         /* RefitGpuBox, of the turn in work */
    guint *flow_of;                  /* per stream: 1 + flow */
    guint *turns_of;                 /* turns, step after step ... */
    guint *first_of;                 /* ... and per step, where its own begin */
    gint *before_step;               /* per step: last turn of the stream before it; -1: none */
    gboolean *has_pack, *has_unpack; /* per flow */
} Preparer;

static void clear(Preparer *p) {
    refit_strided_table_free(p->table);
    g_array_unref(p->runs);
    g_array_unref(p->packs);
    g_array_unref(p->unpacks);
    g_free(p->flow_of);
    g_free(p->turns_of);
    g_free(p->first_of);
    g_free(p->before_step);
    g_free(p->has_pack);
    g_free(p->has_unpack);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Preparer, clear)

/* ---- parameters ---- */

static gboolean check_parameter(const Preparer *p, const RefitParameter *parameter, guint64 address,
                                GError **error) {
    struct cudaPointerAttributes attributes;

    if (parameter->bytes == 0)
        return TRUE;
    if (!REFIT_GPU_CUDA(cudaPointerGetAttributes(&attributes, (void *)(guintptr)address), error)) {
        g_prefix_error(error, "%s: ", parameter->name);
        return FALSE;
    }
    if ((attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) ||
        attributes.device != p->self->device) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s: 0x%" G_GINT64_MODIFIER "x is not memory of device %d", parameter->name,
                    address, p->self->device);
        return FALSE;
    }
    return TRUE;
}

static gboolean check_parameters(const Preparer *p, const RefitRankViews *views,
                                 const guint64 *addresses, const char *side, GError **error) {
    guint n = views != NULL ? views->n_parameters : 0;

    if (n > 0 && addresses == NULL) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "the addresses of %u %s parameters are missing", n, side);
        return FALSE;
    }
    for (guint i = 0; i < n; i++)
        if (!check_parameter(p, &views->parameters[i], addresses[i], error)) {
            g_prefix_error(error, "%s parameter ", side);
            return FALSE;
        }
    return TRUE;
}

/* ---- turns ---- */

static guint64 mix(guint64 x) {
    x = (x ^ (x >> 30)) * G_GUINT64_CONSTANT(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * G_GUINT64_CONSTANT(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* What both ends of a message must agree on, as a number. */
static guint64 message_hash(guint src, guint dst, const RefitGpuTurn *turn, RefitLink link,
                            guint64 bytes) {
    guint64 hash = mix((guint64)src << 32 | dst);

    hash = mix(hash + ((guint64)turn->number << 32 | turn->chunk));
    return mix(mix(hash + link) + bytes);
}

static guint64 exchange_address(const Preparer *p, const RefitExchange *exchange,
                                const RefitTurn *turn) {
    guint64 offset = refit_program_exchange_offset(p->program, exchange, turn);

    if (!exchange->direct || exchange->memory == REFIT_MEMORY_STAGING)
        return p->work->staging + offset;
    return (exchange->memory == REFIT_MEMORY_SOURCE
                ? p->places.parameters->source
                : p->places.parameters->destination)[exchange->parameter] +
           offset;
}

/* Appends the boxes of an exchange in a turn to `boxes`. */
static void add_boxes(Preparer *p, const RefitExchange *exchange, const RefitTurn *of_program,
                      RefitGpuTurn *turn, GArray *boxes) {
    g_array_set_size(p->runs, 0);
    refit_program_append_runs(p->program, exchange, of_program, p->runs);

    const RefitByteRun *runs = (const RefitByteRun *)(gconstpointer)p->runs->data;
    for (guint i = 0; i < p->runs->len; i++)
        if (runs[i].to_memory == REFIT_MEMORY_DESTINATION)
            turn->writes = TRUE;
    refit_gpu_boxes_append(boxes, &p->places, runs, p->runs->len);
}

static void add_exchange(Preparer *p, const RefitExchange *exchange, const RefitTurn *of_program,
                         RefitGpuTurn *turn) {
    const RefitProgramStep *step = &p->program->steps[turn->step];
    guint rank = p->program->rank;
    guint64 bytes = refit_program_exchange_bytes(p->program, exchange, of_program);
    RefitGpuMessage message = {.peer = exchange->peer, .sends = exchange->sends, .bytes = bytes};

    if (bytes == 0 && exchange->peer != rank)
        return;
    if (exchange->peer != rank) {
        message.address = p->places.message = exchange_address(p, exchange, of_program);
        if (message.sends)
            p->work->sent += message_hash(rank, message.peer, turn, step->link, message.bytes);
        else
            p->work->received += message_hash(message.peer, rank, turn, step->link, message.bytes);
    }
    g_array_append_val(p->work->messages, message);
    turn->n_messages++;
    if (!exchange->direct)
        add_boxes(p, exchange, of_program, turn, exchange->sends ? p->packs : p->unpacks);
    else if (!exchange->sends && exchange->memory == REFIT_MEMORY_DESTINATION)
        turn->writes = TRUE;
}

static gboolean add_span(Preparer *p, const GArray *boxes, gboolean packs, gboolean packed,
                         RefitGpuLaunch *launch, GError **error) {
    refit_strided_table_begin(p->table);
    for (guint i = 0; i < boxes->len; i++) {
        const RefitGpuBox *box = &g_array_index(boxes, RefitGpuBox, i);

        if (refit_gpu_box_is_packed(box, packs) == packed &&
            !refit_gpu_box_add(box, p->table, packed, packs, p->work->staging, error))
            return FALSE;
    }
    *(packed ? &launch->packed : &launch->other) = refit_strided_table_end(p->table);
    return TRUE;
}

static guint64 box_bytes(const GArray *boxes) {
    guint64 bytes = 0;

    for (guint i = 0; i < boxes->len; i++) {
        const RefitGpuBox *box = &g_array_index(boxes, RefitGpuBox, i);
        guint64 of_box = box->bytes;
        for (guint d = 0; d < box->n_dims; d++)
            of_box *= box->extent[d];
        bytes += of_box;
    }
    return bytes;
}

static gboolean add_launch(Preparer *p, const GArray *boxes, gboolean local, gboolean packs,
                           RefitGpuLaunch *launch, GError **error) {
    launch->bytes = box_bytes(boxes);
    if (!local)
        return add_span(p, boxes, packs, TRUE, launch, error) &&
               add_span(p, boxes, packs, FALSE, launch, error);
    /* Copies between places of any kind: none of them is a message. */
    refit_strided_table_begin(p->table);
    for (guint i = 0; i < boxes->len; i++)
        if (!refit_gpu_box_add(&g_array_index(boxes, RefitGpuBox, i), p->table, FALSE, FALSE, 0,
                               error))
            return FALSE;
    launch->other = refit_strided_table_end(p->table);
    return TRUE;
}

static void add_wait(Preparer *p, RefitGpuTurn *turn, gint on) {
    guint on_turn = (guint)on;

    if (on < 0)
        return;
    for (guint i = turn->first_wait; i < p->work->waits->len; i++)
        if (g_array_index(p->work->waits, guint, i) == on_turn)
            return;
    g_array_append_val(p->work->waits, on_turn);
    turn->n_waits++;
}

/* The last of a step's first `n` turns; of none, the last of its stream before it, or -1. */
static gint last_turn(const Preparer *p, guint step, guint n) {
    return n > 0 ? (gint)p->turns_of[p->first_of[step] + n - 1] : p->before_step[step];
}

/* Turns of a waited-for step that a turn with `number` waits for. */
static guint count_waited(const RefitProgramStep *on, gboolean in_slices, guint number) {
    guint n_numbers = on->n_numbers;

    if (in_slices)
        n_numbers = number > on->number ? MIN(n_numbers, number - on->number) : 0;
    return n_numbers * on->n_chunks;
}

static gboolean uses_wire(const Preparer *p, const RefitProgramStep *step) {
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++)
        if (p->program->exchanges[e].wire_bytes > 0)
            return TRUE;
    return FALSE;
}

static gboolean add_turn(Preparer *p, guint t, GError **error) {
    RefitGpuTurn *turn = &p->work->turns[t];
    const RefitTurn *of_program = &p->program->turns[t];
    const RefitProgramStep *step = &p->program->steps[turn->step];
    gboolean local = step->link == REFIT_LINK_LOCAL;
    guint place = refit_program_turn_place(p->program, of_program);

    turn->first_message = p->work->messages->len;
    turn->first_wait = p->work->waits->len;
    g_array_set_size(p->packs, 0);
    g_array_set_size(p->unpacks, 0);
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++)
        add_exchange(p, &p->program->exchanges[e], of_program, turn);
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
        const RefitWait *wait = &p->program->waits[w];
        guint n = count_waited(&p->program->steps[wait->step], wait->in_slices, turn->number);
        add_wait(p, turn, last_turn(p, wait->step, n));
    }
    /* Its slots are those of this turn before. */
    if (place >= REFIT_PROGRAM_WIRE_SLOTS && uses_wire(p, step))
        add_wait(p, turn, last_turn(p, turn->step, place - REFIT_PROGRAM_WIRE_SLOTS + 1));
    p->has_pack[turn->flow] |= p->packs->len > 0;
    p->has_unpack[turn->flow] |= !local && p->unpacks->len > 0;
    return add_launch(p, p->packs, local, TRUE, &turn->before, error) &&
           add_launch(p, p->unpacks, local, FALSE, &turn->after, error);
}

/* Gives each stream that is used a flow, and finds the turns of each step. */
static void list_turns(Preparer *p) {
    const RefitProgram *program = p->program;
    RefitGpuWork *work = p->work;
    g_autofree gint *last = g_new(gint, MAX(program->n_streams, 1));

    for (guint s = 0; s < program->n_streams; s++)
        last[s] = -1;
    for (guint i = 0; i < program->n_steps; i++)
        p->first_of[i + 1] =
            p->first_of[i] + program->steps[i].n_numbers * program->steps[i].n_chunks;
    for (guint t = 0; t < program->n_turns; t++) {
        const RefitTurn *turn = &program->turns[t];
        guint stream = program->steps[turn->step].stream;
        guint place = refit_program_turn_place(program, turn);

        if (p->flow_of[stream] == 0) {
            p->flow_of[stream] = ++work->n_flows;
            work->flows[work->n_flows - 1].stream = stream;
        }
        p->turns_of[p->first_of[turn->step] + place] = t;
        if (place == 0)
            p->before_step[turn->step] = last[stream];
        last[stream] = (gint)t;
        work->turns[t] = (RefitGpuTurn){.step = turn->step,
                                        .number = turn->number,
                                        .chunk = turn->chunk,
                                        .flow = p->flow_of[stream] - 1};
    }
}

/* ---- what lives on the device ---- */

static gboolean new_event(RefitGpuWork *work, gboolean timed, cudaEvent_t *event_out,
                          GError **error) {
    if (!REFIT_GPU_CUDA(
            cudaEventCreateWithFlags(event_out, timed ? cudaEventDefault : cudaEventDisableTiming),
            error))
        return FALSE;
    g_array_append_val(work->events, *event_out);
    return TRUE;
}

static gboolean new_stream(int priority, cudaStream_t *stream_out, GError **error) {
    return REFIT_GPU_CUDA(cudaStreamCreateWithPriority(stream_out, cudaStreamNonBlocking, priority),
                          error);
}

static gboolean make_flow(Preparer *p, guint f, GError **error) {
    const RefitGpuRank *self = p->self;
    RefitGpuFlow *flow = &p->work->flows[f];

    if (!new_stream(self->high_priority, &flow->move, error))
        return FALSE;
    flow->pack = flow->unpack = flow->move;
    if (p->has_pack[f] && !new_stream(self->low_priority, &flow->pack, error)) {
        flow->pack = flow->move;
        return FALSE;
    }
    if (p->has_unpack[f] && !new_stream(self->low_priority, &flow->unpack, error)) {
        flow->unpack = flow->move;
        return FALSE;
    }
    return new_event(p->work, FALSE, &flow->packed, error) &&
           new_event(p->work, FALSE, &flow->moved, error) &&
           new_event(p->work, FALSE, &flow->last, error);
}

static gboolean make_events(Preparer *p, RefitGpuTurn *turn, GError **error) {
    gboolean timed = !p->self->untimed;
    gboolean local = p->program->steps[turn->step].link == REFIT_LINK_LOCAL;
    gboolean needed[REFIT_GPU_N_EVENTS] = {
        [REFIT_GPU_PACK_BEGIN] = timed && turn->before.bytes > 0,
        [REFIT_GPU_PACK_END] = timed && turn->before.bytes > 0,
        [REFIT_GPU_MOVE_BEGIN] = timed && !local && turn->n_messages > 0,
        [REFIT_GPU_MOVE_END] = timed && !local && turn->n_messages > 0,
        [REFIT_GPU_UNPACK_BEGIN] = timed && turn->after.bytes > 0,
        [REFIT_GPU_DONE] = TRUE,
    };

    for (guint e = 0; e < REFIT_GPU_N_EVENTS; e++)
        if (needed[e] && !new_event(p->work, timed, &turn->events[e], error))
            return FALSE;
    return TRUE;
}

static gboolean upload_table(Preparer *p, GError **error) {
    guint n;
    const RefitStridedCopy *table = refit_strided_table_get(p->table, &n);

    return n == 0 ||
           (REFIT_GPU_CUDA(cudaMalloc((void **)&p->work->table, n * sizeof *table), error) &&
            refit_gpu_upload(p->work->table, table, n * sizeof *table, error));
}

static gboolean allocate_staging(RefitGpuWork *work, GError **error) {
    void *staging = NULL;

    if (work->program->staging_bytes > 0 &&
        !REFIT_GPU_CUDA(cudaMalloc(&staging, work->program->staging_bytes), error)) {
        g_prefix_error(
            error, "%" G_GUINT64_FORMAT " bytes of staging memory: ", work->program->staging_bytes);
        return FALSE;
    }
    work->staging = (guint64)(guintptr)staging;
    return TRUE;
}

static gboolean make(Preparer *p, GError **error) {
    RefitGpuWork *work = p->work;

    if (!check_parameters(p, p->program->source, p->places.parameters->source, "source", error) ||
        !check_parameters(p, p->program->destination, p->places.parameters->destination,
                          "destination", error) ||
        !allocate_staging(work, error))
        return FALSE;
    p->places.staging = work->staging;
    list_turns(p);
    for (guint t = 0; t < work->n_turns; t++)
        if (!add_turn(p, t, error) || !make_events(p, &work->turns[t], error))
            return FALSE;
    for (guint f = 0; f < work->n_flows; f++)
        if (!make_flow(p, f, error))
            return FALSE;
    return upload_table(p, error) && new_event(work, !p->self->untimed, &work->origin, error) &&
           new_stream(p->self->low_priority, &work->main, error);
}

RefitGpuWork *refit_gpu_work_new(RefitGpuRank *self, const RefitProgram *program,
                                 const RefitGpuParameters *parameters, GError **error) {
    guint n_streams = MAX(program->n_streams, 1), n_steps = MAX(program->n_steps, 1);
    g_autoptr(RefitGpuWork) work = g_new0(RefitGpuWork, 1);
    g_auto(Preparer) p = {
        .self = self,
        .program = program,
        .work = work,
        .places = {.parameters = parameters},
        .table = refit_strided_table_new(),
        .runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun)),
        .packs = g_array_new(FALSE, FALSE, sizeof(RefitGpuBox)),
        .unpacks = g_array_new(FALSE, FALSE, sizeof(RefitGpuBox)),
        .flow_of = g_new0(guint, n_streams),
        .turns_of = g_new0(guint, MAX(program->n_turns, 1)),
        .first_of = g_new0(guint, (gsize)n_steps + 1),
        .before_step = g_new0(gint, n_steps),
        .has_pack = g_new0(gboolean, n_streams),
        .has_unpack = g_new0(gboolean, n_streams),
    };

    work->program = program;
    work->n_turns = program->n_turns;
    work->flows = g_new0(RefitGpuFlow, n_streams);
    work->turns = g_new0(RefitGpuTurn, MAX(program->n_turns, 1));
    work->messages = g_array_new(FALSE, FALSE, sizeof(RefitGpuMessage));
    work->waits = g_array_new(FALSE, FALSE, sizeof(guint));
    work->events = g_array_new(FALSE, FALSE, sizeof(cudaEvent_t));
    work->stages = g_new0(RefitGpuStage, MAX(program->plan->n_stages, 1));
    return make(&p, error) ? g_steal_pointer(&work) : NULL;
}

static void destroy_stream(cudaStream_t stream) {
    if (stream != NULL)
        cudaStreamDestroy(stream);
}

void refit_gpu_work_free(RefitGpuWork *work) {
    if (work == NULL)
        return;
    for (guint f = 0; f < work->n_flows; f++) {
        const RefitGpuFlow *flow = &work->flows[f];
        if (flow->pack != flow->move)
            destroy_stream(flow->pack);
        if (flow->unpack != flow->move)
            destroy_stream(flow->unpack);
        destroy_stream(flow->move);
    }
    destroy_stream(work->main);
    for (guint i = 0; i < work->events->len; i++)
        cudaEventDestroy(g_array_index(work->events, cudaEvent_t, i));
    if (work->staging != 0)
        cudaFree((void *)(guintptr)work->staging);
    if (work->table != NULL)
        cudaFree(work->table);
    g_free(work->flows);
    g_free(work->turns);
    g_free(work->stages);
    g_free(work->comm_of);
    g_array_unref(work->messages);
    g_array_unref(work->waits);
    g_array_unref(work->events);
    g_free(work);
}
