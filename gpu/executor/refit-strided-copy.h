#pragma once

/*
 * What a kernel of refit-pack.cu reads about one strided copy. Made on the host by refit-strided.h,
 * read on the device: plain types only, the same layout under the C compiler and under nvcc.
 */

#include <stdint.h>

enum {
    REFIT_STRIDED_DIMS = 4,     /* outer dims that one descriptor takes */
    REFIT_STRIDED_TILE = 32768, /* bytes that one block moves before it looks for more work */
};

/* n / divisor for n below 2^31, as a multiplication: (n * multiplier >> 32) >> shift. */
typedef struct {
    uint32_t divisor;
    uint32_t multiplier;
    uint32_t shift;
} RefitDivision;

/*
 * Bytes of one region in the order of its packed form: rows of `run` vectors of 2^width_log2 bytes
 * each, rows numbered by `extent`, innermost outer dim first.
 */
typedef struct {
    uint64_t strided; /* device address of the region's first byte */
    uint64_t other;   /* packed: offset in the packed buffer;
                         a copy: device address of the other place */
    uint64_t n_bytes;
    uint64_t first_tile;                      /* tiles of all descriptors before it in the table */
    int64_t strided_step[REFIT_STRIDED_DIMS]; /* bytes from one index to the next */
    int64_t other_step[REFIT_STRIDED_DIMS];   /* a copy only */
    RefitDivision extent[REFIT_STRIDED_DIMS];
    RefitDivision run;
    uint32_t width_log2; /* 0 to 4: bytes of one access */
    uint32_t n_dims;     /* outer dims in use */
} RefitStridedCopy;

/* The descriptors [first, first + n) of a table and the tiles [first_tile, first_tile + n_tiles)
 * that they make: the work of one launch. */
typedef struct {
    uint32_t first;
    uint32_t n;
    uint64_t first_tile;
    uint64_t n_tiles;
} RefitStridedSpan;
