/*
 * Waiting, and the ends that the stand-in puts to a process. Waiters sleep on a futex for at most
 * 20 ms and then look whether anything in the process has moved; if nothing has for the stated
 * time, the first to notice prints what every stream is doing and leaves with a code of its own.
 * Time in which no waiter came to look counts little: the machine is busy then, not the program
 * stuck.
 * Futexes are called directly: a lock or a semaphore would order threads that a GPU does not order.
 */

#include "standin-private.h"

#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LOOK_US = 100 * 1000 };

static _Atomic guint64 n_moves;

void standin_progress(void) {
    atomic_fetch_add_explicit(&n_moves, 1, memory_order_relaxed);
}

_Noreturn void standin_die(const char *format, ...) {
    char text[STANDIN_TEXT];
    va_list arguments;

    va_start(arguments, format);
    g_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "stand-in: misuse (device %d): %s\n", standin_device(), text);
    fflush(stderr);
    _exit(STANDIN_EXIT_MISUSE);
}

static void die_stuck(const char *who) {
    static _Atomic bool once;
    if (atomic_exchange_explicit(&once, true, memory_order_relaxed)) {
        for (;;) {
            pause(); /* another thread is reporting */
        }
    }
    fprintf(stderr,
            "stand-in: stuck: nothing moved for %" G_GUINT64_FORMAT
            " ms (seen by %s). Streams with work, and groups that are not on one yet:\n",
            standin_options()->timeout_ms, who);
    standin_streams_print();
    standin_connects_print();
    standin_rooms_print();
    fflush(stderr);
    _exit(STANDIN_EXIT_STUCK);
}

void standin_watch(const char *who) {
    static _Atomic guint64 last_moves, last_look_us, quiet_us;
    const guint64 moves = atomic_load_explicit(&n_moves, memory_order_relaxed);
    const guint64 now_us = (guint64)g_get_monotonic_time();
    const guint64 before_us = atomic_exchange_explicit(&last_look_us, now_us, memory_order_relaxed);
    const guint64 passed_us = now_us > before_us ? MIN(now_us - before_us, MAX_LOOK_US) : 0;

    if (before_us == 0 || moves != atomic_load_explicit(&last_moves, memory_order_relaxed)) {
        atomic_store_explicit(&last_moves, moves, memory_order_relaxed);
        atomic_store_explicit(&quiet_us, 0, memory_order_relaxed);
    } else if (atomic_fetch_add_explicit(&quiet_us, passed_us, memory_order_relaxed) + passed_us >
               standin_options()->timeout_ms * 1000) {
        die_stuck(who);
    }
}

void standin_wake(_Atomic uint32_t *gate) {
    syscall(SYS_futex, gate, FUTEX_WAKE, G_MAXINT, NULL, NULL, 0);
}

void standin_sleep(_Atomic uint32_t *gate, uint32_t seen, const char *who) {
    standin_sleep_at_most(gate, seen, STANDIN_SLEEP_NS, who);
}

void standin_sleep_at_most(_Atomic uint32_t *gate, uint32_t seen, gint64 ns, const char *who) {
    const struct timespec limit = {.tv_nsec = MIN(ns, STANDIN_SLEEP_NS)};
    syscall(SYS_futex, gate, FUTEX_WAIT, seen, &limit, NULL, 0);
    standin_watch(who);
}

void standin_wait_unordered(_Atomic uint32_t *gate, uint32_t least, const char *who) {
    for (;;) {
        const uint32_t now = atomic_load_explicit(gate, memory_order_relaxed);
        if ((int32_t)(now - least) >= 0) {
            return;
        }
        standin_sleep(gate, now, who);
    }
}

void standin_wait(_Atomic uint32_t *gate, uint32_t least, const char *who) {
    standin_wait_unordered(gate, least, who);
    (void)atomic_load_explicit(gate, memory_order_acquire);
}
