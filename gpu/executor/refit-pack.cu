/*
 * Strided copies on the device. A table lists regions; the bytes of each, in packed order, are cut
 * into tiles, and the tiles of a whole span are dealt to the blocks round robin, so one launch
 * serves all peers of a step whatever the sizes of their messages. A block finds the region of a
 * tile by binary search; its threads move neighbouring vectors of up to 16 bytes, four loads in
 * flight before the four stores. Where a vector lies costs one multiplication per dim. Cost: one
 * read and one write of every byte, and a search of log2(regions) loads per 32 KiB.
 */

#include "gpu/executor/refit-pack.h"

#include "gpu/executor/refit-kernel.h"

namespace {

constexpr uint32_t n_threads = 256;
constexpr uint32_t n_in_flight = 4;

enum Kind { PACK, UNPACK, COPY };

} // namespace

REFIT_KERNEL_INLINE uint32_t quotient(uint32_t n, const RefitDivision &by) {
    return by.divisor == 1 ? n : uint32_t(uint64_t(n) * by.multiplier >> 32) >> by.shift;
}

/* Byte offset, at the given steps, of vector `in_row` counted from the start of row `row`; it may
 * lie in a later row. */
template <int n_dims>
REFIT_KERNEL_INLINE int64_t offset_of(const RefitStridedCopy &copy, const int64_t *step,
                                      uint32_t row, uint32_t in_row, uint32_t width) {
    const uint32_t rows = quotient(in_row, copy.run);
    int64_t offset = int64_t(in_row - rows * copy.run.divisor) * width;
    uint32_t index = row + rows;
    REFIT_KERNEL_UNROLL
    for (int i = 0; i < n_dims; i++) { /* the slowest index needs no division */
        const uint32_t up = i + 1 < n_dims ? quotient(index, copy.extent[i]) : 0;
        offset += int64_t(index - up * copy.extent[i].divisor) * step[i];
        index = up;
    }
    return offset;
}

/* Where a tile lies: its first vector is `in_row` of `row`, and `n` vectors follow. */
struct Tile {
    uint32_t row;
    uint32_t in_row;
    uint32_t n;
};

template <class Vector, int n_dims, Kind kind>
REFIT_KERNEL_INLINE void move(const RefitStridedCopy &copy, char *strided, char *other,
                              const Tile &tile) {
    constexpr uint32_t width = sizeof(Vector);
    for (uint32_t begin = threadIdx.x; begin < tile.n; begin += n_in_flight * n_threads) {
        Vector vector[n_in_flight] = {};
        REFIT_KERNEL_UNROLL
        for (uint32_t u = 0; u < n_in_flight; u++) {
            const uint32_t v = begin + u * n_threads;
            if (v < tile.n) {
                const char *from =
                    kind == UNPACK ? other + uint64_t(v) * width
                                   : strided + offset_of<n_dims>(copy, copy.strided_step, tile.row,
                                                                 tile.in_row + v, width);
                vector[u] = refit_kernel_load(reinterpret_cast<const Vector *>(from));
            }
        }
        REFIT_KERNEL_UNROLL
        for (uint32_t u = 0; u < n_in_flight; u++) {
            const uint32_t v = begin + u * n_threads;
            if (v < tile.n) {
                char *to = kind == PACK ? other + uint64_t(v) * width
                           : kind == UNPACK
                               ? strided + offset_of<n_dims>(copy, copy.strided_step, tile.row,
                                                             tile.in_row + v, width)
                               : other + offset_of<n_dims>(copy, copy.other_step, tile.row,
                                                           tile.in_row + v, width);
                *reinterpret_cast<Vector *>(to) = vector[u];
            }
        }
    }
}

/* Bytes [begin, begin + n) of the packed form of `copy`. */
template <class Vector, Kind kind>
REFIT_KERNEL_INLINE void move_tile(const RefitStridedCopy &copy, char *packed, uint64_t begin,
                                   uint32_t n) {
    const uint64_t vector = begin / sizeof(Vector);
    const uint32_t row = uint32_t(vector / copy.run.divisor);
    const Tile tile = {row, uint32_t(vector - uint64_t(row) * copy.run.divisor),
                       uint32_t(n / sizeof(Vector))};
    char *strided = REFIT_KERNEL_MEMORY(char *, copy.strided);
    char *other = kind == COPY ? REFIT_KERNEL_MEMORY(char *, copy.other)
                               : REFIT_KERNEL_MEMORY(char *, packed) + copy.other + begin;
    if (copy.n_dims <= 1) {
        move<Vector, 1, kind>(copy, strided, other, tile);
    } else {
        move<Vector, REFIT_STRIDED_DIMS, kind>(copy, strided, other, tile);
    }
}

template <Kind kind>
REFIT_KERNEL_INLINE void run_span(const RefitStridedCopy *device_table,
                                  const RefitStridedSpan &span, char *packed) {
    const RefitStridedCopy *table = REFIT_KERNEL_MEMORY(const RefitStridedCopy *, device_table);
    const uint64_t end = span.first_tile + span.n_tiles;
    for (uint64_t t = span.first_tile + blockIdx.x; t < end; t += gridDim.x) {
        uint32_t low = span.first; /* the last region that begins at or before the tile */
        uint32_t high = span.first + span.n;
        while (high - low > 1) {
            const uint32_t middle = low + (high - low) / 2;
            if (table[middle].first_tile <= t) {
                low = middle;
            } else {
                high = middle;
            }
        }
        const RefitStridedCopy copy = table[low]; /* by value: the stores below could alias it */
        const uint64_t begin = (t - copy.first_tile) * REFIT_STRIDED_TILE;
        const uint64_t left = copy.n_bytes - begin;
        const uint32_t n =
            left < REFIT_STRIDED_TILE ? uint32_t(left) : uint32_t(REFIT_STRIDED_TILE);
        switch (copy.width_log2) {
        case 4:
            move_tile<uint4, kind>(copy, packed, begin, n);
            break;
        case 3:
            move_tile<uint2, kind>(copy, packed, begin, n);
            break;
        case 2:
            move_tile<uint32_t, kind>(copy, packed, begin, n);
            break;
        case 1:
            move_tile<uint16_t, kind>(copy, packed, begin, n);
            break;
        default:
            move_tile<uint8_t, kind>(copy, packed, begin, n);
            break;
        }
    }
}

REFIT_KERNEL(n_threads, 4)
refit_pack_kernel(const RefitStridedCopy *table, RefitStridedSpan span, char *packed) {
    run_span<PACK>(table, span, packed);
}

REFIT_KERNEL(n_threads, 4)
refit_unpack_kernel(const RefitStridedCopy *table, RefitStridedSpan span, char *packed) {
    run_span<UNPACK>(table, span, packed);
}

REFIT_KERNEL(n_threads, 3) /* two offsets per vector need more registers */
refit_copy_kernel(const RefitStridedCopy *table, RefitStridedSpan span) {
    run_span<COPY>(table, span, nullptr);
}

static unsigned blocks_for(const RefitStridedSpan &span, unsigned max_blocks) {
    return span.n_tiles < max_blocks ? unsigned(span.n_tiles) : max_blocks;
}

extern "C" cudaError_t refit_pack_launch(const RefitStridedCopy *table,
                                         const RefitStridedSpan *span, void *packed,
                                         unsigned max_blocks, cudaStream_t stream) {
    if (span->n_tiles == 0) {
        return cudaSuccess;
    }
    return REFIT_KERNEL_LAUNCH(refit_pack_kernel, blocks_for(*span, max_blocks), n_threads, stream,
                               table, *span, static_cast<char *>(packed));
}

extern "C" cudaError_t refit_unpack_launch(const RefitStridedCopy *table,
                                           const RefitStridedSpan *span, const void *packed,
                                           unsigned max_blocks, cudaStream_t stream) {
    if (span->n_tiles == 0) {
        return cudaSuccess;
    }
    return REFIT_KERNEL_LAUNCH(refit_unpack_kernel, blocks_for(*span, max_blocks), n_threads,
                               stream, table, *span,
                               static_cast<char *>(const_cast<void *>(packed)));
}

extern "C" cudaError_t refit_copy_launch(const RefitStridedCopy *table,
                                         const RefitStridedSpan *span, unsigned max_blocks,
                                         cudaStream_t stream) {
    if (span->n_tiles == 0) {
        return cudaSuccess;
    }
    return REFIT_KERNEL_LAUNCH(refit_copy_kernel, blocks_for(*span, max_blocks), n_threads, stream,
                               table, *span);
}
