/*
 * Covers sim/refit-netsim.h: item graphs on SimGrid against dates worked out by hand (one flow,
 * sharing, full duplex, incast, NVLink fan-out, pipelines, rings, sliced chains, windows,
 * oversubscribed leaves, delays and joins, tiny and huge sizes), against an independent fluid
 * solver on random flows, and what happens to impossible items, cycles and a dying engine.
 */

#include "fluid.h"
#include "netsim-work.h"

#include <stdlib.h>
#include <unistd.h>

static void test_one_flow(void) {
    g_autoptr(Work) work = work_new();
    g_autoptr(Work) inside = work_new();

    /* 1 GB over a NIC of 50 GB/s: 20 ms; over NVLink of 450 GB/s: 2.222 ms. */
    flow(work, 0, 8, GB);
    run(work, &DGX);
    near(work->makespan_s, 1 / 50.0);
    near(work->times[0].end_s, 1 / 50.0);
    g_assert_cmpfloat(work->times[0].start_s, ==, 0);
    flow(inside, 0, 1, GB);
    run(inside, &DGX);
    near(inside->makespan_s, 1 / 450.0);
}

static void test_sizes(void) {
    const double sizes[] = {0.5, 1, 3, 777, 64e3, 123456789, 1e12, 3e15};

    /* Each alone takes size / bandwidth, from half a byte (10 ps, at the limit of what one date
     * is) to petabytes. Together in one graph a common scale must keep them all right. */
    for (guint together = 0; together < 2; together++) {
        g_autoptr(Work) work = work_new();
        for (guint i = 0; i < G_N_ELEMENTS(sizes); i++) {
            if (together == 0) {
                g_autoptr(Work) alone = work_new();
                flow(alone, 0, 8, sizes[i] * 1000);
                run(alone, &DGX);
                near(alone->makespan_s, sizes[i] * 1000 / NIC);
            } else if (sizes[i] >= 777 && sizes[i] <= 1e12) {
                flow(work, 8 * i, (8 * i + 8) % 64, sizes[i]);
            }
        }
        if (together == 0)
            continue;
        run(work, &DGX);
        for (guint i = 0; i < work->items->len; i++)
            near(work->times[i].end_s, g_array_index(work->items, RefitNetsimItem, i).bytes / NIC);
    }
}

static void test_sharing(void) {
    g_autoptr(Work) out = work_new();
    g_autoptr(Work) in = work_new();

    /* Seven flows of 1 GB out of one NIC, or into one (incast): all end after 7 GB / 50 GB/s. */
    for (guint i = 1; i <= 7; i++) {
        flow(out, 0, 8 * i, GB);
        flow(in, 8 * i, 0, GB);
    }
    run(out, &DGX);
    run(in, &DGX);
    for (guint i = 0; i < 7; i++) {
        near(out->times[i].end_s, 7 / 50.0);
        near(in->times[i].end_s, 7 / 50.0);
    }
}

static void test_duplex(void) {
    g_autoptr(Work) work = work_new();

    /* Opposite directions do not share, nor do NVLink and NIC of one GPU: each takes its own time.
     */
    flow(work, 0, 8, GB);
    flow(work, 8, 0, GB);
    flow(work, 0, 1, GB);
    run(work, &DGX);
    near(work->times[0].end_s, 1 / 50.0);
    near(work->times[1].end_s, 1 / 50.0);
    near(work->times[2].end_s, 1 / 450.0);
}

static void test_max_min(void) {
    g_autoptr(Work) work = work_new();

    /* A 0->8 and B 0->16 share 0's NIC, B and C 24->16 share 16's: 25 GB/s each until A and C end
     * at 1 GB / 25 GB/s = 40 ms; then B's last 2 GB go at 50 GB/s: 40 + 40 = 80 ms. */
    flow(work, 0, 8, GB);
    flow(work, 0, 16, 3 * GB);
    flow(work, 24, 16, GB);
    run(work, &DGX);
    near(work->times[0].end_s, 0.040);
    near(work->times[1].end_s, 0.080);
    near(work->times[2].end_s, 0.040);
}

static void test_fan_out(void) {
    g_autoptr(Work) work = work_new();

    /* All-to-all in a domain of 8, 100 MB each: every port moves 700 MB at 450 GB/s, whatever the
     * other domain does. */
    for (guint a = 0; a < 8; a++)
        for (guint b = 0; b < 8; b++)
            if (a != b)
                flow(work, a, b, 1e8);
    flow(work, 8, 9, 1e8);
    run(work, &DGX);
    for (guint i = 0; i < 56; i++)
        near(work->times[i].end_s, 7e8 / NVLINK);
    near(work->times[56].end_s, 1e8 / NVLINK);
}

static void test_pipeline(void) {
    const guint chunks[] = {1, 4, 64, 1024};

    /* c chunks of 1 GB / c go NIC then NVLink, each stage one chunk at a time: the NIC is the slow
     * stage and works without a gap, then the last chunk crosses NVLink:
     * 1 GB / 50 GB/s + (1 GB / c) / 450 GB/s. */
    for (guint i = 0; i < G_N_ELEMENTS(chunks); i++) {
        g_autoptr(Work) work = work_new();
        double size = GB / chunks[i];

        for (guint c = 0; c < chunks[i]; c++) {
            guint first = flow(work, 0, 8, size), second = flow(work, 8, 9, size);
            edge(work, first, second);
            if (c > 0) {
                edge(work, first - 2, first);
                edge(work, second - 2, second);
            }
        }
        run(work, &DGX);
        near(work->makespan_s, GB / NIC + size / NVLINK);
    }
}

static void test_ring(void) {
    g_autoptr(Work) work = work_new();
    guint p = 8;

    /* Ring all-gather of 8 shards of 100 MB over 8 domains: 7 steps of 100 MB / 50 GB/s. */
    for (guint step = 0; step < p - 1; step++)
        for (guint r = 0; r < p; r++) {
            guint item = flow(work, 8 * r, 8 * ((r + 1) % p), 1e8);
            if (step > 0) {
                edge(work, item - p, item);
                edge(work, (step - 1) * p + (r + p - 1) % p, item);
            }
        }
    run(work, &DGX);
    near(work->makespan_s, 7 * 1e8 / NIC);
    for (guint r = 0; r < p; r++)
        near(work->times[3 * p + r].end_s, 4 * 1e8 / NIC);
}

static void test_sliced_chain(void) {
    g_autoptr(Work) work = work_new();
    double lag = GB / 10 / NIC;
    guint hops = 5, previous = 0;

    /* Five hops of 1 GB in 10 slices: hop k starts one slice (2 ms) after hop k-1 and ends one
     * slice after it: 20 ms + 4 x 2 ms, where store and forward would take 100 ms. */
    for (guint h = 0; h < hops; h++) {
        guint item = flow(work, 8 * h, 8 * (h + 1), GB);
        if (h > 0)
            edge_after(work, previous, lag, item | REFIT_NETSIM_ON_START);
        previous = item;
    }
    run(work, &DGX);
    near(work->makespan_s, GB / NIC + (hops - 1) * lag);
    near(work->times[previous].start_s, (hops - 1) * lag);
}

static void test_window(void) {
    /* Four messages of 1 s out of one port; message i waits for message i - w. The port is never
     * idle, so all take 4 s whatever w is; but w of them share it, so the first ends at w s. */
    for (guint window = 1; window <= 3; window++) {
        g_autoptr(Work) work = work_new();

        for (guint i = 0; i < 4; i++) {
            flow(work, 0, 8 * (i + 1), NIC);
            if (i >= window)
                edge(work, i - window, i);
        }
        run(work, &DGX);
        near(work->makespan_s, 4);
        near(work->times[0].end_s, window);
    }
}

static void test_window_gap(void) {
    /* 0 sends 1 s each to 8 and 16; 24 also sends 1 s to 8. One at a time: the first shares 8's
     * port until both end at 2 s, while half of 0's port idles; the second ends at 3 s. Two at a
     * time: rates 1/2 each fill 0's port, and all three end at 2 s. */
    for (guint window = 1; window <= 2; window++) {
        g_autoptr(Work) work = work_new();

        flow(work, 0, 8, NIC);
        flow(work, 0, 16, NIC);
        flow(work, 24, 8, NIC);
        if (window == 1)
            edge(work, 0, 1);
        run(work, &DGX);
        near(work->times[2].end_s, 2);
        near(work->makespan_s, window == 1 ? 3 : 2);
    }
}

static void test_leaves(void) {
    RefitNetsimPlatform platform = DGX;
    guint leaves[64];
    g_autoptr(Work) work = work_new();

    /* Two leaves of 32 GPUs with an uplink of 100 GB/s: eight flows of 1 GB between leaves share
     * it, 8 GB / 100 GB/s = 80 ms; a flow below one leaf keeps its 50 GB/s, one back up its own. */
    for (guint g = 0; g < 64; g++)
        leaves[g] = g / 32;
    platform.n_leaves = 2;
    platform.leaf_of = leaves;
    platform.leaf_uplink_bytes_per_s = 100e9;
    for (guint i = 0; i < 8; i++)
        flow(work, i, 32 + i, GB);
    flow(work, 8, 16, GB);
    flow(work, 40, 9, GB);
    run(work, &platform);
    for (guint i = 0; i < 8; i++)
        near(work->times[i].end_s, 0.080);
    near(work->times[8].end_s, 0.020);
    near(work->times[9].end_s, 0.020);
}

static void test_lags(void) {
    g_autoptr(Work) work = work_new();
    guint first = flow(work, 0, 8, NIC), other = delay(work, 0.25), begun = join(work);
    guint all = join(work), then = flow(work, 0, 8, NIC), last = delay(work, 0.5);

    /* The flow of 1 s starts at 0 and ends at 1: 0.75 s after its start is 0.75; 0.5 s after its
     * end is later than 1 s after the delay's, 1.25, so the second one runs from 1.5 to 2.5, and
     * 0.125 s later follows what lasts half a second. */
    edge_after(work, first, 0.75, begun | REFIT_NETSIM_ON_START);
    edge_after(work, first, 0.5, all);
    edge_after(work, other, 1, all);
    edge(work, all, then);
    edge_after(work, then, 0.125, last);
    run(work, &DGX);
    near(work->times[begun].end_s, 0.75);
    near(work->times[all].start_s, 1.5);
    near(work->times[all].end_s, 1.5);
    near(work->times[then].start_s, 1.5);
    near(work->times[then].end_s, 2.5);
    near(work->times[last].start_s, 2.625);
    near(work->makespan_s, 3.125);
}

static void test_delays_and_joins(void) {
    g_autoptr(Work) work = work_new();
    guint a = delay(work, 0.5), b = delay(work, 0.25), all = join(work), last = delay(work, 0.125);
    guint none = delay(work, 0), then = flow(work, 0, 8, NIC), end = join(work);
    guint early = join(work);

    /* all = max(0.5, 0.25); last ends at 0.625; the flow of 1 s starts there, as the delay of
     * nothing adds nothing; a join may wait for a start. */
    edge(work, a, all);
    edge(work, b, all);
    edge(work, all, last);
    edge(work, last, none);
    edge(work, none, then);
    edge(work, then, end);
    edge(work, then, early | REFIT_NETSIM_ON_START);
    run(work, &DGX);
    near(work->times[all].end_s, 0.5);
    near(work->times[all].start_s, 0.5);
    near(work->times[last].end_s, 0.625);
    near(work->times[then].start_s, 0.625);
    near(work->times[early].end_s, 0.625);
    near(work->times[end].end_s, 1.625);
    near(work->makespan_s, 1.625);
}

static void test_delays_only(void) {
    g_autoptr(Work) work = work_new();
    g_autoptr(Work) joins = work_new();
    g_autoptr(Work) nothing = work_new();

    /* A chain of 1000 delays of 1 ms and, beside it, one of 10 delays of 0.1 s. */
    for (guint i = 0; i < 1000; i++) {
        delay(work, 1e-3);
        if (i > 0)
            edge(work, i - 1, i);
    }
    for (guint i = 0; i < 10; i++) {
        delay(work, 0.1);
        if (i > 0)
            edge(work, 1000 + i - 1, 1000 + i);
    }
    run(work, &DGX);
    near(work->times[499].end_s, 0.5);
    near(work->times[999].end_s, 1);
    near(work->times[1004].end_s, 0.5);
    near(work->makespan_s, 1);
    /* Joins alone take no time, however many. */
    for (guint i = 0; i < 100000; i++) {
        join(joins);
        if (i > 0)
            edge(joins, i - 1, i);
    }
    run(joins, &DGX);
    g_assert_cmpfloat(joins->makespan_s, ==, 0);
    run(nothing, &DGX);
    g_assert_cmpfloat(nothing->makespan_s, ==, 0);
}

static void test_resolution(void) {
    g_autoptr(Work) work = work_new();
    g_autoptr(GError) error = NULL;

    /* Merging dates must not lose time: 50 x (flow of 0.1 ms, delay of 0.05 ms) one after another
     * take 7.5 ms, at a resolution of 1 ms as well, beside flows of 3 ms that share no port. */
    for (guint i = 0; i < 50; i++) {
        guint move = flow(work, 0, 8, NIC * 1e-4), pause = delay(work, 5e-5);

        edge(work, move, pause);
        if (i > 0)
            edge(work, move - 1, move);
    }
    for (guint i = 1; i < 8; i++)
        flow(work, i, 8 + i, NIC * (3e-3 + 1e-5 * i));
    g_assert_true(try_run(work, &DGX, 1e-3, NULL, &error));
    g_assert_no_error(error);
    near(work->makespan_s, 7.5e-3);
    for (guint i = 1; i < 8; i++)
        near(work->times[99 + i].end_s, 3e-3 + 1e-5 * i);
}

static void test_resolution_error(void) {
    g_autoptr(Work) work = work_new();
    g_autofree RefitNetsimTime *exact = NULL;
    g_autoptr(GError) error = NULL;
    double largest = 0, resolution = 1e-4;

    /* 512 flows of 2 to 6 ms alone, 8 from each GPU, one or two at a time: the makespan moves by
     * less than 2 %, and no port ever moves more than its bandwidth allows. */
    for (guint src = 0; src < 64; src++)
        for (guint i = 0; i < 8; i++) {
            guint item =
                flow(work, src, (src + 8 + 5 * i) % 64, 1e8 + 2e5 * ((src * 37 + i * 101) % 1000));
            if (i > 1)
                edge(work, item - 2, item);
        }
    run(work, &DGX);
    exact = g_memdup2(work->times, work->items->len * sizeof *exact);
    largest = work->makespan_s;
    g_assert_true(try_run(work, &DGX, resolution, NULL, &error));
    g_assert_no_error(error);
    g_assert_cmpfloat(fabs(work->makespan_s - largest), <=, 0.02 * largest);
    for (guint src = 0; src < 64; src++) {
        double bytes = 0, end = 0;
        for (guint i = 8 * src; i < 8 * src + 8; i++) {
            const RefitNetsimItem *item = &g_array_index(work->items, RefitNetsimItem, i);
            if (item->dst / 8 != src / 8) {
                bytes += item->bytes;
                end = MAX(end, work->times[i].end_s);
            }
        }
        g_assert_cmpfloat(end, >=, bytes / NIC * (1 - 1e-9));
    }
}

#define N_SIDE 64

/* The join of a rank at the end of a round. */
static guint round_join(guint rank, guint round) {
    return round * 2 * N_SIDE + rank;
}

/*
 * 64 senders, 64 receivers, everyone with everyone, `peers` shifts to a round; a rank's flows of a
 * round begin when it and the other one have ended those of the round before. 2 to 20 ms alone.
 */
static Work *all_to_all(guint peers, double *port_s_out) {
    Work *work = work_new();
    double bytes[2 * N_SIDE] = {0};
    guint n_rounds = N_SIDE / peers;

    for (guint i = 0; i < n_rounds * 2 * N_SIDE; i++)
        join(work);
    for (guint src = 0; src < N_SIDE; src++)
        for (guint i = 0; i < N_SIDE; i++) {
            guint dst = N_SIDE + (src + i) % N_SIDE, round = i / peers;
            double size = 1e8 + 9e5 * ((src * 379 + i * 101 + src * i * 17) % 1000);
            guint item = flow(work, src, dst, size);

            bytes[src] += size;
            bytes[dst] += size;
            for (guint end = 0; end < 2; end++) {
                guint rank = end == 0 ? src : dst;

                edge(work, item, round_join(rank, round));
                if (round > 0)
                    edge(work, round_join(rank, round - 1), item);
            }
        }
    *port_s_out = 0;
    for (guint rank = 0; rank < 2 * N_SIDE; rank++)
        *port_s_out = MAX(*port_s_out, bytes[rank] / NIC);
    return work;
}

/*
 * Thousands of flows of which hundreds are in flight, at the resolution of plans: the debt of one
 * port is not carried by what waits for another. In rounds of four, eight and all.
 */
static void test_resolution_rounds(void) {
    static const guint peers[] = {4, 8, 64};
    RefitNetsimPlatform platform = DGX;

    platform.n_gpus = 2 * N_SIDE;
    for (guint i = 0; i < G_N_ELEMENTS(peers); i++) {
        double port_s, exact_s;
        g_autoptr(Work) work = all_to_all(peers[i], &port_s);
        g_autoptr(GError) error = NULL;

        run(work, &platform);
        exact_s = work->makespan_s;
        g_assert_true(try_run(work, &platform, 0.0005 * port_s, NULL, &error));
        g_assert_no_error(error);
        g_test_message("%u peers: %.6g s, merged %.6g s", peers[i], exact_s, work->makespan_s);
        g_assert_cmpfloat(fabs(work->makespan_s - exact_s), <=, 0.01 * exact_s);
        g_assert_cmpfloat(work->makespan_s, >=, port_s * (1 - 1e-9));
    }
}

/* Many small messages beside a large one: what is merged must not become bandwidth for others. */
static void test_resolution_small(void) {
    const double resolutions[] = {1e-5, 1e-4, 1e-3};

    for (guint r = 0; r < G_N_ELEMENTS(resolutions); r++) {
        g_autoptr(Work) work = work_new();
        g_autoptr(GError) error = NULL;

        /* 400 messages of 0.1 ms alone, one after another, and one of 40 ms, all out of GPU 0:
         * 80 ms. Messages of 37 us between others stop the clock at any time. */
        for (guint i = 0; i < 4400; i++) {
            guint src = i < 400 ? 0 : 1 + i % 2;
            guint item = flow(work, src, 8 + src, NIC * (i < 400 ? 1e-4 : 3.7e-5));

            if (i != 0 && i != 400 && i != 401)
                edge(work, i < 400 ? item - 1 : item - 2, item);
        }
        flow(work, 0, 16, NIC * 40e-3);
        g_assert_true(try_run(work, &DGX, resolutions[r], NULL, &error));
        g_assert_no_error(error);
        g_assert_cmpfloat(work->makespan_s, >=, 80e-3 * (1 - 1e-9));
        g_assert_cmpfloat(work->makespan_s, <=, 80e-3 + 2 * resolutions[r]);
    }
}

/* Between two flows: a lag, or, as the independent solver knows none, a delay; both, too. */
static void follow(Work *work, guint before, guint when, double lag_s, double delay_s, guint after,
                   gboolean in_lags) {
    if (in_lags && delay_s == 0) {
        edge_after(work, before, lag_s, after | when);
        return;
    }
    guint between = delay(work, in_lags ? delay_s : lag_s + delay_s);
    edge_after(work, before, in_lags ? lag_s : 0, between | when);
    edge(work, between, after);
}

/* Random flows over the whole platform against the independent solver, every date. */
static void compare_random(guint n, const RefitNetsimPlatform *platform, gboolean chained) {
    g_autoptr(Work) work = work_new(), without_lags = work_new();
    g_autofree guint64 *offsets = NULL;
    g_autofree guint *successors = NULL;
    g_autofree double *lags_s = NULL;
    g_autofree RefitNetsimTime *expected = g_new0(RefitNetsimTime, 2 * n);
    RefitNetsimGraph graph;
    double makespan;

    for (guint i = 0; i < n; i++) {
        guint src = (guint)g_test_rand_int_range(0, 64);
        guint dst = (src + (guint)g_test_rand_int_range(1, 64)) % 64;
        double bytes = g_test_rand_int_range(1000000, 100000000);

        flow(work, src, dst, bytes);
        flow(without_lags, src, dst, bytes);
    }
    for (guint item = 200; chained && item < n; item++) {
        guint before = (guint)g_test_rand_int_range((gint32)item - 200, (gint32)item);
        guint when = item % 3 == 0 ? REFIT_NETSIM_ON_START : 0;
        double lag_s = g_test_rand_double_range(0, 1e-3);
        double delay_s = item % 2 == 0 ? g_test_rand_double_range(0, 1e-3) : 0;

        follow(work, before, when, lag_s, delay_s, item, TRUE);
        follow(without_lags, before, when, lag_s, delay_s, item, FALSE);
    }
    run(work, platform);
    graph = work_graph(without_lags, &offsets, &successors, &lags_s);
    makespan = fluid_run(platform, &graph, expected);
    g_assert_cmpfloat(fabs(work->makespan_s - makespan), <=, 1e-6 * makespan);
    for (guint i = 0; i < n; i++) {
        if (fabs(work->times[i].end_s - expected[i].end_s) > 1e-6 * expected[i].end_s ||
            fabs(work->times[i].start_s - expected[i].start_s) > 1e-6 * expected[i].end_s)
            g_error("item %u: %.12g to %.12g, not %.12g to %.12g", i, work->times[i].start_s,
                    work->times[i].end_s, expected[i].start_s, expected[i].end_s);
    }
}

static void test_random(void) {
    RefitNetsimPlatform platform = DGX;
    guint leaves[64];

    compare_random(1000, &DGX, FALSE);
    for (guint g = 0; g < 64; g++)
        leaves[g] = g / 16;
    platform.n_leaves = 4;
    platform.leaf_of = leaves;
    platform.leaf_uplink_bytes_per_s = 200e9;
    compare_random(1000, &platform, FALSE);
    compare_random(1500, &platform, TRUE);
}

static void test_repeatable(void) {
    g_autoptr(Work) work = work_new();
    g_autofree RefitNetsimTime *first = NULL;
    g_autofree guint64 *offsets = NULL;
    g_autofree guint *successors = NULL;
    g_autofree double *lags_s = NULL;
    g_autoptr(GError) error = NULL;
    RefitNetsimGraph graph;
    double without_times_s;

    for (guint i = 0; i < 500; i++)
        flow(work, i % 64, (i + 1 + i % 7) % 64, 1e6 * (1 + i % 17));
    run(work, &DGX);
    first = g_memdup2(work->times, work->items->len * sizeof *first);
    run(work, &DGX);
    g_assert_true(memcmp(first, work->times, work->items->len * sizeof *first) == 0);
    graph = work_graph(work, &offsets, &successors, &lags_s);
    g_assert_true(refit_netsim_run(&DGX, &graph, 0, NULL, &without_times_s, &error));
    g_assert_no_error(error);
    g_assert_cmpfloat(without_times_s, ==, work->makespan_s);
}

static void test_bad_items(void) {
    const RefitNetsimItem bad[] = {
        {.kind = REFIT_NETSIM_FLOW, .src = 0, .dst = 0, .bytes = 1},
        {.kind = REFIT_NETSIM_FLOW, .src = 0, .dst = 64, .bytes = 1},
        {.kind = REFIT_NETSIM_FLOW, .src = 64, .dst = 0, .bytes = 1},
        {.kind = REFIT_NETSIM_FLOW, .src = 0, .dst = 1, .bytes = 0},
        {.kind = REFIT_NETSIM_FLOW, .src = 0, .dst = 1, .bytes = -5},
        {.kind = REFIT_NETSIM_FLOW, .src = 0, .dst = 1, .bytes = NAN},
        {.kind = REFIT_NETSIM_FLOW, .src = 0, .dst = 1, .bytes = INFINITY},
        {.kind = REFIT_NETSIM_DELAY, .delay_s = -1e-9},
        {.kind = REFIT_NETSIM_DELAY, .delay_s = NAN},
        {.kind = 7},
    };
    const double bad_lags_s[] = {-1e-9, NAN, INFINITY};
    g_autoptr(Work) beyond = work_new();

    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(Work) work = work_new();
        join(work);
        work_add(work, bad[i]);
        fails(work, &DGX, REFIT_ERROR_INVALID, "item 1 ");
    }
    for (guint i = 0; i < G_N_ELEMENTS(bad_lags_s); i++) {
        g_autoptr(Work) work = work_new();

        join(work);
        join(work);
        edge_after(work, 0, bad_lags_s[i], 1);
        fails(work, &DGX, REFIT_ERROR_INVALID, "item 0 precedes item 1 by a time");
    }
    join(beyond);
    edge(beyond, 0, 1);
    fails(beyond, &DGX, REFIT_ERROR_INVALID, "item 0 precedes item 1, but there are 1 items");
}

static void test_bad_platforms(void) {
    const guint leaves[] = {0, 2};
    g_autoptr(Work) work = work_new();
    RefitNetsimPlatform platform = DGX;

    join(work);
    platform.gpus_per_domain = 0;
    fails(work, &platform, REFIT_ERROR_INVALID, "domains of 0");
    platform = DGX;
    platform.nic_bytes_per_s = 0;
    fails(work, &platform, REFIT_ERROR_INVALID, "NIC bandwidth");
    platform = DGX;
    platform.nvlink_bytes_per_s = NAN;
    fails(work, &platform, REFIT_ERROR_INVALID, "NVLink bandwidth");
    platform = DGX;
    platform.n_gpus = 2;
    platform.n_leaves = 2;
    platform.leaf_of = leaves;
    fails(work, &platform, REFIT_ERROR_INVALID, "leaf uplink bandwidth");
    platform.leaf_uplink_bytes_per_s = 1;
    fails(work, &platform, REFIT_ERROR_INVALID, "GPU 1 is on leaf 2");
}

static void test_cycle(void) {
    g_autoptr(Work) work = work_new();

    /* 1 -> 2 -> 3 -> 1, where 2 counts when it starts, and 4 behind it: four of five are stuck. */
    for (guint i = 0; i < 5; i++)
        join(work);
    edge(work, 1, 2);
    edge(work, 2, 3 | REFIT_NETSIM_ON_START);
    edge(work, 3, 1);
    edge(work, 3, 4);
    fails(work, &DGX, REFIT_ERROR_BACKEND, "item 1 never ran");
    fails(work, &DGX, REFIT_ERROR_BACKEND, "4 of 5 items");
}

static void engine_aborts(const RefitNetsimPlatform *platform G_GNUC_UNUSED,
                          const RefitNetsimGraph *graph G_GNUC_UNUSED,
                          double precision_s G_GNUC_UNUSED, RefitNetsimTime *times G_GNUC_UNUSED,
                          RefitNetsimStatus *status G_GNUC_UNUSED) {
    static const char last_words[] = "the sky fell\nand more\n";

    if (write(STDERR_FILENO, last_words, sizeof last_words - 1) > 0)
        abort();
}

static void engine_exits(const RefitNetsimPlatform *platform G_GNUC_UNUSED,
                         const RefitNetsimGraph *graph G_GNUC_UNUSED,
                         double precision_s G_GNUC_UNUSED, RefitNetsimTime *times G_GNUC_UNUSED,
                         RefitNetsimStatus *status G_GNUC_UNUSED) {
    _exit(3);
}

static void engine_stops(const RefitNetsimPlatform *platform G_GNUC_UNUSED,
                         const RefitNetsimGraph *graph G_GNUC_UNUSED,
                         double precision_s G_GNUC_UNUSED, RefitNetsimTime *times G_GNUC_UNUSED,
                         RefitNetsimStatus *status) {
    status->n_done = 1;
}

static void engine_explains(const RefitNetsimPlatform *platform G_GNUC_UNUSED,
                            const RefitNetsimGraph *graph G_GNUC_UNUSED,
                            double precision_s G_GNUC_UNUSED, RefitNetsimTime *times G_GNUC_UNUSED,
                            RefitNetsimStatus *status) {
    g_strlcpy(status->error, "no such model", sizeof status->error);
}

static void test_crash(void) {
    static const struct {
        RefitNetsimEngine engine;
        const char *message;
    } ends[] = {{engine_aborts, "killed by signal 6 (Aborted): the sky fell"},
                {engine_exits, "ended with status 3"},
                {engine_stops, "after 1 of 2 items"},
                {engine_explains, "SimGrid failed: no such model"}};
    g_autoptr(Work) work = work_new();

    flow(work, 0, 8, GB);
    flow(work, 8, 0, GB);
    for (guint i = 0; i < G_N_ELEMENTS(ends); i++) {
        g_autoptr(GError) error = NULL;
        work->makespan_s = -1;
        g_assert_false(try_run(work, &DGX, 0, ends[i].engine, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND);
        g_assert_nonnull(strstr(error->message, ends[i].message));
        g_assert_null(strstr(error->message, "and more"));
        g_assert_cmpfloat(work->makespan_s, ==, -1);
    }
    /* The caller is none the worse. */
    run(work, &DGX);
    near(work->makespan_s, GB / NIC);
}

static void test_version(void) {
    g_assert_true(g_str_has_prefix(refit_netsim_version(), "SimGrid "));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/netsim/one-flow-takes-bytes-over-bandwidth", test_one_flow);
    g_test_add_func("/netsim/sizes-from-bytes-to-petabytes-are-right", test_sizes);
    g_test_add_func("/netsim/flows-share-a-port-evenly", test_sharing);
    g_test_add_func("/netsim/opposite-directions-do-not-share", test_duplex);
    g_test_add_func("/netsim/what-one-flow-cannot-use-goes-to-others", test_max_min);
    g_test_add_func("/netsim/a-domain-exchanges-at-port-speed", test_fan_out);
    g_test_add_func("/netsim/chunks-pipeline-over-two-stages", test_pipeline);
    g_test_add_func("/netsim/a-ring-takes-one-shard-time-per-step", test_ring);
    g_test_add_func("/netsim/a-sliced-chain-costs-one-slice-per-hop", test_sliced_chain);
    g_test_add_func("/netsim/a-window-limits-what-shares", test_window);
    g_test_add_func("/netsim/a-wider-window-fills-gaps", test_window_gap);
    g_test_add_func("/netsim/leaf-uplinks-limit-traffic-between-leaves", test_leaves);
    g_test_add_func("/netsim/delays-add-and-joins-wait", test_delays_and_joins);
    g_test_add_func("/netsim/lags-count-from-ends-and-from-starts", test_lags);
    g_test_add_func("/netsim/graphs-without-flows-run", test_delays_only);
    g_test_add_func("/netsim/merging-dates-loses-no-time", test_resolution);
    g_test_add_func("/netsim/merging-dates-changes-little", test_resolution_error);
    g_test_add_func("/netsim/merging-dates-of-rounds-changes-little", test_resolution_rounds);
    g_test_add_func("/netsim/merging-dates-of-small-messages-beats-no-port", test_resolution_small);
    g_test_add_func("/netsim/random-flows-end-when-the-fluid-solver-says", test_random);
    g_test_add_func("/netsim/the-same-graph-gives-the-same-dates", test_repeatable);
    g_test_add_func("/netsim/impossible-items-are-named", test_bad_items);
    g_test_add_func("/netsim/impossible-platforms-are-refused", test_bad_platforms);
    g_test_add_func("/netsim/a-cycle-is-reported", test_cycle);
    g_test_add_func("/netsim/a-dying-engine-is-an-error", test_crash);
    g_test_add_func("/netsim/version-names-the-engine", test_version);
    return g_test_run();
}
