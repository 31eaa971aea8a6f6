#pragma once

/*
 * Errors of the whole project.
 *
 * Every function that can fail takes a `GError **` as its last argument and returns FALSE or NULL
 * when it fails. Output arguments end in `_out` and are written only on success. A message is
 * lower case, has no full stop, and says where, what value, what limit and what to do. Programmer
 * mistakes are caught by g_assert and g_return_if_fail, never by a GError. Running out of host
 * memory aborts, as everywhere in GLib.
 */

#include <glib.h>

G_BEGIN_DECLS

#define REFIT_ERROR (refit_error_quark())

/*
 * X(SUFFIX, exit_code, name, meaning): one row per code. The exit code is what the program returns
 * for it; the name is what JSON error objects carry.
 */
#define REFIT_ERROR_MAP(X)                                                                         \
    X(PARSE, 3, "parse", "the text is not YAML, JSON or a quantity")                               \
    X(INVALID, 3, "invalid", "the text is well formed but says something impossible")              \
    X(OVERFLOW, 3, "overflow", "a size does not fit in 64 bits")                                   \
    X(INFEASIBLE, 4, "infeasible", "no plan exists within the stated limits")                      \
    X(NOT_SUPPORTED, 5, "not-supported", "this build or machine cannot do it")                     \
    X(BACKEND, 6, "backend", "SimGrid, CUDA, NCCL or the operating system failed")                 \
    X(COVERAGE, 1, "coverage", "a plan does not deliver exactly what is needed")                   \
    /* What two sides declare, checked before anything moves. */                                   \
    X(MESH_SIZE, 3, "mesh-size", "a mesh does not have one rank per position")                     \
    X(RANK_DUP, 3, "rank-dup", "a rank has two positions in one mesh")                             \
    X(PLACEMENT_COUNT, 3, "placement-count", "a mesh does not have one placement per axis")        \
    X(DIM_RANGE, 3, "dim-range", "a cut names a dim that the tensor does not have")                \
    X(SCALAR_SHARD, 3, "scalar-shard", "a tensor without dims is cut")                             \
    X(PARTITION_SUM, 3, "partition-sum", "stated sizes do not sum to the extent they cut")         \
    X(PARTITION_COUNT, 3, "partition-count", "stated sizes do not match the ranks of their axis")  \
    X(SHAPE_MISMATCH, 3, "shape-mismatch", "the sides state different shapes of a tensor")         \
    X(LOCAL_SHAPE, 3, "local-shape", "a rank states another local shape than its layout gives")    \
    X(NAME_COLLISION, 3, "name-collision", "two tensors have one name")                            \
    X(NAME_MISSING, 3, "name-missing", "a required tensor is not there")                           \
    X(NOT_COVERED, 3, "not-covered", "elements that a destination needs are held by no source")    \
    X(DATA_LOST, 3, "data-lost", "elements were held only by ranks that failed")                   \
    X(DEVICE_DUP, 3, "device-dup", "two ranks share one device")                                   \
    X(WIRE_SIZE, 3, "wire-size", "the sides expect different sizes on the wire")                   \
    X(GRANULE_SPLIT, 3, "granule-split", "a cut falls inside a block that stays together")         \
    X(TILE_SPLIT, 3, "tile-split", "a cut falls inside a tile of a swizzled tensor")               \
    X(SUBBYTE_SPLIT, 3, "subbyte-split", "a cut falls inside a byte")                              \
    X(LIMIT, 4, "limit", "no plan keeps a stated limit")

typedef enum {
#define X(suffix, exit_code, name, meaning) REFIT_ERROR_##suffix,
    REFIT_ERROR_MAP(X)
#undef X
} RefitError;

GQuark refit_error_quark(void);

/* Exit code of the program for `error`; 6 for an error of another domain. */
int refit_error_exit_code(const GError *error);

/* Stable name of the code, such as "parse"; "backend" for another domain. Static string. */
const char *refit_error_name(const GError *error);

/*
 * Text of an input as shown in messages: valid UTF-8, control characters shown as '?', at most 80
 * characters (a longer text ends in "..."). Caller frees.
 */
char *refit_error_excerpt(const char *text);

G_END_DECLS
