/*
 * What the CPU stand-in of CUDA asks of its own NCCL, answered for the loop-back: communicators
 * that are left when the process ends; nothing of connections, which take no memory here. Linked
 * instead of the stand-in's NCCL.
 */

#include "loopback.h"
#include "standin-private.h"

guint standin_comm_leaks(void) {
    return loop_n_comms();
}

guint64 standin_memory_of_others(int device) {
    (void)device;
    return 0;
}

void standin_connects_print(void) {
}
