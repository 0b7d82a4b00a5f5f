/* Identities: keys under which the time of a piece of work is learnt.
 *
 * Work of one identity takes about the same time: a kernel at one grid, block and shared-memory size; an executable
 * graph between two updates; a copy of about one size. An identity is a 64-bit hash, never 0; two pieces of work that
 * collide share an estimate, which costs a little accuracy and nothing else. Never by position in a sequence: dynamic
 * shapes and data-dependent control flow change the sequence. */
#ifndef ORION_IDENTITY_H
#define ORION_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

enum orion_work_kind { /* the seed of the hash */
    ORION_WORK_KERNEL = 1, ORION_WORK_GRAPH = 2, ORION_WORK_COPY_IN = 3, ORION_WORK_COPY_OUT = 4,
    ORION_WORK_COPY_DEVICE = 5, ORION_WORK_MEMSET = 6, ORION_WORK_PREFETCH = 7, ORION_WORK_STREAM_OPERATION = 8,
};

#define ORION_IDENTITY_NONE UINT64_C(0)

static inline uint64_t orion_mix(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    return value;
}

static inline uint64_t orion_identity_kernel(const void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes)
{
    uint64_t grid = grid_x + ((uint64_t)grid_y << 32) + ((uint64_t)grid_z << 16);
    uint64_t block = block_x + ((uint64_t)block_y << 11) + ((uint64_t)block_z << 22) + ((uint64_t)shared_bytes << 32);
    return orion_mix((uint64_t)(uintptr_t)function * UINT64_C(0x9e3779b97f4a7c15) + grid * UINT64_C(0xc2b2ae3d27d4eb4f) +
                     block * UINT64_C(0x165667b19e3779f9) + ORION_WORK_KERNEL) | 1;
}

static inline uint64_t orion_identity_graph(const void *executable)
{
    return orion_mix((uint64_t)(uintptr_t)executable * UINT64_C(0x9e3779b97f4a7c15) + ORION_WORK_GRAPH) | 1;
}

/* Copies and memsets: sizes within an eighth of a power of two share an identity. */
static inline uint64_t orion_identity_bytes(enum orion_work_kind kind, size_t bytes)
{
    uint64_t size = bytes | 8;
    unsigned top = 63u - (unsigned)__builtin_clzll(size);
    uint64_t bucket = ((uint64_t)top << 3) | ((size >> (top - 3)) & 7);
    return orion_mix(bucket * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)kind) | 1;
}

#endif
