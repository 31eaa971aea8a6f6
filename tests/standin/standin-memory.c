/*
 * Device memory. Addresses come from a reserved range that is never mapped, so host code that
 * dereferences one gets SIGSEGV; the bytes lie at a constant distance, in a range of which only
 * live blocks are mapped. Addresses are never used twice, an unmapped page follows each block, the
 * block ends as close to that page as its alignment allows, fresh bytes are 0xCB and the slack
 * around a block is checked when it is freed. A table from page to block makes every check constant
 * time. It is read without order: whoever holds an address knows of its block.
 */

#include "standin-private.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(address, size) __asan_poison_memory_region((address), (size))
#define UNPOISON(address, size) __asan_unpoison_memory_region((address), (size))
#else
#define POISON(address, size) ((void)(address), (void)(size))
#define UNPOISON(address, size) ((void)(address), (void)(size))
#endif

enum { MAX_BLOCKS = 1 << 20, ALIGNMENT = 256, FRESH = 0xCB };

typedef enum { BLOCK_NONE, BLOCK_LIVE, BLOCK_FREED } BlockState;

typedef struct {
    _Atomic int state;
    int device;
    guint64 address; /* as the caller sees it */
    guint64 size;
    guint64 first_page; /* as an offset in the range */
    guint64 n_mapped;   /* bytes, whole pages */
} Block;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static guint64 reserved; /* the range that callers see */
static guint64 span;
static char *mapped;            /* the range that holds the bytes */
static Block *blocks;           /* MAX_BLOCKS of them; number 0 is not used */
static _Atomic uint32_t *pages; /* page -> block */
static _Atomic uint32_t n_blocks;
static _Atomic guint64 n_used = STANDIN_PAGE; /* bytes of the range */
static _Atomic guint64 in_use[STANDIN_MAX_DEVICES];

static void *reserve(guint64 size, int protection) {
    void *range = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        standin_die("cannot reserve %" G_GUINT64_FORMAT
                    " bytes of addresses; lower REFIT_STANDIN_SPAN",
                    size);
    }
    return range;
}

static void reserve_all(void) {
    span = standin_options()->span / STANDIN_PAGE * STANDIN_PAGE;
    reserved = (guint64)(uintptr_t)reserve(span, PROT_NONE);
    mapped = reserve(span, PROT_NONE);
    blocks = reserve(MAX_BLOCKS * sizeof *blocks, PROT_READ | PROT_WRITE);
    pages = reserve(span / STANDIN_PAGE * sizeof *pages, PROT_READ | PROT_WRITE);
}

gboolean standin_is_device(const void *address) {
    pthread_once(&once, reserve_all);
    return (guint64)(uintptr_t)address - reserved < span;
}

void *standin_bytes(const void *address) {
    return standin_is_device(address) ? mapped + ((guint64)(uintptr_t)address - reserved)
                                      : (void *)(uintptr_t)address;
}

static Block *block_of(const void *address) {
    const guint64 page = ((guint64)(uintptr_t)address - reserved) / STANDIN_PAGE;
    const uint32_t i = atomic_load_explicit(&pages[page], memory_order_relaxed);
    return i != 0 ? &blocks[i] : NULL;
}

const char *standin_range_error(const void *address, guint64 size, int device, gboolean host_ok) {
    if (size == 0) {
        return NULL;
    }
    if (address == NULL) {
        return "null pointer";
    }
    if (!standin_is_device(address)) {
        return host_ok ? NULL : "host pointer where device memory is needed";
    }
    const Block *block = block_of(address);
    const guint64 at = (guint64)(uintptr_t)address;
    if (block == NULL || at < block->address || at >= block->address + block->size) {
        return "device address outside every allocation";
    }
    if (atomic_load_explicit(&block->state, memory_order_relaxed) != BLOCK_LIVE) {
        return "device memory already freed";
    }
    if (size > block->address + block->size - at) {
        return "range runs past the end of its allocation";
    }
    if (device >= 0 && block->device != device) {
        return "memory of another device";
    }
    return NULL;
}

void *standin_memory_of(uint64_t address) {
    const void *pointer = (const void *)(uintptr_t)address;
    const char *why = standin_range_error(pointer, 1, standin_device(), FALSE);
    if (why != NULL) {
        standin_die("kernel uses %p: %s", pointer, why);
    }
    return standin_bytes(pointer);
}

gboolean standin_memory_take(int device, guint64 size) {
    const guint64 limit = standin_options()->memory;
    const guint64 others = standin_memory_of_others(device);
    if (size > limit || others > limit - size) {
        return FALSE;
    }
    if (atomic_fetch_add_explicit(&in_use[device], size, memory_order_relaxed) >
        limit - size - others) {
        standin_memory_give(device, size);
        return FALSE;
    }
    return TRUE;
}

void standin_memory_give(int device, guint64 size) {
    atomic_fetch_sub_explicit(&in_use[device], size, memory_order_relaxed);
}

cudaError_t cudaMalloc(void **address_out, size_t size) {
    STANDIN_ENTER(cudaMalloc);
    const int device = standin_device();
    pthread_once(&once, reserve_all);

    if (address_out == NULL) {
        return standin_error(cudaErrorInvalidValue);
    }
    if (size == 0) {
        *address_out = NULL;
        return cudaSuccess;
    }
    if (!standin_memory_take(device, size)) {
        return standin_error(cudaErrorMemoryAllocation);
    }
    const guint64 padded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const guint64 n_mapped = (padded + STANDIN_PAGE - 1) / STANDIN_PAGE * STANDIN_PAGE;
    const guint64 first =
        atomic_fetch_add_explicit(&n_used, n_mapped + STANDIN_PAGE, memory_order_relaxed);
    const uint32_t i = atomic_fetch_add_explicit(&n_blocks, 1, memory_order_relaxed) + 1;
    if (first + n_mapped + STANDIN_PAGE > span || i >= MAX_BLOCKS) {
        standin_die("device addresses are used up: raise REFIT_STANDIN_SPAN");
    }
    if (mprotect(mapped + first, n_mapped, PROT_READ | PROT_WRITE) != 0) {
        return standin_error(cudaErrorMemoryAllocation);
    }
    memset(mapped + first, FRESH, n_mapped);
    const guint64 before = n_mapped - padded;
    POISON(mapped + first, before);
    POISON(mapped + first + before + size, padded - size);

    Block *block = &blocks[i];
    block->device = device;
    block->address = reserved + first + before;
    block->size = size;
    block->first_page = first;
    block->n_mapped = n_mapped;
    atomic_store_explicit(&block->state, BLOCK_LIVE, memory_order_relaxed);
    for (guint64 at = first; at < first + n_mapped; at += STANDIN_PAGE) {
        atomic_store_explicit(&pages[at / STANDIN_PAGE], i, memory_order_relaxed);
    }
    *address_out = (void *)(uintptr_t)block->address;
    return cudaSuccess;
}

static void check_slack(const Block *block, const char *from, guint64 n) {
    for (guint64 i = 0; i < n; i++) {
        if ((unsigned char)from[i] != FRESH) {
            standin_die("memory just outside the block of %" G_GUINT64_FORMAT
                        " bytes at %p was overwritten",
                        block->size, (void *)(uintptr_t)block->address);
        }
    }
}

cudaError_t cudaFree(void *address) {
    STANDIN_ENTER(cudaFree);
    if (address == NULL) {
        return cudaSuccess;
    }
    Block *block = standin_is_device(address) ? block_of(address) : NULL;
    if (block == NULL || block->address != (guint64)(uintptr_t)address) {
        return standin_error(cudaErrorInvalidValue);
    }
    const int device = standin_device();
    standin_device_set(block->device);
    cudaDeviceSynchronize(); /* as the real one does */
    standin_device_set(device);
    int live = BLOCK_LIVE;
    if (!atomic_compare_exchange_strong_explicit(&block->state, &live, BLOCK_FREED,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        return standin_error(cudaErrorInvalidValue);
    }
    char *bytes = mapped + block->first_page;
    const guint64 before = block->address - reserved - block->first_page;
    UNPOISON(bytes, block->n_mapped);
    check_slack(block, bytes, before);
    check_slack(block, bytes + before + block->size, block->n_mapped - before - block->size);
    madvise(bytes, block->n_mapped, MADV_DONTNEED);
    mprotect(bytes, block->n_mapped, PROT_NONE);
    standin_memory_give(block->device, block->size);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **address_out, size_t size) {
    STANDIN_ENTER(cudaMallocHost);
    *address_out = malloc(MAX(size, 1));
    return *address_out != NULL ? cudaSuccess : standin_error(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *address) {
    STANDIN_ENTER(cudaFreeHost);
    free(address);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total_out) {
    STANDIN_ENTER(cudaMemGetInfo);
    const int device = standin_device();
    const guint64 used = atomic_load_explicit(&in_use[device], memory_order_relaxed) +
                         standin_memory_of_others(device);
    *total_out = standin_options()->memory;
    *free_out = used < *total_out ? *total_out - used : 0;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes_out,
                                     const void *address) {
    STANDIN_ENTER(cudaPointerGetAttributes);
    memset(attributes_out, 0, sizeof *attributes_out);
    if (standin_is_device(address) && standin_range_error(address, 1, -1, FALSE) == NULL) {
        attributes_out->type = cudaMemoryTypeDevice;
        attributes_out->device = block_of(address)->device;
        attributes_out->devicePointer = (void *)(uintptr_t)address;
    } else {
        attributes_out->type = cudaMemoryTypeUnregistered;
        attributes_out->device = -2;
        attributes_out->hostPointer = (void *)(uintptr_t)address;
    }
    return cudaSuccess;
}

guint standin_memory_leaks(guint64 *bytes_out) {
    guint n = 0;
    *bytes_out = 0;
    for (uint32_t i = 1; i <= atomic_load(&n_blocks); i++) {
        if (atomic_load(&blocks[i].state) == BLOCK_LIVE && !standin_device_lost(blocks[i].device) &&
            !standin_device_hung(blocks[i].device)) {
            n++;
            *bytes_out += blocks[i].size;
        }
    }
    return n;
}
