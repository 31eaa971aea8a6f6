/*
 * Chunks of what moves under one number, and wire memory for them.
 *
 * What the streams may take of the pool is decided first. Then each step says in how many chunks
 * its messages must be cut for a turn to fit into its stream's share, in grains small enough for
 * that; a group of messages that all ranks cut alike takes the smallest grain and the largest
 * number. Places in wire memory are the first that are free under all numbers of an exchange. Cost:
 * messages, times the log of their size where a step needs more chunks than those before it in its
 * group; and for each step of a sliced stage the square of its exchanges.
 */

#include "model/base/refit-checked.h"
#include "model/schedule/refit-schedule-private.h"

#include <math.h>

RefitScheduleGroup *refit_schedule_group_of(const RefitScheduleBuild *build,
                                            const RefitScheduleStep *step) {
    const RefitScheduleExchange *exchange =
        &g_array_index(build->exchanges, RefitScheduleExchange, step->first_exchange);

    return &g_array_index(build->groups, RefitScheduleGroup,
                          build->group_of[g_array_index(build->messages, guint, exchange->first)]);
}

/*
 * Bytes of a turn's wire memory per stream. A stream gets what its busiest rank needs to pack all
 * in REFIT_SCHEDULE_FEW_TURNS turns, but at least LEAST_SHARE, and what a port moves in
 * SUBMIT_TIMES the time in which a host submits the largest turn. Where the pool is not enough for
 * that, it is shared out in proportion to the square roots of these needs, with which all streams
 * together have the fewest turns.
 */
#define LEAST_SHARE ((double)(16u << 20))
#define SUBMIT_TIMES 2
/* A turn has at least so many when no budget is stated, however small the pool is. */
#define LEAST_BYTES (G_GUINT64_CONSTANT(4) << 20)

static double wanted_share(const RefitScheduleBuild *build, guint stream) {
    const RefitCase *refit_case = build->plan->problem->refit_case;
    const RefitProfile *profile = refit_case->profile; /* NULL: no costs stated */
    double packed = (double)build->packed[stream];
    double rate = stream % REFIT_N_LINKS == REFIT_LINK_NVLINK
                      ? refit_case->topology->nvlink_bandwidth.value
                      : refit_case->topology->nic_bandwidth.value;
    double submit_s = profile == NULL ? 0
                                      : (1.0 + build->exchanges_of[stream]) *
                                            refit_profile_value(profile, REFIT_TERM_OPERATION);
    double wanted = MAX(packed / REFIT_SCHEDULE_FEW_TURNS, LEAST_SHARE);

    return packed > 0 ? MAX(wanted, MIN(SUBMIT_TIMES * submit_s * rate, packed)) : 0;
}

static void share_out(const RefitScheduleBuild *build, guint64 *shares) {
    gboolean budget = build->plan->problem->refit_case->budget_staging_bytes > 0;
    double pool = (double)build->pool / REFIT_SCHEDULE_SLOTS, sum = 0, roots = 0;
    gboolean enough;

    /* What the smallest chunks take comes first, so that a budget that they keep is kept. */
    for (guint s = 0; s < build->n_streams; s++) {
        sum += wanted_share(build, s);
        roots += sqrt(wanted_share(build, s));
        pool -= (double)build->least[s];
    }
    /* Where that is too much for all streams together, each rank may still have room for its own,
     * if all of them are the smallest. */
    enough = pool >= 0;
    for (guint s = 0; s < build->n_streams; s++) {
        double wanted = wanted_share(build, s);

        shares[s] = 0;
        if (!(wanted > 0))
            continue;
        if (enough)
            shares[s] = build->least[s] +
                        (guint64)(sum <= pool ? wanted : MIN(pool * sqrt(wanted) / roots, wanted));
        if (!budget)
            shares[s] = MAX(shares[s], LEAST_BYTES);
    }
}

static guint64 round_up(guint64 bytes) {
    return bytes + (REFIT_SCHEDULE_ALIGN - bytes % REFIT_SCHEDULE_ALIGN) % REFIT_SCHEDULE_ALIGN;
}

/* What a step packs of an exchange: so much under each of these numbers. */
typedef struct {
    guint first, end; /* numbers */
    guint64 bytes;
    guint place; /* among the packed exchanges of the step */
} Packed;

static void list_packed(const RefitSchedule *schedule, const RefitScheduleStep *step,
                        GArray *packed) {
    g_array_set_size(packed, 0);
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];
        guint64 bytes = refit_schedule_most_bytes(schedule, exchange);
        Packed item = {.bytes = bytes, .place = packed->len};

        refit_schedule_numbers(schedule, exchange, &item.first, &item.end);
        if (exchange->direct == 0)
            g_array_append_val(packed, item);
    }
}

/* Wire memory of what is under way under the first number of packed exchange `at`. */
static guint64 count_wire(const GArray *packed, guint at, const RefitCutting *cutting) {
    guint number = g_array_index(packed, Packed, at).first;
    guint64 bytes = 0;

    for (guint k = 0; k < packed->len; k++) {
        const Packed *other = &g_array_index(packed, Packed, k);

        if (other->first <= number && number < other->end)
            bytes += round_up(refit_cutting_most(cutting, other->bytes));
    }
    return bytes;
}

/* Most grains of one exchange: more chunks than that change nothing. */
static guint most_grains(const GArray *packed, guint64 grain) {
    const RefitCutting finest = {G_MAXUINT, grain};
    guint most = 1;

    for (guint i = 0; i < packed->len; i++)
        most = MAX(most, refit_cutting_count(&finest, g_array_index(packed, Packed, i).bytes));
    return most;
}

/* Raises the chunks of a group until a turn of the step fits into `share` under each number, or
 * until they are single grains. */
static void cut_finer(const GArray *packed, guint64 share, RefitCutting *cutting) {
    guint most = most_grains(packed, cutting->grain);

    for (guint i = 0; i < packed->len; i++) {
        guint low = cutting->n, high = MAX(most, low);

        if (i > 0 &&
            g_array_index(packed, Packed, i).first == g_array_index(packed, Packed, i - 1).first)
            continue; /* as for the one before */
        while (low < high) {
            cutting->n = low + (high - low) / 2;
            if (count_wire(packed, i, cutting) <= share)
                high = cutting->n;
            else
                low = cutting->n + 1;
        }
        cutting->n = low;
    }
}

/* Enters what the step packs on its stream, and what its smallest chunks take. */
static void survey_step(const RefitScheduleBuild *build, const RefitScheduleStep *step,
                        guint64 *packed) {
    guint64 least = 0;
    const RefitSchedule *schedule = &build->storage->schedule;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];

        if (exchange->direct != 0)
            continue;
        packed[step->stream] += refit_schedule_exchange_bytes(schedule, exchange);
        least += REFIT_SCHEDULE_ALIGN;
    }
    build->least[step->stream] = MAX(build->least[step->stream], least);
    build->exchanges_of[step->stream] = MAX(build->exchanges_of[step->stream], step->n_exchanges);
}

void refit_schedule_survey(RefitScheduleBuild *build) {
    g_autofree guint64 *packed = g_new(guint64, MAX(build->n_streams, 1));

    for (guint rank = 0; rank < build->plan->problem->n_ranks; rank++) {
        for (guint s = 0; s < build->n_streams; s++)
            packed[s] = 0;
        for (guint i = build->step_offsets[rank]; i < build->step_offsets[rank + 1]; i++) {
            const RefitScheduleStep *step = &g_array_index(build->steps, RefitScheduleStep, i);

            if (step->link != REFIT_LINK_LOCAL)
                survey_step(build, step, packed);
        }
        for (guint s = 0; s < build->n_streams; s++)
            build->packed[s] = MAX(build->packed[s], packed[s]);
    }
}

/* Of a step's packed exchanges, the first of a turn must not take all of its memory: a chunk may be
 * a grain longer than its share, which is then a quarter of it at most. */
#define GRAINS_PER_SHARE 4

static guint64 grain_of(const GArray *packed, guint64 share) {
    guint64 grain = share / (GRAINS_PER_SHARE * (guint64)packed->len);

    return MAX(grain - grain % REFIT_SCHEDULE_ALIGN, REFIT_SCHEDULE_ALIGN);
}

void refit_schedule_choose_chunks(RefitScheduleBuild *build) {
    static const guint64 grains[REFIT_SCHEDULE_CUT_LINKS] = {
        [REFIT_SCHEDULE_CUT_LINK(REFIT_LINK_NVLINK)] = REFIT_SCHEDULE_GRAIN_NVLINK,
        [REFIT_SCHEDULE_CUT_LINK(REFIT_LINK_NETWORK)] = REFIT_SCHEDULE_GRAIN_NETWORK,
    };
    g_autofree guint64 *shares = g_new(guint64, MAX(build->n_streams, 1));
    g_autoptr(GArray) packed = g_array_new(FALSE, FALSE, sizeof(Packed));

    share_out(build, shares);
    for (guint g = 0; g < build->groups->len; g++)
        for (guint link = 0; link < REFIT_SCHEDULE_CUT_LINKS; link++)
            g_array_index(build->groups, RefitScheduleGroup, g).cuttings[link] =
                (RefitCutting){1, grains[link]};
    /* All ranks of a group have one grain before they count chunks. */
    for (guint pass = 0; pass < 2; pass++)
        for (guint i = 0; i < build->steps->len; i++) {
            const RefitScheduleStep *step = &g_array_index(build->steps, RefitScheduleStep, i);
            RefitCutting *cutting;

            if (step->link == REFIT_LINK_LOCAL)
                continue;
            list_packed(&build->storage->schedule, step, packed);
            if (packed->len == 0)
                continue;
            cutting = &refit_schedule_group_of(build, step)
                           ->cuttings[REFIT_SCHEDULE_CUT_LINK(step->link)];
            if (pass == 0)
                cutting->grain = MIN(cutting->grain, grain_of(packed, shares[step->stream]));
            else
                cut_finer(packed, shares[step->stream], cutting);
        }
}

/* ---- wire memory ---- */

/* Whether [at, at + bytes) is free of all placed before under the numbers of `item`; if not, where
 * to try next. */
static gboolean is_free(const GArray *packed, const guint64 *places, guint n, const Packed *item,
                        guint64 *at) {
    for (guint i = 0; i < n; i++) {
        const Packed *other = &g_array_index(packed, Packed, i);

        if (other->first < item->end && item->first < other->end &&
            *at < places[i] + other->bytes && places[i] < *at + item->bytes) {
            *at = places[i] + other->bytes;
            return FALSE;
        }
    }
    return TRUE;
}

static int compare_firsts(gconstpointer left, gconstpointer right) {
    const Packed *a = left, *b = right;

    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

gboolean refit_schedule_place_wires(const RefitSchedule *schedule, const RefitScheduleStep *step,
                                    GArray *places, guint64 *bytes_out, GError **error) {
    g_autoptr(GArray) packed = g_array_new(FALSE, FALSE, sizeof(Packed));
    g_autofree guint64 *at = NULL;

    *bytes_out = 0;
    list_packed(schedule, step, packed);
    g_array_set_size(places, packed->len);
    at = g_new(guint64, MAX(packed->len, 1));
    /* In this order, those of one size take no more than are under way at a time. */
    g_array_sort(packed, compare_firsts);
    for (guint i = 0; i < packed->len; i++) {
        Packed *item = &g_array_index(packed, Packed, i);
        gboolean alike = i > 0 && item->first == item[-1].first && item->end == item[-1].end;
        guint64 end;

        item->bytes = round_up(refit_cutting_most(&step->cutting, item->bytes));
        at[i] = alike ? at[i - 1] + item[-1].bytes : 0;
        while (!is_free(packed, at, i, item, &at[i]))
            ;
        if (!refit_checked_add(at[i], item->bytes, "staging bytes", &end, error))
            return FALSE;
        *bytes_out = MAX(*bytes_out, end);
        g_array_index(places, guint64, item->place) = at[i];
    }
    return TRUE;
}
