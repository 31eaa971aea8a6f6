#pragma once

/*
 * The pack kernel where it has to run: beside a kernel that stays, and with narrow accesses. Rows
 * of validation/measure.h, as in stack-nccl.h; the program's environment,
 * CUDA_DEVICE_MAX_CONNECTIONS, is a parameter of theirs. FALSE with REFIT_ERROR_BACKEND.
 */

#include <glib.h>

#include "model/base/refit-json.h"

G_BEGIN_DECLS

typedef struct {
    guint64 bytes;         /* that a launch packs, a multiple of STACK_PACK_RUN */
    guint n_times;         /* that each width is timed */
    guint resident_blocks; /* of the kernel that stays, */
    guint64 resident_ns;   /* for so long */
} StackPack;

enum { STACK_PACK_RUN = 4096 };

/*
 * With 8, 16, 32 and 64 `kernel_blocks`, with and without the other kernel: rows `pack_rate`, and
 * rows `pack_waits`, the share of pack's streams on which it was not done before the kernel that
 * stays was. That one is on the first of twelve streams, which are as many as the executor makes,
 * with a kernel behind it that must wait; pack is on each of the others in turn.
 */
gboolean stack_pack_beside(const StackPack *what, RefitJson *json, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Rows `pack_rate` with 64 blocks, alone, by accesses of 2, 8 and 16 bytes. */
gboolean stack_pack_width(const StackPack *what, RefitJson *json, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
