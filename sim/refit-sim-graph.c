/*
 * From a plan to work items. Messages are visited once, in step order, so that everything a message
 * waits for has its items already.
 *
 * Each rank has a stream per lane, track and link class; a stream is a row of groups: the messages
 * of one step, or of one batch and stage when that stage is sliced. Per group there are two items:
 *
 *   op    opens the group: waits until the group `window` places before is done and all messages
 *         of the previous group have started; lasts messages x `operation`
 *   done  joins the group's messages and the previous group's done
 *
 * and a message is  [op, what it depends on] -> pack -> move -> end -> latency -> unpack, where the
 * move also waits for the receiver's op. Packs of one stream and rank run one after another, beside
 * the network; so do unpacks. A window place is free when the last byte has left, or has been
 * unpacked: latency alone does not hold it, so a stream pays latency once and not per message.
 *
 * Dependencies are kept per pair, not per transfer: waiting for a message means all of it. Cost:
 * linear in messages, transfers and dependencies; about 100 bytes per message.
 */

#include "sim/refit-sim-graph.h"

/* Up to so many messages every date is kept apart; beyond, dates within this share of the busiest
 * port's time are merged, and within this share of what a mean message of the plan takes alone:
 * what is merged must be short against the flows that share. */
#define EXACT_MESSAGES 3000
#define RESOLUTION_SHARE 0.0003
#define RESOLUTION_OF_MESSAGE 0.25
/* A message makes fewer than 20 items and edges stay below 2^31 array entries. */
#define MAX_MESSAGES 50000000u
#define MESSAGE_ITEMS (sizeof(RefitSimMessage) / sizeof(guint))

typedef struct {
    guint op, done, next_op;
    guint next;         /* the group after it in its stream */
    guint step;         /* or the first one, in a sliced stage */
    guint batch, stage; /* stage matters only when it is sliced */
} Group;

typedef struct {
    guint last; /* group, REFIT_SIM_NONE before the first */
    guint back; /* the group `window` places before the last one */
    guint n_groups;
    guint pack, unpack; /* last item of each */
} Stream;

typedef struct {
    const RefitTopology *topology;
    const RefitPlan *plan;
    double operation_s, run_s, bucket_s;
    double pack_bytes_per_s, unpack_bytes_per_s; /* 0: free */
    /* Per rank: held bytes per byte sent from parameters, or received into them, where the form on
     * the wire is another one; 0 elsewhere. */
    double *cast_from, *cast_to;
    RefitSimGraph *out;
    guint streams_per_rank;
    GArray *edges;   /* guint pairs: before, after */
    GArray *groups;  /* Group */
    Stream *streams; /* per rank, lane, track and link */
    RefitSimDeps *deps;
    guint *arrivals;        /* per arrival of deps: its join */
    guint *batch_messages;  /* n_batches + 1: first message of each batch */
    guint *lane_batches;    /* per lane: the latest batch that had messages */
    guint bucket;           /* item that opens the current batch, or REFIT_SIM_NONE */
    guint n_joined, joined; /* messages behind the join of all earlier batches, and that join */
    guint *barriers;        /* per rank: join of the barrier batch it is in */
    guint *barrier_batch;   /* per rank: which batch that is */
} Build;

/* ---- topology ---- */

guint refit_sim_leaf_of(const RefitTopology *topology, guint gpu) {
    if (topology->nodes_per_leaf == 0)
        return 0;
    return refit_topology_node_of(topology, gpu) / topology->nodes_per_leaf * topology->rails +
           refit_topology_rail_of(topology, gpu);
}

guint refit_sim_n_leaves(const RefitTopology *topology) {
    guint per_leaf = topology->nodes_per_leaf;

    return per_leaf == 0 ? 1 : (topology->n_nodes + per_leaf - 1) / per_leaf * topology->rails;
}

double refit_sim_latency(const RefitTopology *topology, const RefitPair *pair) {
    if (pair->link == REFIT_LINK_LOCAL)
        return 0;
    if (pair->link == REFIT_LINK_NVLINK)
        return topology->nvlink_latency.value;
    return refit_sim_leaf_of(topology, pair->src) == refit_sim_leaf_of(topology, pair->dst)
               ? topology->nic_latency.value
               : topology->spine_latency.value;
}

static double link_bandwidth(const RefitTopology *topology, guint link) {
    return link == REFIT_LINK_NVLINK ? topology->nvlink_bandwidth.value
                                     : topology->nic_bandwidth.value;
}

/* ---- items and edges ---- */

static guint add_item(Build *build, RefitNetsimItem item) {
    g_array_append_val(build->out->items, item);
    return build->out->items->len - 1;
}

static guint add_join(Build *build) {
    return add_item(build, (RefitNetsimItem){.kind = REFIT_NETSIM_JOIN});
}

static guint add_delay(Build *build, double seconds) {
    return add_item(build, (RefitNetsimItem){.kind = REFIT_NETSIM_DELAY, .delay_s = seconds});
}

static void add_edge(Build *build, guint before, guint after) {
    const guint edge[2] = {before, after};

    if (before != REFIT_SIM_NONE)
        g_array_append_vals(build->edges, edge, 1);
}

static void finish_edges(Build *build) {
    RefitSimGraph *out = build->out;
    guint n = out->items->len;
    const guint(*edges)[2] = (gpointer)build->edges->data;
    guint64 *offsets = g_new0(guint64, (gsize)n + 2);
    guint *successors = g_new(guint, MAX(build->edges->len, 1));

    for (guint e = 0; e < build->edges->len; e++)
        offsets[edges[e][0] + 2]++;
    for (guint i = 2; i < n + 2; i++)
        offsets[i] += offsets[i - 1];
    for (guint e = 0; e < build->edges->len; e++)
        successors[offsets[edges[e][0] + 1]++] = edges[e][1];
    out->offsets = offsets;
    out->successors = successors;
    out->graph = (RefitNetsimGraph){.n_items = n,
                                    .items = (gpointer)out->items->data,
                                    .successor_offsets = offsets,
                                    .successors = successors};
}

/* ---- streams ---- */

/*
 * All that the rank has in earlier batches must be done. Asked before the rank's first group of the
 * batch is opened, so the last groups of all its streams are of earlier ones.
 */
static guint barrier_of(Build *build, guint rank, guint batch) {
    guint per_rank = build->streams_per_rank;

    if (build->barrier_batch[rank] == batch)
        return build->barriers[rank];
    build->barrier_batch[rank] = batch;
    build->barriers[rank] = add_join(build);
    for (guint s = 0; s < per_rank; s++) {
        guint last = build->streams[(gsize)rank * per_rank + s].last;
        if (last != REFIT_SIM_NONE)
            add_edge(build, g_array_index(build->groups, Group, last).done, build->barriers[rank]);
    }
    return build->barriers[rank];
}

static gboolean is_in_group(const Build *build, const Group *group, const RefitMessage *message) {
    guint stage = build->plan->pairs[message->pair].stage;

    if (build->plan->stages[stage].slices > 1)
        return group->batch == message->batch && group->stage == stage;
    return group->step == message->step;
}

static Group *open_group(Build *build, Stream *stream, guint rank, guint window,
                         const RefitMessage *message) {
    Group *before, *group;
    guint number = build->groups->len, barrier = REFIT_SIM_NONE;

    if (build->plan->batches[message->batch].barrier)
        barrier = barrier_of(build, rank, message->batch);

    g_array_set_size(build->groups, number + 1);
    group = &g_array_index(build->groups, Group, number);
    *group = (Group){.step = message->step,
                     .batch = message->batch,
                     .stage = build->plan->pairs[message->pair].stage,
                     .next = REFIT_SIM_NONE};
    if (stream->last == REFIT_SIM_NONE) {
        group->op = add_delay(build, 0);
    } else {
        before = &g_array_index(build->groups, Group, stream->last);
        before->next = number;
        group->op = before->next_op;
    }
    group->done = add_join(build);
    group->next_op = add_delay(build, 0);
    if (stream->last != REFIT_SIM_NONE)
        add_edge(build, g_array_index(build->groups, Group, stream->last).done, group->done);
    if (stream->n_groups >= window) {
        stream->back = stream->n_groups == window
                           ? stream->back
                           : g_array_index(build->groups, Group, stream->back).next;
        add_edge(build, g_array_index(build->groups, Group, stream->back).done, group->op);
    } else if (stream->n_groups == 0) {
        stream->back = number;
    }
    stream->n_groups++;
    stream->last = number;
    add_edge(build, barrier, group->op);
    return group;
}

/* The group of a message on one of its ranks. */
static Group *enter(Build *build, Stream *stream, guint rank, const RefitMessage *message) {
    gboolean local = build->plan->pairs[message->pair].link == REFIT_LINK_LOCAL;
    Group *group =
        stream->last == REFIT_SIM_NONE ? NULL : &g_array_index(build->groups, Group, stream->last);

    if (group == NULL || !is_in_group(build, group, message))
        group = open_group(build, stream, rank, local ? 1 : build->plan->window, message);
    if (!local)
        g_array_index(build->out->items, RefitNetsimItem, group->op).delay_s += build->operation_s;
    return group;
}

static Stream *stream_of(const Build *build, guint rank, const RefitMessage *message) {
    const RefitPlan *plan = build->plan;
    const RefitPair *pair = &plan->pairs[message->pair];
    guint row =
        plan->stages[pair->stage].track * plan->n_lanes + plan->batches[message->batch].lane;

    return &build
                ->streams[(gsize)rank * build->streams_per_rank + row * REFIT_N_LINKS + pair->link];
}

/* ---- messages ---- */

/*
 * Seconds to gather or scatter `runs` pieces; a single run needs neither, unless it is cast. The
 * rates are those of a copy, which reads and writes each byte: a cast reads or writes `cast` bytes
 * for each byte on the wire.
 */
static double copy_s(const Build *build, guint64 bytes, guint64 runs, double bytes_per_s,
                     double cast) {
    double touched = cast > 0 ? (double)bytes * (1 + cast) / 2 : (double)bytes;

    if (runs <= 1 && !(cast > 0))
        return 0;
    return (bytes_per_s > 0 ? touched / bytes_per_s : 0) +
           (runs > 1 ? (double)runs * build->run_s : 0);
}

/* Only what comes first hand is cast: later hops send on what they received. */
static double cast_from(const Build *build, const RefitMessage *message) {
    guint n_deps;

    refit_sim_deps_of_pair(build->deps, message->pair, &n_deps);
    return n_deps == 0 ? build->cast_from[build->plan->pairs[message->pair].src] : 0;
}

/* One more copy behind the rank's copies of the same stream; REFIT_SIM_NONE when free. */
static guint add_copy(Build *build, guint *last, double seconds) {
    guint item;

    if (!(seconds > 0))
        return REFIT_SIM_NONE;
    item = add_delay(build, seconds);
    add_edge(build, *last, item);
    *last = item;
    return item;
}

/* The join of all that a stage brings to a rank, or REFIT_SIM_NONE when nothing waits for it. */
static guint arrivals_at(const Build *build, guint batch, guint stage, guint rank) {
    guint arrival = refit_sim_deps_arrival(build->deps, batch, stage, rank);

    return arrival == REFIT_SIM_NONE ? REFIT_SIM_NONE : build->arrivals[arrival];
}

/* The item at whose end the bytes of `message` are where they can be used. */
static guint arrival_of(Build *build, guint m) {
    RefitSimMessage *items = &build->out->messages[m];
    double latency =
        refit_sim_latency(build->topology, &build->plan->pairs[build->plan->messages[m].pair]);

    if (items->unpack != REFIT_SIM_NONE)
        return items->unpack;
    if (items->arrived == REFIT_SIM_NONE) {
        items->arrived = latency > 0 ? add_delay(build, latency) : items->end;
        if (latency > 0)
            add_edge(build, items->end, items->arrived);
    }
    return items->arrived;
}

/* `before` and message m are hops of one chain: a slice of delay at its start and at its end. */
static void follow_in_slices(Build *build, guint before, guint m, guint first, guint slices) {
    const RefitPlan *plan = build->plan;
    const RefitPair *pair = &plan->pairs[plan->messages[m].pair];
    const RefitPair *pair_before = &plan->pairs[plan->messages[before].pair];
    RefitSimMessage *items = &build->out->messages[m];
    double slice =
        (double)plan->messages[m].bytes / slices / link_bandwidth(build->topology, pair->link);
    double slice_before = (double)plan->messages[before].bytes / slices /
                          link_bandwidth(build->topology, pair_before->link);
    double latency = refit_sim_latency(build->topology, pair_before);
    guint start = add_delay(build, slice_before + latency), end = add_delay(build, slice + latency);

    add_edge(build, build->out->messages[before].move, start | REFIT_NETSIM_ON_START);
    add_edge(build, start, first);
    if (items->end == items->move) {
        items->end = add_join(build);
        add_edge(build, items->move, items->end);
    }
    add_edge(build, build->out->messages[before].end, end);
    add_edge(build, end, items->end);
}

static void add_dependencies(Build *build, guint m, guint first) {
    const RefitPlan *plan = build->plan;
    const RefitMessage *message = &plan->messages[m];
    const RefitPair *pair = &plan->pairs[message->pair];
    guint slices = plan->stages[pair->stage].slices, n_deps;
    const guint *deps = refit_sim_deps_of_pair(build->deps, message->pair, &n_deps);

    for (guint d = 0; d < n_deps; d++) {
        guint dep = deps[d], before;

        if ((dep & REFIT_PLAN_DEP_STAGE) != 0) {
            add_edge(build,
                     arrivals_at(build, message->batch, dep & ~REFIT_PLAN_DEP_STAGE, pair->src),
                     first);
            continue;
        }
        before = refit_sim_deps_message(build->deps, dep, message->batch);
        if (before == REFIT_SIM_NONE)
            continue;
        if (slices == 1 || pair->link == REFIT_LINK_LOCAL ||
            plan->pairs[dep].link == REFIT_LINK_LOCAL)
            add_edge(build, arrival_of(build, before), first);
        else
            follow_in_slices(build, before, m, first, slices);
    }
}

static guint add_move(Build *build, const RefitMessage *message) {
    const RefitPair *pair = &build->plan->pairs[message->pair];

    /* A local copy reads and writes the same memory, each side in its own form. */
    if (pair->link == REFIT_LINK_LOCAL) {
        double from = cast_from(build, message), to = build->cast_to[pair->dst];
        double touched = (from > 0 ? from : 1) + (to > 0 ? to : 1);

        return add_delay(build, touched * (double)message->bytes /
                                    build->topology->memory_bandwidth.value);
    }
    return add_item(build, (RefitNetsimItem){.kind = REFIT_NETSIM_FLOW,
                                             .src = pair->src,
                                             .dst = pair->dst,
                                             .bytes = (double)message->bytes});
}

static void add_message(Build *build, guint m) {
    const RefitMessage *message = &build->plan->messages[m];
    const RefitPair *pair = &build->plan->pairs[message->pair];
    RefitSimMessage *items = &build->out->messages[m];
    gboolean local = pair->link == REFIT_LINK_LOCAL;
    Stream *streams[2] = {stream_of(build, pair->src, message),
                          stream_of(build, pair->dst, message)};
    Group *group;
    guint done[2], next_op[2], ops[2], first, last;
    guint arrival = arrivals_at(build, message->batch, pair->stage, pair->dst);
    guint n_sides = local ? 1 : 2;

    for (guint side = 0; side < n_sides; side++) {
        group = enter(build, streams[side], side == 0 ? pair->src : pair->dst, message);
        ops[side] = group->op;
        done[side] = group->done;
        next_op[side] = group->next_op;
    }
    items->move = items->end = add_move(build, message);
    items->pack = items->unpack = items->arrived = REFIT_SIM_NONE;
    if (!local && !refit_sim_deps_from_staging(build->deps, message->pair))
        items->pack = add_copy(build, &streams[0]->pack,
                               copy_s(build, message->bytes, message->runs_src,
                                      build->pack_bytes_per_s, cast_from(build, message)));
    first = items->pack != REFIT_SIM_NONE ? items->pack : items->move;
    add_edge(build, items->pack, items->move);
    add_edge(build, ops[0], first);
    if (!local)
        add_edge(build, ops[1], items->move);
    add_edge(build, build->bucket, first);
    add_dependencies(build, m, first);
    last = items->end;
    if (!local && !refit_sim_deps_into_staging(build->deps, message->pair)) {
        double seconds = copy_s(build, message->bytes, message->runs_dst, build->unpack_bytes_per_s,
                                build->cast_to[pair->dst]);

        if (seconds > 0) {
            guint landed = arrival_of(build, m);

            items->unpack = last = add_copy(build, &streams[1]->unpack, seconds);
            add_edge(build, landed, items->unpack);
        }
    }
    if (arrival != REFIT_SIM_NONE)
        add_edge(build, arrival_of(build, m), arrival);
    for (guint side = 0; side < n_sides; side++) {
        add_edge(build, last, done[side]);
        add_edge(build, items->move, next_op[side] | REFIT_NETSIM_ON_START);
    }
}

/* ---- batches ---- */

static void index_batches(Build *build) {
    const RefitPlan *plan = build->plan;
    guint b = 0;

    for (guint m = 0; m < plan->n_messages; m++)
        for (; b <= plan->messages[m].batch; b++)
            build->batch_messages[b] = m;
    for (; b <= plan->n_batches; b++)
        build->batch_messages[b] = (guint)plan->n_messages;
}

static void join_messages(Build *build, guint from, guint to, guint join) {
    for (guint m = from; m < to; m++) {
        const RefitSimMessage *items = &build->out->messages[m];
        add_edge(build, items->unpack != REFIT_SIM_NONE ? items->unpack : items->end, join);
    }
}

/*
 * The bucket term: a delay between the previous batch of the lane and this one. A barrier batch
 * waits for all earlier batches, so its buckets do too.
 */
static void begin_batch(Build *build, guint b) {
    const RefitBatch *batch = &build->plan->batches[b];
    guint previous = build->lane_batches[batch->lane], first = build->batch_messages[b], all;

    build->lane_batches[batch->lane] = b;
    build->bucket = REFIT_SIM_NONE;
    if (batch->buckets == 0 || !(build->bucket_s > 0))
        return;
    build->bucket = add_delay(build, batch->buckets * build->bucket_s);
    if (previous != REFIT_SIM_NONE)
        join_messages(build, build->batch_messages[previous], build->batch_messages[previous + 1],
                      build->bucket);
    if (!batch->barrier)
        return;
    all = add_join(build);
    add_edge(build, build->joined, all);
    join_messages(build, build->n_joined, first, all);
    build->n_joined = first;
    build->joined = all;
    add_edge(build, all, build->bucket);
}

/* ---- the whole ---- */

/*
 * Shares of what the busiest port needs for its bytes, and for one of its messages; exact in small
 * plans.
 */
static double choose_resolution(const Build *build) {
    const RefitPlan *plan = build->plan;
    guint n_ranks = plan->problem->n_ranks;
    double busiest_s = 0, resolution_s;
    guint64 n_messages = 0;

    if (plan->n_messages <= EXACT_MESSAGES)
        return 0;
    for (guint rank = 0; rank < n_ranks; rank++)
        for (guint link = REFIT_LINK_NVLINK; link < REFIT_N_LINKS; link++) {
            const RefitRankAccount *account = &plan->accounts[rank];
            double in_s = (double)account->in[link] / link_bandwidth(build->topology, link);
            double out_s = (double)account->out[link] / link_bandwidth(build->topology, link);

            if (MAX(in_s, out_s) > busiest_s)
                n_messages = in_s > out_s ? account->messages_in : account->messages_out;
            busiest_s = MAX(busiest_s, MAX(in_s, out_s));
        }
    resolution_s = RESOLUTION_SHARE * busiest_s;
    if (n_messages > 0)
        resolution_s = MIN(resolution_s, RESOLUTION_OF_MESSAGE * busiest_s / (double)n_messages);
    return resolution_s;
}

static double term(const RefitProfile *profile, RefitTerm which) {
    return refit_profile_is_on(profile, which) ? profile->terms[which].value : 0;
}

static guint *new_filled(gsize n) {
    guint *numbers = g_new(guint, MAX(n, 1));

    for (gsize i = 0; i < n; i++)
        numbers[i] = REFIT_SIM_NONE;
    return numbers;
}

static void build_items(Build *build) {
    const RefitPlan *plan = build->plan;

    index_batches(build);
    for (guint a = 0; a < refit_sim_deps_n_arrivals(build->deps); a++)
        build->arrivals[a] = add_join(build);
    for (guint m = 0; m < plan->n_messages; m++) {
        if (m == 0 || plan->messages[m].batch != plan->messages[m - 1].batch)
            begin_batch(build, plan->messages[m].batch);
        add_message(build, m);
    }
    build->out->resolution_s = choose_resolution(build);
    finish_edges(build);
}

RefitSimGraph *refit_sim_graph_new(const RefitTopology *topology, const RefitProfile *profile,
                                   const RefitPlan *plan, GError **error) {
    guint n_ranks = plan->problem->n_ranks;
    guint n_tracks = 1;
    gsize n_streams;
    g_autoptr(RefitSimGraph) out = NULL;
    Build build = {
        .topology = topology,
        .plan = plan,
        .operation_s = term(profile, REFIT_TERM_OPERATION),
        .run_s = term(profile, REFIT_TERM_RUN),
        .bucket_s = term(profile, REFIT_TERM_BUCKET),
        .pack_bytes_per_s = term(profile, REFIT_TERM_PACK),
        .unpack_bytes_per_s = term(profile, REFIT_TERM_UNPACK),
        .joined = REFIT_SIM_NONE,
        .bucket = REFIT_SIM_NONE,
    };

    if (plan->n_messages > MAX_MESSAGES) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "the plan has %" G_GUINT64_FORMAT " messages, but at most %u can be simulated; "
                    "use fewer batches",
                    plan->n_messages, MAX_MESSAGES);
        return NULL;
    }
    for (guint stage = 0; stage < plan->n_stages; stage++)
        n_tracks = MAX(n_tracks, plan->stages[stage].track + 1);
    build.streams_per_rank = n_tracks * plan->n_lanes * REFIT_N_LINKS;
    n_streams = (gsize)n_ranks * build.streams_per_rank;
    build.cast_from = refit_case_cast_ratios(plan->problem->refit_case, TRUE);
    build.cast_to = refit_case_cast_ratios(plan->problem->refit_case, FALSE);
    build.out = out = g_new0(RefitSimGraph, 1);
    out->items = g_array_new(FALSE, FALSE, sizeof(RefitNetsimItem));
    out->messages = (RefitSimMessage *)new_filled(plan->n_messages * MESSAGE_ITEMS);
    build.edges = g_array_new(FALSE, FALSE, 2 * sizeof(guint));
    build.groups = g_array_new(FALSE, FALSE, sizeof(Group));
    build.deps = refit_sim_deps_new(plan);
    build.arrivals = new_filled(refit_sim_deps_n_arrivals(build.deps));
    build.batch_messages = new_filled((gsize)plan->n_batches + 1);
    build.streams = g_new(Stream, MAX(n_streams, 1));
    for (gsize s = 0; s < n_streams; s++)
        build.streams[s] =
            (Stream){REFIT_SIM_NONE, REFIT_SIM_NONE, 0, REFIT_SIM_NONE, REFIT_SIM_NONE};
    build.lane_batches = new_filled(plan->n_lanes);
    build.barriers = new_filled(n_ranks);
    build.barrier_batch = new_filled(n_ranks);
    build_items(&build);

    g_array_unref(build.edges);
    g_array_unref(build.groups);
    refit_sim_deps_free(build.deps);
    g_free(build.arrivals);
    g_free(build.cast_from);
    g_free(build.cast_to);
    g_free(build.streams);
    g_free(build.batch_messages);
    g_free(build.lane_batches);
    g_free(build.barriers);
    g_free(build.barrier_batch);
    return g_steal_pointer(&out);
}

void refit_sim_graph_free(RefitSimGraph *graph) {
    if (graph == NULL)
        return;
    g_array_unref(graph->items);
    g_free(graph->messages);
    g_free(graph->offsets);
    g_free(graph->successors);
    g_free(graph);
}
