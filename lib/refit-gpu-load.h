#pragma once

/* Loads the executor plugin (refit-gpu.h) into a program that links neither CUDA nor NCCL. */

#include "gpu/executor/refit-gpu.h"

G_BEGIN_DECLS

/*
 * The table of the plugin at `path`, NULL: the one that belongs to this build. Its probe() has been
 * called, once in the process. A plugin stays loaded. REFIT_ERROR_NOT_SUPPORTED when it is not
 * there, is of another version, or finds nothing to run on. From any thread.
 */
const RefitGpu *refit_gpu_load(const char *path, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
