#pragma once

/* The files of this machine, for the core, which opens none itself. Needs neither CUDA nor NCCL. */

#include "model/base/refit-files.h"

G_BEGIN_DECLS

extern const RefitFiles refit_disk;

G_END_DECLS
