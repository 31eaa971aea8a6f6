#pragma once

/*
 * What NCCL itself costs and does on one GPU: communicators of one rank, which sends to itself. So
 * no link is in it, only launches, the order of kernels, and NCCL's own copy.
 *
 * Each function writes rows of validation/measure.h into the array that `json` is in. FALSE with
 * REFIT_ERROR_BACKEND when a call fails, and when something does not end within STACK_PATIENCE_S.
 */

#include <glib.h>

#include "model/base/refit-json.h"

G_BEGIN_DECLS

#define STACK_PATIENCE_S 20

/*
 * Two communicators, A and B, with a stream each. A's stream is held by a host function; then a
 * group is submitted on A, and one on B. Row `passes_a_held_stream`: the share of `n_times` in
 * which B's was done within `wait_s`, while A was held. The parameter `launch_order_implicit` is
 * what the environment says.
 */
gboolean stack_order(guint n_times, double wait_s, RefitJson *json, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Rows `group_host`, with `blocking` 0 and 1: from the beginning of a group of one send and one
 * receive until NCCL has submitted it; the host yields while it waits for that. */
gboolean stack_group(guint n_times, RefitJson *json, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* Rows `self_copy`: `bytes` sent to the rank itself, with 1, 4 and 16 `channels`, from and to
 * addresses that are a multiple of 16 plus `shift_bytes`, 0 and 2. */
gboolean stack_copy(guint64 bytes, guint n_times, RefitJson *json, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
