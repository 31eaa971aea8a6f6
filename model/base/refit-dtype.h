#pragma once

/*
 * Element types, named as in safetensors. The planner only needs their size; sub-byte types carry
 * bits so that a cut inside a byte can be refused.
 */

#include "model/base/refit-error.h"

G_BEGIN_DECLS

/* X(SUFFIX, bits, safetensors name, name used in case files) */
#define REFIT_DTYPE_MAP(X)                                                                         \
    X(BF16, 16, "BF16", "bf16")                                                                    \
    X(F16, 16, "F16", "f16")                                                                       \
    X(F32, 32, "F32", "f32")                                                                       \
    X(F64, 64, "F64", "f64")                                                                       \
    X(F8_E4M3, 8, "F8_E4M3", "f8_e4m3")                                                            \
    X(F8_E5M2, 8, "F8_E5M2", "f8_e5m2")                                                            \
    X(U8, 8, "U8", "u8")                                                                           \
    X(I8, 8, "I8", "i8")                                                                           \
    X(I32, 32, "I32", "i32")                                                                       \
    X(I64, 64, "I64", "i64")                                                                       \
    X(F4, 4, "F4", "f4")                                                                           \
    X(F8_E8M0, 8, "F8_E8M0", "f8_e8m0") /* block scales: powers of two */                          \
    X(I16, 16, "I16", "i16")                                                                       \
    X(U16, 16, "U16", "u16")                                                                       \
    X(U32, 32, "U32", "u32")                                                                       \
    X(U64, 64, "U64", "u64")                                                                       \
    X(BOOL, 8, "BOOL", "bool")

typedef enum {
#define X(suffix, bits, name, key) REFIT_DTYPE_##suffix,
    REFIT_DTYPE_MAP(X)
#undef X
        REFIT_N_DTYPES
} RefitDtype;

/* Bits of one element. */
guint refit_dtype_bits(RefitDtype dtype);

/* safetensors spelling, such as "BF16". Static string. */
const char *refit_dtype_name(RefitDtype dtype);

/* Accepts both spellings, case-insensitively; REFIT_ERROR_INVALID lists the known names. */
gboolean refit_dtype_parse(const char *text, RefitDtype *dtype_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * Bytes of `elements` packed elements. REFIT_ERROR_OVERFLOW when it does not fit in 64 bits,
 * REFIT_ERROR_INVALID when a sub-byte type does not end on a byte.
 */
gboolean refit_dtype_bytes(RefitDtype dtype, guint64 elements, guint64 *bytes_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
