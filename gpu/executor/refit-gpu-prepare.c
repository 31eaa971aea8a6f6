/*
 * From a program to what is submitted: for each turn its messages with their addresses, the
 * descriptors of what is packed, unpacked and copied, and the turns that it waits for. All of it is
 * made once, so that a run only submits. Staging memory and the table of descriptors are allocated
 * here and at no other time: cudaMalloc and cudaFree wait for the whole device, which may be
 * waiting for another rank. Cost: the runs of all pieces, and 168 bytes of device memory per
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
    gboolean *has_pack, *has_unpack; /* per flow */
} Preparer;

static void clear(Preparer *p) {
    refit_strided_table_free(p->table);
    g_array_unref(p->runs);
    g_array_unref(p->packs);
    g_array_unref(p->unpacks);
    g_free(p->flow_of);
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
    return (exchange->memory == REFIT_MEMORY_SOURCE ? p->places.source
                                                    : p->places.destination)[exchange->parameter] +
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
    if (!exchange->direct) {
        (exchange->sends ? &turn->before : &turn->after)->bytes += bytes;
        add_boxes(p, exchange, of_program, turn, exchange->sends ? p->packs : p->unpacks);
    } else if (!exchange->sends && exchange->memory == REFIT_MEMORY_DESTINATION) {
        turn->writes = TRUE;
    }
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

static gboolean add_launch(Preparer *p, const GArray *boxes, gboolean local, gboolean packs,
                           RefitGpuLaunch *launch, GError **error) {
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

static void add_wait(Preparer *p, RefitGpuTurn *turn, guint on) {
    for (guint i = turn->first_wait; i < p->work->waits->len; i++)
        if (g_array_index(p->work->waits, guint, i) == on)
            return;
    g_array_append_val(p->work->waits, on);
    turn->n_waits++;
}

/* The turn at a place of a stream. */
static guint turn_at(const Preparer *p, guint stream, guint place) {
    return p->work->by_place[p->work->flows[p->flow_of[stream] - 1].first_turn + place];
}

/* Turns of a waited-for step that a turn with `number` waits for. */
static guint count_waited(const RefitProgramStep *on, gboolean in_slices, guint number) {
    guint n_numbers = on->n_numbers;

    if (in_slices)
        n_numbers = number > on->number ? MIN(n_numbers, number - on->number) : 0;
    return n_numbers * on->n_chunks;
}

/* The last of what it waits for on each stream stands for all before it there. */
static void add_waits(Preparer *p, RefitGpuTurn *turn) {
    const RefitProgramStep *step = &p->program->steps[turn->step];

    turn->first_wait = p->work->waits->len;
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
        const RefitWait *wait = &p->program->waits[w];
        const RefitProgramStep *on = &p->program->steps[wait->step];
        guint n = count_waited(on, wait->in_slices, turn->number);

        if (n > 0)
            add_wait(p, turn, turn_at(p, on->stream, on->first_turn + n - 1));
    }
    /* Its wire memory is that of this turn before. */
    if (step->link != REFIT_LINK_LOCAL && turn->place >= REFIT_SCHEDULE_SLOTS)
        add_wait(p, turn, turn_at(p, step->stream, turn->place - REFIT_SCHEDULE_SLOTS));
}

static gboolean add_turn(Preparer *p, guint t, GError **error) {
    RefitGpuTurn *turn = &p->work->turns[t];
    const RefitTurn *of_program = &p->program->turns[t];
    const RefitProgramStep *step = &p->program->steps[turn->step];
    gboolean local = step->link == REFIT_LINK_LOCAL;

    turn->first_message = p->work->messages->len;
    g_array_set_size(p->packs, 0);
    g_array_set_size(p->unpacks, 0);
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++)
        add_exchange(p, &p->program->exchanges[e], of_program, turn);
    add_waits(p, turn);
    p->has_pack[turn->flow] |= turn->before.bytes > 0;
    p->has_unpack[turn->flow] |= !local && turn->after.bytes > 0;
    return add_launch(p, p->packs, local, TRUE, &turn->before, error) &&
           add_launch(p, p->unpacks, local, FALSE, &turn->after, error);
}

/* Gives each stream that is used a flow, and its turns their places. */
static void list_turns(Preparer *p) {
    const RefitProgram *program = p->program;
    RefitGpuWork *work = p->work;
    guint n_placed = 0;

    for (guint t = 0; t < program->n_turns; t++) {
        const RefitTurn *turn = &program->turns[t];
        guint stream = program->steps[turn->step].stream;

        if (p->flow_of[stream] == 0) {
            p->flow_of[stream] = ++work->n_flows;
            work->flows[work->n_flows - 1].stream = stream;
        }
        work->flows[p->flow_of[stream] - 1].n_turns++;
        work->turns[t] = (RefitGpuTurn){.step = turn->step,
                                        .number = turn->number,
                                        .chunk = turn->chunk,
                                        .flow = p->flow_of[stream] - 1,
                                        .place = refit_program_turn_place(program, turn)};
    }
    for (guint f = 0; f < work->n_flows; f++) {
        work->flows[f].first_turn = n_placed;
        n_placed += work->flows[f].n_turns;
    }
    for (guint t = 0; t < program->n_turns; t++)
        work->by_place[work->flows[work->turns[t].flow].first_turn + work->turns[t].place] = t;
}

/* ---- what lives on the device ---- */

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

static gboolean make_flows(Preparer *p, GError **error) {
    RefitGpuWork *work = p->work;

    for (guint f = 0; f < work->n_flows; f++)
        if (!refit_gpu_flow_open(&work->flows[f], p->self, p->has_pack[f],
                                 work->flows[f].stream % REFIT_N_LINKS != REFIT_LINK_LOCAL,
                                 p->has_unpack[f], error))
            return FALSE;
    return REFIT_GPU_CUDA(cudaEventCreateWithFlags(&work->origin, p->self->untimed
                                                                      ? cudaEventDisableTiming
                                                                      : cudaEventDefault),
                          error) &&
           REFIT_GPU_CUDA(cudaStreamCreateWithPriority(&work->main, cudaStreamNonBlocking,
                                                       p->self->low_priority),
                          error);
}

static gboolean make(Preparer *p, GError **error) {
    RefitGpuWork *work = p->work;

    if (!check_parameters(p, p->program->source, p->places.source, "source", error) ||
        !check_parameters(p, p->program->destination, p->places.destination, "destination",
                          error) ||
        !allocate_staging(work, error))
        return FALSE;
    p->places.staging = work->staging;
    list_turns(p);
    for (guint t = 0; t < work->n_turns; t++)
        if (!add_turn(p, t, error))
            return FALSE;
    return make_flows(p, error) && upload_table(p, error);
}

RefitGpuWork *refit_gpu_work_new(RefitGpuRank *self, const RefitExecutorWork *what,
                                 GError **error) {
    const RefitProgram *program = what->program;
    guint n_streams = MAX(program->n_streams, 1), n_turns = MAX(program->n_turns, 1);
    g_autoptr(RefitGpuWork) work = g_new0(RefitGpuWork, 1);
    g_auto(Preparer) p = {
        .self = self,
        .program = program,
        .work = work,
        .places = {.source = what->source, .destination = what->destination},
        .table = refit_strided_table_new(),
        .runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun)),
        .packs = g_array_new(FALSE, FALSE, sizeof(RefitGpuBox)),
        .unpacks = g_array_new(FALSE, FALSE, sizeof(RefitGpuBox)),
        .flow_of = g_new0(guint, n_streams),
        .has_pack = g_new0(gboolean, n_streams),
        .has_unpack = g_new0(gboolean, n_streams),
    };

    work->program = program;
    work->n_turns = program->n_turns;
    work->flows = g_new0(RefitGpuFlow, n_streams);
    work->turns = g_new0(RefitGpuTurn, n_turns);
    work->by_place = g_new0(guint, n_turns);
    work->messages = g_array_new(FALSE, FALSE, sizeof(RefitGpuMessage));
    work->waits = g_array_new(FALSE, FALSE, sizeof(guint));
    work->stages = g_new0(RefitGpuStage, MAX(program->plan->n_stages, 1));
    return make(&p, error) ? g_steal_pointer(&work) : NULL;
}

void refit_gpu_work_free(RefitGpuWork *work) {
    if (work == NULL)
        return;
    for (guint f = 0; f < work->n_flows; f++)
        refit_gpu_flow_close(&work->flows[f]);
    if (work->main != NULL)
        cudaStreamDestroy(work->main);
    if (work->origin != NULL)
        cudaEventDestroy(work->origin);
    if (work->staging != 0)
        cudaFree((void *)(guintptr)work->staging);
    if (work->greetings != 0)
        cudaFree((void *)(guintptr)work->greetings);
    if (work->table != NULL)
        cudaFree(work->table);
    g_free(work->flows);
    g_free(work->turns);
    g_free(work->by_place);
    g_free(work->stages);
    g_array_unref(work->messages);
    g_array_unref(work->waits);
    g_free(work);
}
