/*
 * How long a plan takes, roughly.
 *
 * Steps are gone through in their order, which all ranks share, so that everything a step waits for
 * is known: the rank's step before on the stream, its host's submission of the turn, and what it
 * sends on. A message starts when both of its ranks have begun the step, and takes as long as the
 * slower of them needs for all of the step, be it by its port or by its copies. Steps that share a
 * port follow each other on it, whatever their streams. In a sliced stage a hop follows the one
 * before by a slice, and the messages of a port one another. No result is below what the busiest
 * port needs for its bytes.
 *
 * It is enough to tell shapes apart whose times differ by more than a few percent. Cost: messages
 * and dependencies.
 */

#include "model/strategy/refit-estimate.h"

#include "model/plan/refit-plan-deps.h"

/* Bytes that a turn packs before anything moves: the least share of wire memory that a stream has.
 */
#define FIRST_CHUNK_BYTES ((double)(16u << 20))

/* What a rank does in the step in work, over one link class. */
typedef struct {
    guint n;        /* messages; 0: none yet */
    double out, in; /* bytes */
    double packed, unpacked, pack_s, unpack_s;
    double begin_s, end_s;
} Part;

typedef struct {
    const RefitPlan *plan;
    RefitPlanDeps *deps;
    guint n_streams;
    double operation_s, run_s, pack_bytes_per_s, unpack_bytes_per_s;
    guint *slices;        /* per batch and stage */
    Part *parts;          /* per rank and link class */
    GArray *touched;      /* guint: of these */
    double *submitted;    /* per rank: when its host has submitted all so far */
    double *moved;        /* per rank and stream: when its last step has moved */
    double *ports;        /* per rank, link class and direction: when all so far has gone through */
    double *arrived;      /* per rank and stage: all that the stage has brought ... */
    guint *arrived_batch; /* ... in this batch, and one more */
    double *starts, *ends; /* per pair: of its message in the batch in work */
    double last_s;
} Estimate;

static double rate_of(const Estimate *self, guint link) {
    const RefitTopology *topology = self->plan->problem->refit_case->topology;

    return link == REFIT_LINK_LOCAL    ? topology->memory_bandwidth.value / 2
           : link == REFIT_LINK_NVLINK ? topology->nvlink_bandwidth.value
                                       : topology->nic_bandwidth.value;
}

static double latency_of(const Estimate *self, guint link) {
    const RefitTopology *topology = self->plan->problem->refit_case->topology;

    return link == REFIT_LINK_LOCAL    ? 0
           : link == REFIT_LINK_NVLINK ? topology->nvlink_latency.value
                                       : topology->nic_latency.value;
}

static Part *part_of(const Estimate *self, guint rank, guint link) {
    gsize at = (gsize)rank * REFIT_N_LINKS + link;
    Part *part = &self->parts[at];

    if (part->n == 0) {
        guint number = (guint)at;
        g_array_append_val(self->touched, number);
    }
    return part;
}

static double *moved_of(const Estimate *self, guint rank, const RefitMessage *message) {
    const RefitPair *pair = &self->plan->pairs[message->pair];
    guint stream = (self->plan->stages[pair->stage].track * self->plan->n_lanes +
                    self->plan->batches[message->batch].lane) *
                       REFIT_N_LINKS +
                   pair->link;

    return &self->moved[(gsize)rank * self->n_streams + stream];
}

static double copy_s(double bytes, double runs, double bytes_per_s, double run_s) {
    return runs * run_s + (bytes_per_s > 0 ? bytes / bytes_per_s : 0);
}

static void add_message(const Estimate *self, const RefitMessage *message) {
    const RefitPair *pair = &self->plan->pairs[message->pair];
    Part *src = part_of(self, pair->src, pair->link);
    double bytes = (double)message->bytes;

    src->n++;
    src->out += bytes;
    src->packed += bytes;
    src->pack_s += copy_s(bytes, (double)message->runs_src, self->pack_bytes_per_s, self->run_s);
    if (pair->link == REFIT_LINK_LOCAL)
        return;
    Part *dst = part_of(self, pair->dst, pair->link);
    dst->n++;
    dst->in += bytes;
    dst->unpacked += bytes;
    dst->unpack_s +=
        copy_s(bytes, (double)message->runs_dst, self->unpack_bytes_per_s, self->run_s);
}

static guint slices_of(const Estimate *self, const RefitMessage *message) {
    const RefitPlan *plan = self->plan;

    return self->slices[(gsize)message->batch * plan->n_stages + plan->pairs[message->pair].stage];
}

/* As many as refit-schedule.h says: a stage has no more slices in a batch than its largest message
 * has slice_bytes there. */
static void find_slices(const Estimate *self) {
    const RefitPlan *plan = self->plan;
    const RefitProfile *profile = plan->problem->refit_case->profile;

    for (gsize i = 0; i < (gsize)plan->n_batches * plan->n_stages; i++)
        self->slices[i] = 1;
    for (guint64 m = 0; m < plan->n_messages; m++) {
        const RefitMessage *message = &plan->messages[m];
        guint stage = plan->pairs[message->pair].stage, most = plan->stages[stage].slices;
        double wanted =
            profile != NULL ? (double)message->bytes / profile->slice_bytes.value : most;
        guint *slices = &self->slices[(gsize)message->batch * plan->n_stages + stage];

        *slices = MAX(*slices, (guint)CLAMP(wanted, 1.0, (double)most));
    }
}

/* When what a message sends on is there; in a sliced stage, the first slice of it. */
static double ready_s(const Estimate *self, const RefitMessage *message) {
    const RefitPlan *plan = self->plan;
    const RefitPair *pair = &plan->pairs[message->pair];
    guint slices = slices_of(self, message), n_deps;
    const guint *deps = refit_plan_deps_get(self->deps, message->pair, &n_deps);
    double ready = 0;

    for (guint d = 0; d < n_deps; d++) {
        guint dep = deps[d];
        gsize at = (gsize)pair->src * plan->n_stages + (dep & ~REFIT_PLAN_DEP_STAGE);

        if ((dep & REFIT_PLAN_DEP_STAGE) == 0)
            ready = MAX(ready, self->starts[dep] + (self->ends[dep] - self->starts[dep]) / slices);
        else if (self->arrived_batch[at] == message->batch + 1)
            ready = MAX(ready, self->arrived[at]);
    }
    return ready;
}

/* The share of a step's copies that nothing hides: the first chunk's, or the last one's. */
static double bare_s(double seconds, double bytes) {
    return bytes > FIRST_CHUNK_BYTES ? seconds * FIRST_CHUNK_BYTES / bytes : seconds;
}

/* When each rank begins the step of messages [first, end). */
static void begin_step(const Estimate *self, guint64 first, guint64 end) {
    for (guint64 m = first; m < end; m++)
        add_message(self, &self->plan->messages[m]);
    for (guint i = 0; i < self->touched->len; i++) {
        guint at = g_array_index(self->touched, guint, i);
        Part *part = &self->parts[at];
        double *submitted = &self->submitted[at / REFIT_N_LINKS];

        *submitted +=
            self->operation_s * (at % REFIT_N_LINKS == REFIT_LINK_LOCAL ? 1 : 1 + part->n);
        part->begin_s = *submitted;
    }
    for (guint64 m = first; m < end; m++) {
        const RefitMessage *message = &self->plan->messages[m];
        const RefitPair *pair = &self->plan->pairs[message->pair];
        Part *src = part_of(self, pair->src, pair->link),
             *dst = part_of(self, pair->dst, pair->link);
        guint slices = slices_of(self, message);

        src->begin_s = MAX(src->begin_s, ready_s(self, message));
        if (slices > 1) {
            /* A turn and a message more for each slice but the first. */
            self->submitted[pair->src] += 2 * (slices - 1) * self->operation_s;
            self->submitted[pair->dst] += 2 * (slices - 1) * self->operation_s;
            continue;
        }
        src->begin_s = MAX(src->begin_s, *moved_of(self, pair->src, message));
        dst->begin_s = MAX(dst->begin_s, *moved_of(self, pair->dst, message));
    }
}

/*
 * What all turns of a step take on one of its ranks: copies go on beside the port, but two turns
 * have memory at a time, so that a turn's pack waits for the unpack of the last but one.
 */
static double turns_s(const Part *part, double rate) {
    double port_s = MAX(part->out, part->in) / rate;
    double all_s = part->pack_s + port_s + part->unpack_s;

    return MAX(MAX(port_s, all_s / 2), MAX(part->pack_s, part->unpack_s));
}

static double *port_of(const Estimate *self, guint rank, guint link, gboolean in) {
    return &self->ports[((gsize)rank * REFIT_N_LINKS + link) * 2 + (in ? 1 : 0)];
}

/* The message alone, behind all that its ports have: messages of a sliced stage follow each other.
 */
static double move_in_slices(const Estimate *self, const RefitMessage *message, double *start) {
    const RefitPair *pair = &self->plan->pairs[message->pair];
    double *out = port_of(self, pair->src, pair->link, FALSE);
    double *in = port_of(self, pair->dst, pair->link, TRUE);
    double seconds = (double)message->bytes / rate_of(self, pair->link);

    *start = MAX(*start, MAX(*out, *in));
    *out = *in = *start + seconds;
    return *out;
}

/* All of a step side by side, behind what its ports have. */
static double move_at_once(const Estimate *self, const RefitMessage *message, double start,
                           double pack_s) {
    const RefitPair *pair = &self->plan->pairs[message->pair];
    const Part *src = part_of(self, pair->src, pair->link);
    const Part *dst = part_of(self, pair->dst, pair->link);
    double rate = rate_of(self, pair->link);
    double turns =
        MAX(src->begin_s + pack_s + turns_s(src, rate), dst->begin_s + turns_s(dst, rate));
    double ports = MAX(*port_of(self, pair->src, pair->link, FALSE) + src->out / rate,
                       *port_of(self, pair->dst, pair->link, TRUE) + dst->in / rate);

    return MAX(start + (double)message->bytes / rate, MAX(turns, ports));
}

static void move_message(Estimate *self, const RefitMessage *message) {
    const RefitPlan *plan = self->plan;
    const RefitPair *pair = &plan->pairs[message->pair];
    Part *src = part_of(self, pair->src, pair->link), *dst = part_of(self, pair->dst, pair->link);
    double pack_s = pair->link == REFIT_LINK_LOCAL ? 0 : bare_s(src->pack_s, src->packed);
    double start = MAX(src->begin_s + pack_s, dst->begin_s), end, arrived;
    gsize at = (gsize)pair->dst * plan->n_stages + pair->stage;

    if (slices_of(self, message) > 1)
        end = move_in_slices(self, message, &start);
    else
        end = move_at_once(self, message, start, pack_s);
    self->starts[message->pair] = start;
    self->ends[message->pair] = end;
    src->end_s = MAX(src->end_s, end);
    dst->end_s = MAX(dst->end_s, end);
    arrived = end + latency_of(self, pair->link) + bare_s(dst->unpack_s, dst->unpacked);
    if (self->arrived_batch[at] != message->batch + 1)
        self->arrived[at] = 0;
    self->arrived_batch[at] = message->batch + 1;
    self->arrived[at] = MAX(self->arrived[at], arrived);
    self->last_s = MAX(self->last_s, arrived);
}

/* What the step has moved through a rank's ports goes behind all before. */
static void load_ports(const Estimate *self, guint at) {
    const Part *part = &self->parts[at];
    guint rank = at / REFIT_N_LINKS, link = at % REFIT_N_LINKS;
    double rate = rate_of(self, link);
    double *out = port_of(self, rank, link, FALSE), *in = port_of(self, rank, link, TRUE);

    if (part->out > 0)
        *out = MAX(*out, part->begin_s) + part->out / rate;
    if (part->in > 0)
        *in = MAX(*in, part->begin_s) + part->in / rate;
}

/* Messages [first, end) are all of one step. */
static void pass_step(Estimate *self, guint64 first, guint64 end) {
    gboolean sliced = slices_of(self, &self->plan->messages[first]) > 1;

    g_array_set_size(self->touched, 0);
    begin_step(self, first, end);
    for (guint64 m = first; m < end; m++)
        move_message(self, &self->plan->messages[m]);
    for (guint64 m = first; m < end; m++) {
        const RefitMessage *message = &self->plan->messages[m];
        const RefitPair *pair = &self->plan->pairs[message->pair];
        const guint sides[] = {pair->src, pair->dst};

        for (guint side = 0; side < 2; side++) {
            double *moved = moved_of(self, sides[side], message);
            *moved = MAX(*moved, part_of(self, sides[side], pair->link)->end_s);
        }
    }
    for (guint i = 0; i < self->touched->len; i++) {
        guint at = g_array_index(self->touched, guint, i);

        if (!sliced)
            load_ports(self, at);
        self->parts[at] = (Part){0};
    }
}

static double busiest_port_s(const Estimate *self) {
    double busiest = 0;

    for (guint rank = 0; rank < self->plan->problem->n_ranks; rank++)
        for (guint link = REFIT_LINK_NVLINK; link < REFIT_N_LINKS; link++) {
            const RefitRankAccount *account = &self->plan->accounts[rank];
            double bytes = (double)MAX(account->in[link], account->out[link]);

            busiest = MAX(busiest, bytes / rate_of(self, link));
        }
    return busiest;
}

static guint count_tracks(const RefitPlan *plan) {
    guint n = 1;

    for (guint stage = 0; stage < plan->n_stages; stage++)
        n = MAX(n, plan->stages[stage].track + 1);
    return n;
}

double refit_plan_estimate_s(const RefitPlan *plan) {
    const RefitProfile *profile = plan->problem->refit_case->profile; /* NULL: no costs stated */
    gsize n_ranks = MAX(plan->problem->n_ranks, 1), n_stages = MAX(plan->n_stages, 1);
    guint n_streams = count_tracks(plan) * plan->n_lanes * REFIT_N_LINKS;
    g_autofree guint *slices = g_new(guint, MAX(plan->n_batches * n_stages, 1));
    g_autofree Part *parts = g_new0(Part, n_ranks * REFIT_N_LINKS);
    g_autofree double *submitted = g_new0(double, n_ranks);
    g_autofree double *moved = g_new0(double, n_ranks *MAX(n_streams, 1));
    g_autofree double *ports = g_new0(double, n_ranks *REFIT_N_LINKS * 2);
    g_autofree double *arrived = g_new0(double, n_ranks *n_stages);
    g_autofree guint *arrived_batch = g_new0(guint, n_ranks * n_stages);
    g_autofree double *starts = g_new0(double, MAX(plan->n_pairs, 1));
    g_autofree double *ends = g_new0(double, MAX(plan->n_pairs, 1));
    g_autoptr(GArray) touched = g_array_new(FALSE, FALSE, sizeof(guint));
    Estimate self = {.plan = plan,
                     .deps = refit_plan_deps_new(plan),
                     .n_streams = n_streams,
                     .slices = slices,
                     .parts = parts,
                     .touched = touched,
                     .submitted = submitted,
                     .moved = moved,
                     .ports = ports,
                     .arrived = arrived,
                     .arrived_batch = arrived_batch,
                     .starts = starts,
                     .ends = ends};

    if (profile != NULL) {
        self.operation_s = refit_profile_value(profile, REFIT_TERM_OPERATION);
        self.run_s = refit_profile_value(profile, REFIT_TERM_RUN);
        self.pack_bytes_per_s = refit_profile_value(profile, REFIT_TERM_PACK);
        self.unpack_bytes_per_s = refit_profile_value(profile, REFIT_TERM_UNPACK);
    }
    find_slices(&self);
    for (guint64 first = 0, end; first < plan->n_messages; first = end) {
        for (end = first + 1;
             end < plan->n_messages && plan->messages[end].step == plan->messages[first].step;)
            end++;
        pass_step(&self, first, end);
    }
    refit_plan_deps_free(self.deps);
    return MAX(self.last_s, busiest_port_s(&self));
}
