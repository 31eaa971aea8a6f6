/*
 * Where a kernel is in its grid: one copy per thread that runs blocks.
 */

#include "standin-kernel.h"

thread_local StandinIndex standin_thread_index, standin_block_index, standin_block_size,
    standin_grid_size;
