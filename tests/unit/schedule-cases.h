#pragma once

/* Schedules as text, for the tests that state them by hand. */

#include "model/layout/refit-view.h"
#include "model/schedule/refit-schedule.h"
#include "strategy-cases.h"

static inline RefitSchedule *schedule_of(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    RefitSchedule *schedule = refit_schedule_new(plan, &error);

    g_assert_no_error(error);
    g_assert_true(refit_schedule_check(schedule, &error));
    g_assert_no_error(error);
    return schedule;
}

/* What a rank of a side has; NULL when it is none. Caller frees. */
static inline RefitRankViews *schedule_views_of(const RefitLayout *layout, guint rank) {
    g_autoptr(GError) error = NULL;
    RefitRankViews *views =
        refit_layout_has_rank(layout, rank) ? refit_rank_views_new(layout, rank, &error) : NULL;

    g_assert_no_error(error);
    return views;
}

static inline void schedule_append_exchange(GString *text, const RefitSchedule *schedule,
                                            const RefitScheduleExchange *exchange) {
    guint64 bytes = refit_schedule_exchange_bytes(schedule, exchange);

    switch ((RefitExchangeKind)exchange->kind) {
    case REFIT_EXCHANGE_SEND:
    case REFIT_EXCHANGE_RECEIVE:
        g_string_append_printf(text, " %c%u:%" G_GUINT64_FORMAT "%c",
                               exchange->kind == REFIT_EXCHANGE_SEND ? '>' : '<', exchange->peer,
                               bytes, exchange->direct ? 'd' : 'p');
        break;
    case REFIT_EXCHANGE_COPY:
        g_string_append_printf(text, " =%" G_GUINT64_FORMAT, bytes);
        break;
    default:
        g_string_append_printf(text, " !%" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT, bytes,
                               schedule->installs[exchange->first].tensors);
        break;
    }
    if (exchange->n_messages > 1)
        g_string_append_printf(text, "x%u", exchange->n_messages);
}

/*
 * The steps of a rank: "NUMBER[-LAST] LINK[ in CHUNKS]: EXCHANGES[; after WAITS]", with " | "
 * between. Exchanges: "<PEER:BYTES" received, ">PEER:BYTES" sent, with a "d" where it is direct,
 * "p" where it is packed, and "xN" messages; "=BYTES" copied; "!BYTES/TENSORS" installed. Waits:
 * steps of the rank, those in slices with a "~".
 */
static inline char *schedule_describe(const RefitSchedule *schedule, guint rank) {
    GString *text = g_string_new(NULL);
    guint n;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

    for (guint i = 0; i < n; i++) {
        const RefitScheduleStep *step = &steps[i];

        g_string_append_printf(text, "%s%u", i > 0 ? " | " : "", step->number);
        if (step->n_numbers > 1)
            g_string_append_printf(text, "-%u", step->number + step->n_numbers - 1);
        g_string_append_printf(text, " %s", refit_link_name((RefitLink)step->link));
        if (step->n_chunks > 1)
            g_string_append_printf(text, " in %u", step->n_chunks);
        g_string_append_c(text, ':');
        for (guint e = 0; e < step->n_exchanges; e++)
            schedule_append_exchange(text, schedule,
                                     &schedule->exchanges[step->first_exchange + e]);
        for (guint w = 0; w < step->n_waits; w++) {
            const RefitWait *wait = &schedule->waits[step->first_wait + w];

            g_string_append_printf(text, "%s %s%u", w == 0 ? "; after" : "",
                                   wait->in_slices ? "~" : "", wait->step);
        }
    }
    return g_string_free(text, FALSE);
}

static inline void schedule_assert(const RefitSchedule *schedule, guint rank,
                                   const char *expected) {
    g_autofree char *text = schedule_describe(schedule, rank);

    g_assert_cmpstr(text, ==, expected);
}
