/*
 * Communicators of schedules: whom they connect, counted from the plan's messages; the memory of
 * their connections, worked out by hand for a small case and by an independent count for others;
 * channels, where memory or multiprocessors are short.
 */

#include "model/schedule/refit-schedule-comms.h"
#include "random-case.h"
#include "schedule-cases.h"

#define MIB (G_GUINT64_CONSTANT(1) << 20)
enum { RANDOM_CASES = 150 };

/* Every GPU of a node holds a matrix that every GPU of the other node needs. */
static const StrategyCase ONE_TO_NODE = {
    .topology = "node:2 gpu:4 nvlink:450GBps nic:50GBps memory:80GB",
    .tensors = "  - {name: w, shape: [64, 64], role: other}\n",
    .source = "gpus: 4, rules: [{tensors: w, mesh: [4], place: [replicate]}]",
    .pools = {"gpus: 4, first_gpu: 4, rules: [{tensors: w, mesh: [4], place: [replicate]}]"},
};

/* ---- an independent count ---- */

/* Peers of a rank by the plan's messages, once each; both ways. */
static void count_peers(const RefitSchedule *schedule, guint rank, RefitLink link, guint comm,
                        GArray *sends, GArray *receives) {
    const RefitPlan *plan = schedule->plan;
    g_autofree guint8 *seen = g_new0(guint8, plan->problem->n_ranks);

    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];
        guint stream = refit_schedule_stream(plan, pair->stage, plan->messages[m].batch,
                                             (RefitLink)pair->link);

        if (pair->link != link || schedule->comm_of[stream] != comm)
            continue;
        if (pair->src == rank)
            seen[pair->dst] |= 1;
        if (pair->dst == rank)
            seen[pair->src] |= 2;
    }
    for (guint peer = 0; peer < plan->problem->n_ranks; peer++) {
        if ((seen[peer] & 1) != 0)
            g_array_append_val(sends, peer);
        if ((seen[peer] & 2) != 0)
            g_array_append_val(receives, peer);
    }
}

static gboolean sends_any(const RefitSchedule *schedule, guint rank, guint comm) {
    g_autoptr(GArray) sends = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) receives = g_array_new(FALSE, FALSE, sizeof(guint));

    count_peers(schedule, rank, NETWORK, comm, sends, receives);
    return sends->len > 0;
}

static guint64 expected_bytes(const RefitSchedule *schedule, guint rank, RefitLink link, guint comm,
                              guint n_sends, guint n_receives) {
    guint per_node = schedule->plan->problem->refit_case->topology->gpus_per_node;
    guint64 pools = n_receives > 0 ? 1 : 0;

    if (link == NVLINK)
        return schedule->ctas[NVLINK] * (n_receives * 10 * MIB + n_sends * 2 * MIB);
    for (guint r = rank / per_node * per_node;
         r < MIN((rank / per_node + 1) * per_node, schedule->plan->problem->n_ranks); r++)
        pools += sends_any(schedule, r, comm) ? 1 : 0;
    return pools * schedule->ctas[NETWORK] * 2 * MIB;
}

static void assert_same_ranks(const GArray *found, const GArray *expected) {
    g_assert_cmpuint(found->len, ==, expected->len);
    for (guint i = 0; i < found->len; i++)
        g_assert_cmpuint(g_array_index(found, guint, i), ==, g_array_index(expected, guint, i));
}

static void assert_comms(const RefitSchedule *schedule) {
    guint64 most = 0;
    guint best = 0;

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++) {
        guint64 sum = 0;

        for (guint link = 0; link < REFIT_N_LINKS; link++)
            for (guint comm = 0; comm < schedule->n_comms[link]; comm++) {
                g_autoptr(GArray) sends = g_array_new(FALSE, FALSE, sizeof(guint));
                g_autoptr(GArray) receives = g_array_new(FALSE, FALSE, sizeof(guint));
                g_autoptr(GArray) sends_to = g_array_new(FALSE, FALSE, sizeof(guint));
                g_autoptr(GArray) receives_from = g_array_new(FALSE, FALSE, sizeof(guint));
                const RefitScheduleConnections *connections =
                    refit_schedule_connections(schedule, rank, (RefitLink)link, comm);
                guint64 bytes;

                count_peers(schedule, rank, (RefitLink)link, comm, sends, receives);
                refit_schedule_comm_peers(schedule, rank, (RefitLink)link, comm, sends_to,
                                          receives_from);
                assert_same_ranks(sends_to, sends);
                assert_same_ranks(receives_from, receives);
                g_assert_cmpuint(connections->n_sends, ==, sends->len);
                g_assert_cmpuint(connections->n_receives, ==, receives->len);
                bytes = expected_bytes(schedule, rank, (RefitLink)link, comm, sends->len,
                                       receives->len);
                g_assert_cmpuint(refit_schedule_comm_bytes(schedule, rank, (RefitLink)link, comm),
                                 ==, bytes);
                sum += bytes;
            }
        g_assert_cmpuint(refit_schedule_connection_bytes(schedule, rank), ==, sum);
        best = sum > most ? rank : best;
        most = MAX(most, sum);
    }
    g_assert_cmpuint(refit_schedule_most_connected(schedule), ==, best);
}

static RefitSchedule *schedule_with(const RefitProblem *problem, const char *strategy,
                                    RefitPlan **plan_out) {
    g_autoptr(GError) error = NULL;

    *plan_out = refit_plan_of_shape(problem, refit_strategy_find(strategy, NULL), NULL, &error);
    g_assert_no_error(error);
    return schedule_of(*plan_out);
}

/* ---- tests ---- */

/*
 * `direct` serves each of the four from one of the four, over the network: on every sender's node
 * four pools of 8 channels to send, on every receiver one to receive.
 */
static void test_network_by_hand(void) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(&ONE_TO_NODE);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = NULL;
    g_autoptr(RefitSchedule) schedule = schedule_with(problem, "direct", &plan);

    g_assert_cmpuint(schedule->n_comms[NETWORK], ==, 1);
    g_assert_cmpuint(schedule->n_comms[NVLINK], ==, 0);
    g_assert_cmpuint(schedule->per_peer[NETWORK], ==, 4); /* 4 x 13 GB/s fill 50 GB/s */
    g_assert_cmpuint(schedule->ctas[NETWORK], ==, 8);
    for (guint rank = 0; rank < 4; rank++)
        g_assert_cmpuint(refit_schedule_connection_bytes(schedule, rank), ==, 4 * 8 * 2 * MIB);
    for (guint rank = 4; rank < 8; rank++)
        g_assert_cmpuint(refit_schedule_connection_bytes(schedule, rank), ==, 8 * 2 * MIB);
    g_assert_cmpuint(refit_schedule_most_connected(schedule), ==, 0);
}

/* `refit` brings a quarter of it to each, and each of the four then sends its own to the others:
 * three connections each way, on 16 channels. */
static void test_nvlink_by_hand(void) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(&ONE_TO_NODE);
    refit_case->profile->stripe_bytes.value = 16;
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = NULL;
    g_autoptr(RefitSchedule) schedule = schedule_with(problem, "refit", &plan);

    g_assert_cmpuint(schedule->n_comms[NVLINK], ==, 1);
    g_assert_cmpuint(schedule->ctas[NVLINK], ==, 16);
    for (guint rank = 4; rank < 8; rank++)
        g_assert_cmpuint(refit_schedule_comm_bytes(schedule, rank, NVLINK, 0), ==,
                         16 * 3 * (10 + 2) * MIB);
    for (guint rank = 0; rank < 4; rank++)
        g_assert_cmpuint(refit_schedule_comm_bytes(schedule, rank, NVLINK, 0), ==, 0);
}

/* Of 16 channels' 576 MiB: 8 channels take 288, 4 take 144 and so on; network pools of 16 MiB. */
static void test_little_memory(void) {
    static const struct {
        const char *memory;
        guint ctas;
    } cases[] = {{"60GB", 16}, {"40GB", 8}, {"20GB", 4}, {"1GB", 1}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *topology =
            g_strconcat("node:2 gpu:4 nvlink:450GBps nic:50GBps memory:", cases[i].memory, NULL);
        StrategyCase described = ONE_TO_NODE;
        described.topology = topology;
        g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
        refit_case->profile->stripe_bytes.value = 16;
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = NULL;
        g_autoptr(RefitSchedule) schedule = schedule_with(problem, "refit", &plan);

        g_assert_cmpuint(schedule->ctas[NVLINK], ==, cases[i].ctas);
        g_assert_cmpuint(schedule->per_peer[NVLINK], ==, cases[i].ctas);
        assert_comms(schedule);
    }
}

/* A pair has channels for its NIC, as far as multiprocessors go round. */
static void test_nics(void) {
    static const struct {
        const char *nic;
        guint per_peer, ctas;
    } cases[] = {{"10GBps", 1, 2},
                 {"26GBps", 2, 4},
                 {"27GBps", 4, 8},
                 {"100GBps", 8, 16},
                 {"400GBps", 16, 32}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *topology =
            g_strconcat("node:2 gpu:4 nvlink:450GBps nic:", cases[i].nic, NULL);
        StrategyCase described = ONE_TO_NODE;
        described.topology = topology;
        g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = NULL;
        g_autoptr(RefitSchedule) schedule = schedule_with(problem, "refit", &plan);

        g_assert_cmpuint(schedule->per_peer[NETWORK], ==, cases[i].per_peer);
        g_assert_cmpuint(schedule->ctas[NETWORK], ==, cases[i].ctas);
    }
}

/* On NVLink a communicator's channels are dealt out to its ranks, large messages have more. */
static void test_channels_of_messages(void) {
    static const struct {
        guint ctas, n_ranks;
        guint64 bytes;
        guint channels;
    } cases[] = {{16, 8, 4 * MIB, 2},   {16, 8, 65536, 1},    {16, 8, 65537, 2},
                 {16, 8, 1, 1},         {16, 8, 32 * MIB, 2}, {16, 8, 33 * MIB, 4},
                 {8, 8, 4 * MIB, 1},    {8, 8, 16 * MIB, 1},  {8, 8, 17 * MIB, 2},
                 {8, 8, 4096 * MIB, 8}, {16, 2, 4 * MIB, 8},  {1, 72, MIB, 1}};
    RefitSchedule schedule = {0};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        schedule.ctas[NVLINK] = schedule.per_peer[NVLINK] = cases[i].ctas;
        g_assert_cmpuint(
            refit_schedule_message_channels(&schedule, NVLINK, cases[i].n_ranks, cases[i].bytes),
            ==, cases[i].channels);
    }
    schedule.ctas[NETWORK] = 8;
    schedule.per_peer[NETWORK] = 4;
    g_assert_cmpuint(refit_schedule_message_channels(&schedule, NETWORK, 512, 4 * MIB), ==, 4);
}

static void assert_problem(const RefitProblem *problem) {
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = NULL;
        g_autoptr(RefitSchedule) schedule =
            schedule_with(problem, refit_strategies()[i]->name, &plan);

        assert_comms(schedule);
    }
}

static void test_random(void) {
    for (guint seed = 1; seed <= RANDOM_CASES; seed++) {
        g_autoptr(RandomCase) random = random_case_new(seed);
        g_autoptr(RefitCase) refit_case = random_case_build(random);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

        assert_problem(problem);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/schedule-comms/network-pools-by-hand", test_network_by_hand);
    g_test_add_func("/schedule-comms/nvlink-connections-by-hand", test_nvlink_by_hand);
    g_test_add_func("/schedule-comms/fewer-channels-where-memory-is-short", test_little_memory);
    g_test_add_func("/schedule-comms/as-many-channels-as-fill-a-nic", test_nics);
    g_test_add_func("/schedule-comms/channels-of-a-message", test_channels_of_messages);
    g_test_add_func("/schedule-comms/every-strategy-on-random-cases", test_random);
    return g_test_run();
}
