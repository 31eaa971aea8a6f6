/*
 * Room on a device: REFIT_STANDIN_SMS slots, one per multiprocessor. A kernel of NCCL's needs all
 * its blocks at the same time, for its blocks wait for those of other ranks: it starts only when
 * all find a slot, and holds them until it ends. Other kernels run in as many slots as there are,
 * one at least. Which of those that wait comes next is chance, as is the driver's choice to anyone
 * who does not order them. So kernels of several communicators that do not fit beside each other
 * may start in opposite order on two ranks, and hang as they would there.
 *
 * Waiting for room is no dependency: no happens-before edge.
 */

#include "standin-private.h"

#include <stdio.h>

static _Atomic uint32_t n_held[STANDIN_MAX_DEVICES];
static _Atomic uint32_t n_wanted[STANDIN_MAX_DEVICES]; /* by kernels that wait */

/* Takes what it can get, 0 when that is less than `least`. */
static guint try_take(int device, guint least, guint most) {
    const guint all = standin_options()->sms;
    uint32_t held = atomic_load_explicit(&n_held[device], memory_order_relaxed);
    for (;;) {
        const guint room = held < all ? all - held : 0;
        if (room < least) {
            return 0;
        }
        if (atomic_compare_exchange_weak_explicit(&n_held[device], &held, held + MIN(room, most),
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return MIN(room, most);
        }
    }
}

guint standin_room_take(int device, guint least, guint most, const _Atomic bool *aborted,
                        const char *who) {
    guint taken = try_take(device, least, most);
    if (taken > 0 || most == 0) {
        return taken;
    }
    atomic_fetch_add_explicit(&n_wanted[device], least, memory_order_relaxed);
    while (taken == 0 && !standin_device_lost(device) &&
           (aborted == NULL || !atomic_load_explicit(aborted, memory_order_relaxed))) {
        standin_sleep(&n_held[device], atomic_load_explicit(&n_held[device], memory_order_relaxed),
                      who);
        standin_jitter();
        taken = try_take(device, least, most);
    }
    atomic_fetch_sub_explicit(&n_wanted[device], least, memory_order_relaxed);
    return taken;
}

void standin_room_give(int device, guint n) {
    if (n > 0) {
        atomic_fetch_sub_explicit(&n_held[device], n, memory_order_relaxed);
        standin_wake(&n_held[device]);
    }
}

void standin_rooms_print(void) {
    for (int device = 0; device < STANDIN_MAX_DEVICES; device++) {
        const guint held = atomic_load_explicit(&n_held[device], memory_order_relaxed);
        const guint wanted = atomic_load_explicit(&n_wanted[device], memory_order_relaxed);
        if (held + wanted > 0) {
            fprintf(stderr, "  device %d: %u of %u CTAs held, %u more wanted\n", device, held,
                    standin_options()->sms, wanted);
        }
    }
}
