/*
 * Oracle for plans, element by element: carrying a plan out.
 *
 * Pieces and regions of the plan become maps, one table per dim, whose sum is the local place of an
 * element. Each transfer reads the identities of its region at the sender (from what the transfers
 * it depends on brought there, else from what the rank held at the start) and writes them where
 * they land; a step reads everything before it writes anything. Cost: elements moved, plus tables
 * of the size of the shapes.
 */

#include "element-oracle-private.h"

#include <string.h>

#define NOWHERE G_MAXUINT32

static guint64 identity(guint tensor, guint element) {
    return ((guint64)tensor + 1) << 32 | element;
}

/* ---- maps ---- */

/* Local place of an element: the sum of one table entry per dim. */
typedef struct {
    guint n_dims;
    guint volume, n_places; /* elements; length of the buffer, which may have gaps */
    guint n[REFIT_MAX_DIMS];
    guint *offsets[REFIT_MAX_DIMS]; /* n[dim] entries; NOWHERE where the index is not covered */
} Map;

static void map_init(Map *map, const RefitRegion *region) {
    *map = (Map){.n_dims = region->n_dims, .volume = 1, .n_places = 1};
    for (guint dim = region->n_dims; dim-- > 0;) {
        const RefitIntervalList *list = region->dims[dim];
        guint n = 0, extent = 0, places = 0;

        for (guint i = 0; i < list->n; i++) {
            const RefitInterval *item = &list->items[i];
            n = MAX(n, (guint)item->hi);
            places = MAX(places, (guint)(item->at + item->hi - item->lo));
        }
        map->n[dim] = n;
        map->offsets[dim] = g_new(guint, MAX(n, 1));
        memset(map->offsets[dim], 0xff, n * sizeof(guint));
        for (guint i = 0; i < list->n; i++)
            for (guint64 k = list->items[i].lo; k < list->items[i].hi; k++, extent++)
                map->offsets[dim][k] =
                    (guint)(list->items[i].at + k - list->items[i].lo) * map->n_places;
        map->volume *= extent;
        map->n_places *= places;
    }
}

static void map_clear(Map *map) {
    for (guint dim = 0; dim < map->n_dims; dim++)
        g_free(map->offsets[dim]);
}

static guint map_place(const Map *map, const guint *index) {
    guint place = 0;

    for (guint dim = 0; dim < map->n_dims; dim++) {
        if (index[dim] >= map->n[dim] || map->offsets[dim][index[dim]] == NOWHERE)
            return NOWHERE;
        place += map->offsets[dim][index[dim]];
    }
    return place;
}

/* Next index covered, row-major; *start is TRUE for the first. FALSE at the end. */
static gboolean map_next(const Map *map, guint *index, gboolean *start) {
    guint dim = map->n_dims;

    if (*start)
        memset(index, 0, REFIT_MAX_DIMS * sizeof *index);
    for (guint d = 0; *start && d < map->n_dims; d++)
        while (index[d] < map->n[d] && map->offsets[d][index[d]] == NOWHERE)
            index[d]++;
    if (*start) {
        *start = FALSE;
        return map->volume > 0;
    }
    while (dim-- > 0) {
        for (index[dim]++; index[dim] < map->n[dim]; index[dim]++)
            if (map->offsets[dim][index[dim]] != NOWHERE)
                return TRUE;
        for (index[dim] = 0; map->offsets[dim][index[dim]] == NOWHERE; index[dim]++)
            ;
    }
    return FALSE;
}

static guint element_at(const ElementTensor *tensor, const guint *index) {
    guint element = 0;

    for (guint dim = 0; dim < tensor->n_dims; dim++)
        element = element * (guint)tensor->shape[dim] + index[dim];
    return element;
}

/* ---- execution ---- */

/* A piece of a holding on one rank: what the plan's side says of a buffer of the oracle. */
typedef struct {
    const Map *map;
    guint64 *contents; /* by the map's places; NULL for what is held from the start */
} Slot;

/* What a rank has of one tensor. */
typedef struct {
    GArray *held, *needed;      /* of Slot */
    guint64 *assembly, *bucket; /* per element, NULL until something lands */
} Desk;

typedef struct {
    const ElementOracle *oracle;
    const RefitPlan *plan;
    Map *regions;        /* of the plan */
    GPtrArray *maps;     /* of the pieces; owned */
    Desk *desks;         /* [tensor * n_ranks + rank] */
    guint *first_staged; /* per transfer: where its members begin below */
    guint8 *done;        /* per transfer and member */
    guint64 **staged;    /* the same: what lies in staging memory, NULL for other landings */
    GString *complaint;
} Run;

static Desk *get_desk(const Run *run, guint tensor, guint rank) {
    return &run->desks[(gsize)tensor * run->oracle->n_ranks + rank];
}

static gboolean G_GNUC_PRINTF(2, 3) complain(Run *run, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    if (run->complaint->len == 0)
        g_string_append_vprintf(run->complaint, format, arguments);
    va_end(arguments);
    return FALSE;
}

static void map_free(gpointer data) {
    map_clear(data);
    g_free(data);
}

static void slots_clear(GArray *slots) {
    for (guint i = 0; slots != NULL && i < slots->len; i++)
        g_free(g_array_index(slots, Slot, i).contents);
    g_clear_pointer(&slots, g_array_unref);
}

/* Is `region` laid out as some rank of the piece stores it? Ranks may differ in the order. */
static gboolean is_laid_out(const ElementTensor *tensor, gboolean needed, const RefitPiece *piece) {
    const GPtrArray *records = tensor->records[needed];

    for (guint i = 0; i < records->len; i++) {
        const ElementRecord *record = g_ptr_array_index(records, i);
        gboolean same = FALSE;

        for (guint r = 0; !same && r < piece->n_ranks; r++)
            same = piece->ranks[r] == record->rank;
        for (guint dim = 0; same && dim < tensor->n_dims; dim++)
            same = element_line_is(&record->buffer.lines[dim], piece->region.dims[dim]);
        if (same)
            return TRUE;
    }
    return FALSE;
}

/* Does one of the buffers consist of the elements of `map`? */
static gboolean has_buffer(const ElementTensor *tensor, GPtrArray *buffers, const Map *map) {
    for (guint i = 0; buffers != NULL && i < buffers->len; i++) {
        const ElementBuffer *buffer = g_ptr_array_index(buffers, i);
        guint index[REFIT_MAX_DIMS], n = 0;
        gboolean start = TRUE, equal = buffer->n == map->volume;

        for (; equal && map_next(map, index, &start); n++)
            equal = n < buffer->n && buffer->elements[n] == element_at(tensor, index);
        if (equal)
            return TRUE;
    }
    return FALSE;
}

static gboolean open_side(Run *run, guint tensor_index, const RefitHolding *holding,
                          gboolean needed) {
    const ElementTensor *tensor = element_oracle_tensor(run->oracle, tensor_index);
    GPtrArray **side = needed ? tensor->needed : tensor->held;

    for (guint p = 0; p < holding->n_pieces; p++) {
        const RefitPiece *piece = &holding->pieces[p];
        Map *map = g_new(Map, 1);

        map_init(map, &piece->region);
        g_ptr_array_add(run->maps, map);
        if (!is_laid_out(tensor, needed, piece))
            return complain(run, "tensor %u: piece %u is stored like that by no rank", tensor_index,
                            p);
        for (guint r = 0; r < piece->n_ranks; r++) {
            Desk *desk = get_desk(run, tensor_index, piece->ranks[r]);
            GArray **slots = needed ? &desk->needed : &desk->held;
            Slot slot = {map, NULL};

            if (!has_buffer(tensor, side[piece->ranks[r]], map))
                return complain(run, "tensor %u: rank %u does not %s piece %u", tensor_index,
                                piece->ranks[r], needed ? "need" : "hold", p);
            if (*slots == NULL)
                *slots = g_array_new(FALSE, FALSE, sizeof(Slot));
            g_array_append_val(*slots, slot);
            if (needed)
                g_array_index(*slots, Slot, (*slots)->len - 1).contents =
                    g_new0(guint64, map->n_places);
        }
    }
    for (guint rank = 0; rank < run->oracle->n_ranks; rank++) {
        const Desk *desk = get_desk(run, tensor_index, rank);
        const GArray *slots = needed ? desk->needed : desk->held;
        guint n = side[rank] == NULL ? 0 : side[rank]->len;

        if ((slots == NULL ? 0 : slots->len) != n)
            return complain(run, "tensor %u: rank %u does not %s %u pieces", tensor_index, rank,
                            needed ? "need" : "hold", n);
    }
    return TRUE;
}

/* Opens the desks of all members; every tensor that is needed must be one. */
static gboolean open_desks(Run *run) {
    const RefitProblem *problem = run->plan->problem;
    g_autofree gboolean *moved = g_new0(gboolean, run->oracle->tensors->len);

    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint m = 0; m < klass->n_members; m++) {
            moved[klass->members[m]] = TRUE;
            if (!open_side(run, klass->members[m], klass->source, FALSE) ||
                !open_side(run, klass->members[m], klass->destination, TRUE))
                return FALSE;
        }
    }
    for (guint t = 0; t < run->oracle->tensors->len; t++)
        for (guint rank = 0; !moved[t] && rank < run->oracle->n_ranks; rank++)
            if (element_oracle_tensor(run->oracle, t)->needed[rank] != NULL)
                return complain(run, "tensor %u: rank %u needs it but it is not moved", t, rank);
    return TRUE;
}

static guint64 read_slots(const Run *run, const GArray *slots, guint tensor, const guint *index) {
    for (guint i = 0; slots != NULL && i < slots->len; i++) {
        const Slot *slot = &g_array_index(slots, Slot, i);
        guint place = map_place(slot->map, index);

        if (place != NOWHERE)
            return slot->contents != NULL
                       ? slot->contents[place]
                       : identity(tensor,
                                  element_at(element_oracle_tensor(run->oracle, tensor), index));
    }
    return 0;
}

/* What the sender has at `index`: from the transfers waited for, else from the start; 0: nothing.
 */
static guint64 read_element(const Run *run, const RefitTransfer *transfer, guint member,
                            guint tensor, const guint *index) {
    const RefitPlan *plan = run->plan;
    const Desk *desk = get_desk(run, tensor, transfer->src);

    for (guint i = 0; i < transfer->n_deps; i++) {
        guint number = plan->deps[transfer->first_dep + i];
        const RefitTransfer *dep = &plan->transfers[number];
        guint place = map_place(&run->regions[dep->region], index), element;

        if (place == NOWHERE || dep->dst != transfer->src)
            continue;
        element = element_at(element_oracle_tensor(run->oracle, tensor), index);
        switch (dep->landing) {
        case REFIT_LANDING_HOME:
            return read_slots(run, desk->needed, tensor, index);
        case REFIT_LANDING_RELAY:
            return run->staged[run->first_staged[number] + member][place];
        case REFIT_LANDING_ASSEMBLY:
            return desk->assembly[element];
        default:
            return desk->bucket[element];
        }
    }
    return read_slots(run, desk->held, tensor, index);
}

static gboolean send(Run *run, guint number, guint member, guint tensor, GArray *payload) {
    const RefitTransfer *transfer = &run->plan->transfers[number];
    guint index[REFIT_MAX_DIMS];
    gboolean start = TRUE;

    for (guint i = 0; i < transfer->n_deps; i++) {
        guint dep = run->plan->deps[transfer->first_dep + i];

        if (!run->done[run->first_staged[dep] + member])
            return complain(run, "tensor %u: transfer %u starts before transfer %u is done", tensor,
                            number, dep);
    }
    while (map_next(&run->regions[transfer->region], index, &start)) {
        guint64 value = read_element(run, transfer, member, tensor, index);

        if (value == 0)
            return complain(run, "tensor %u: rank %u sends to rank %u what it does not have",
                            tensor, transfer->src, transfer->dst);
        g_array_append_val(payload, value);
    }
    return TRUE;
}

/* Puts a value into an empty place. */
static gboolean fill(guint64 *place, guint64 value) {
    if (*place != 0)
        return FALSE;
    *place = value;
    return TRUE;
}

static gboolean fill_slots(const GArray *slots, const guint *index, guint64 value) {
    gboolean landed = FALSE;

    for (guint i = 0; slots != NULL && i < slots->len; i++) {
        const Slot *slot = &g_array_index(slots, Slot, i);
        guint place = map_place(slot->map, index);

        if (place == NOWHERE)
            continue;
        if (!fill(&slot->contents[place], value))
            return FALSE;
        landed = TRUE;
    }
    return landed;
}

static gboolean land(Run *run, guint number, guint member, guint tensor_index,
                     const guint64 *payload, guint *n_read) {
    const RefitTransfer *transfer = &run->plan->transfers[number];
    const ElementTensor *tensor = element_oracle_tensor(run->oracle, tensor_index);
    const Map *map = &run->regions[transfer->region];
    Desk *desk = get_desk(run, tensor_index, transfer->dst);
    guint at = run->first_staged[number] + member, index[REFIT_MAX_DIMS], n = 0;
    gboolean start = TRUE, ok = !run->done[at];

    run->done[at] = TRUE;
    if (transfer->landing == REFIT_LANDING_RELAY)
        run->staged[at] = g_new0(guint64, map->n_places);
    if (transfer->landing == REFIT_LANDING_ASSEMBLY && desk->assembly == NULL)
        desk->assembly = g_new0(guint64, tensor->n_elements);
    if (transfer->landing == REFIT_LANDING_BUCKET && desk->bucket == NULL)
        desk->bucket = g_new0(guint64, tensor->n_elements);
    while (ok && map_next(map, index, &start)) {
        guint64 value = payload[n++];

        switch (transfer->landing) {
        case REFIT_LANDING_HOME:
            ok = fill_slots(desk->needed, index, value);
            break;
        case REFIT_LANDING_RELAY:
            ok = fill(&run->staged[at][map_place(map, index)], value);
            break;
        case REFIT_LANDING_ASSEMBLY:
            ok = fill(&desk->assembly[element_at(tensor, index)], value);
            break;
        default:
            ok = fill(&desk->bucket[element_at(tensor, index)], value);
            break;
        }
    }
    *n_read += n;
    return ok || complain(run,
                          "tensor %u: what rank %u sends to rank %u lands where it must not, or "
                          "twice",
                          tensor_index, transfer->src, transfer->dst);
}

/*
 * All that one message moves: reads it into `payload`, or, with `n_read`, lands it from there.
 */
static gboolean move(Run *run, const RefitMessage *message, GArray *payload, guint *n_read) {
    const RefitPlan *plan = run->plan;
    const RefitPair *pair = &plan->pairs[message->pair];

    for (guint i = pair->first_transfer; i < pair->first_transfer + pair->n_transfers; i++) {
        guint c = plan->transfers[i].class_index;
        guint section = refit_plan_section_of(plan, &plan->transfers[i]);
        const guint *order = plan->member_order + plan->member_offsets[section];

        for (guint r = plan->run_offsets[section]; r < plan->run_offsets[section + 1]; r++) {
            const RefitBatchRun *part = &plan->batch_runs[r];

            for (guint m = part->first;
                 part->batch == message->batch && m < part->first + part->count; m++) {
                guint tensor = plan->problem->classes[c].members[order[m]];

                if (n_read == NULL ? !send(run, i, order[m], tensor, payload)
                                   : !land(run, i, order[m], tensor,
                                           &g_array_index(payload, guint64, *n_read), n_read))
                    return FALSE;
            }
        }
    }
    return TRUE;
}

static gboolean execute(Run *run) {
    const RefitPlan *plan = run->plan;
    g_autoptr(GArray) payload = g_array_new(FALSE, FALSE, sizeof(guint64));

    for (guint64 first = 0, end; first < plan->n_messages; first = end) {
        guint n_read = 0;

        g_array_set_size(payload, 0);
        for (end = first;
             end < plan->n_messages && plan->messages[end].step == plan->messages[first].step;
             end++)
            if (!move(run, &plan->messages[end], payload, NULL))
                return FALSE;
        for (guint64 i = first; i < end; i++)
            if (!move(run, &plan->messages[i], payload, &n_read))
                return FALSE;
    }
    return TRUE;
}

/* A bucket holds the tensor; its rank takes what it needs. */
static gboolean install(Run *run, guint tensor_index, guint rank) {
    const ElementTensor *tensor = element_oracle_tensor(run->oracle, tensor_index);
    const Desk *desk = get_desk(run, tensor_index, rank);

    for (guint i = 0; desk->bucket != NULL && desk->needed != NULL && i < desk->needed->len; i++) {
        const Slot *slot = &g_array_index(desk->needed, Slot, i);
        guint index[REFIT_MAX_DIMS];
        gboolean start = TRUE;

        while (map_next(slot->map, index, &start)) {
            guint place = map_place(slot->map, index);

            if (!fill(&slot->contents[place], desk->bucket[element_at(tensor, index)]))
                return complain(run, "tensor %u: rank %u gets it in a bucket and otherwise",
                                tensor_index, rank);
        }
    }
    return TRUE;
}

static gboolean compare_contents(Run *run, guint tensor_index, guint rank) {
    const ElementTensor *tensor = element_oracle_tensor(run->oracle, tensor_index);
    const Desk *desk = get_desk(run, tensor_index, rank);

    for (guint i = 0; desk->needed != NULL && i < desk->needed->len; i++) {
        const Slot *slot = &g_array_index(desk->needed, Slot, i);
        guint index[REFIT_MAX_DIMS];
        gboolean start = TRUE;

        while (map_next(slot->map, index, &start)) {
            guint place = map_place(slot->map, index), element = element_at(tensor, index);

            if (slot->contents[place] != identity(tensor_index, element))
                return complain(run,
                                "tensor %u: place %u of rank %u must hold element %u, but holds "
                                "%" G_GUINT64_FORMAT " of tensor %d",
                                tensor_index, place, rank, element,
                                slot->contents[place] & G_MAXUINT32,
                                (int)(slot->contents[place] >> 32) - 1);
        }
    }
    return TRUE;
}

/* Everyone who must assemble a tensor, or receive all of it in a bucket, has. */
static gboolean compare_whole(Run *run, const RefitObligation *obligation) {
    const RefitClass *klass = &run->plan->problem->classes[obligation->class_index];

    for (guint i = 0; i < klass->n_members * obligation->n_ranks; i++) {
        guint t = klass->members[i / obligation->n_ranks];
        guint rank = obligation->ranks[i % obligation->n_ranks];
        const ElementTensor *tensor = element_oracle_tensor(run->oracle, t);
        const Desk *desk = get_desk(run, t, rank);
        gboolean bucket = obligation->landing == REFIT_LANDING_BUCKET;
        const guint64 *whole = bucket ? desk->bucket : desk->assembly;
        g_autofree guint8 *seen = g_new0(guint8, tensor->n_elements);

        if (!bucket)
            element_buffers_mark(tensor->held[rank], seen);
        for (guint e = 0; e < tensor->n_elements; e++)
            if ((whole != NULL && whole[e] != 0 ? whole[e] != identity(t, e) : !seen[e]) ||
                (whole != NULL && whole[e] != 0 && seen[e]))
                return complain(run, "tensor %u: rank %u does not get element %u of the whole once",
                                t, rank, e);
    }
    return TRUE;
}

static gboolean compare_all(Run *run) {
    for (guint t = 0; t < run->oracle->tensors->len; t++)
        for (guint rank = 0; rank < run->oracle->n_ranks; rank++)
            if (!install(run, t, rank) || !compare_contents(run, t, rank))
                return FALSE;
    for (guint i = 0; i < run->plan->n_obligations; i++)
        if (!compare_whole(run, &run->plan->obligations[i]))
            return FALSE;
    return TRUE;
}

static Map *map_regions(const RefitPlan *plan) {
    Map *maps = g_new(Map, MAX(plan->n_regions, 1));

    for (guint i = 0; i < plan->n_regions; i++)
        map_init(&maps[i], &plan->regions[i]);
    return maps;
}

static void free_regions(Map *maps, guint n) {
    for (guint i = 0; i < n; i++)
        map_clear(&maps[i]);
    g_free(maps);
}

char *element_oracle_run(const ElementOracle *oracle, const RefitPlan *plan) {
    gsize n_desks = (gsize)oracle->tensors->len * oracle->n_ranks;
    g_autoptr(GPtrArray) maps = g_ptr_array_new_with_free_func(map_free);
    g_autofree Desk *desks = g_new0(Desk, n_desks);
    g_autofree guint *first_staged = g_new(guint, (gsize)plan->n_transfers + 1);
    Run run = {.oracle = oracle,
               .plan = plan,
               .regions = map_regions(plan),
               .maps = maps,
               .desks = desks,
               .first_staged = first_staged,
               .complaint = g_string_new(NULL)};
    guint n = 0;

    for (guint i = 0; i < plan->n_transfers; i++) {
        first_staged[i] = n;
        n += plan->problem->classes[plan->transfers[i].class_index].n_members;
    }
    g_autofree guint8 *done = g_new0(guint8, MAX(n, 1));
    g_autofree guint64 **staged = g_new0(guint64 *, MAX(n, 1));
    run.done = done;
    run.staged = staged;
    gboolean right = open_desks(&run) && execute(&run) && compare_all(&run);

    for (guint i = 0; i < n; i++)
        g_free(staged[i]);
    for (gsize i = 0; i < n_desks; i++) {
        slots_clear(desks[i].held);
        slots_clear(desks[i].needed);
        g_free(desks[i].assembly);
        g_free(desks[i].bucket);
    }
    free_regions(run.regions, plan->n_regions);
    g_assert_true(right == (run.complaint->len == 0));
    return g_string_free(run.complaint, right);
}

char *element_oracle_check_bytes(const ElementOracle *oracle, const RefitPlan *plan) {
    Map *maps = map_regions(plan);
    char *complaint = NULL;

    for (guint64 i = 0; complaint == NULL && i < plan->n_messages; i++) {
        const RefitMessage *message = &plan->messages[i];
        const RefitPair *pair = &plan->pairs[message->pair];
        guint64 bytes = 0;

        for (guint k = pair->first_transfer; k < pair->first_transfer + pair->n_transfers; k++) {
            guint section = refit_plan_section_of(plan, &plan->transfers[k]);
            const RefitClass *klass = &plan->problem->classes[plan->transfers[k].class_index];

            for (guint r = plan->run_offsets[section]; r < plan->run_offsets[section + 1]; r++)
                if (plan->batch_runs[r].batch == message->batch)
                    bytes += (guint64)maps[plan->transfers[k].region].volume *
                             element_oracle_tensor(oracle, klass->members[0])->element_bytes *
                             plan->batch_runs[r].count;
        }
        if (bytes != message->bytes)
            complaint = g_strdup_printf("step %u: the message from rank %u to rank %u states "
                                        "%" G_GUINT64_FORMAT " bytes and moves %" G_GUINT64_FORMAT,
                                        message->step, pair->src, pair->dst, message->bytes, bytes);
    }
    free_regions(maps, plan->n_regions);
    return complaint;
}
