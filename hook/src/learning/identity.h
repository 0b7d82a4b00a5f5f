/* Identities: the keys under which the hook learns how long work takes.
 *
 * Work with the same identity takes about the same time: a kernel with one name, grid, block and shared-memory size; an
 * executable graph with the same nodes; a copy of about the same size. An identity is a 64-bit hash and never 0. If two
 * pieces of work collide, they share one expected duration; that only costs accuracy. Rejected: the position in a
 * sequence of launches, because dynamic shapes and data-dependent control flow change the sequence.
 *
 * Identities are equal in all processes and in Python (`hook/identity.py`), so a later process can use what an earlier
 * one learnt. If a kernel has no name, or a graph's nodes do not determine what runs, the identity is made from the
 * handle. Such an identity is marked as local (ORION_IDENTITY_LOCAL), and no process sends it to another.
 *
 * Kernels of one name may have different code in different processes, because some compilers name kernels by what they
 * fuse. So a kernel's identity is the identity of its name and shape, XORed with a mark of its code: a hash of
 * registers, memory and parameters. An identity without a mark is a plain identity. A profile's row contains only the
 * plain identity. */
#ifndef ORION_IDENTITY_H
#define ORION_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "system/mix.h"

/* The kind of work; the seed of the hash. */
enum orion_work_kind {
    ORION_WORK_KERNEL = 1,
    ORION_WORK_GRAPH = 2,
    ORION_WORK_COPY_IN = 3,
    ORION_WORK_COPY_OUT = 4,
    ORION_WORK_COPY_DEVICE = 5,
    ORION_WORK_MEMSET = 6,
    ORION_WORK_PREFETCH = 7,
};

#define ORION_IDENTITY_NONE UINT64_C(0)
#define ORION_IDENTITY_UNREAD UINT64_C(2) /* not computed yet: see launch.h. Computed identities are odd or 0 */
#define ORION_IDENTITY_LOCAL UINT64_C(2)  /* this bit: made from a handle, so valid in this process only */
#define ORION_IDENTITY_BITS UINT64_C(3)   /* bit 0: not NONE; bit 1: local; the hash is in the bits above */
#define ORION_NAME_MAX 4096u              /* bytes of a kernel's name that enter the hash */

/* Makes an identity from a hash. */
static inline uint64_t orion_identity_of_hash(uint64_t hash, bool local)
{
    return (hash & ~ORION_IDENTITY_BITS) | 1 | (local ? ORION_IDENTITY_LOCAL : 0);
}

static inline bool orion_identity_is_local(uint64_t identity) { return (identity & ORION_IDENTITY_LOCAL) != 0; }

/* The hash of a kernel's name: FNV-1a over its bytes, mixed. */
static inline uint64_t orion_hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < ORION_NAME_MAX && name[i] != '\0'; i++) hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
    return orion_mix(hash);
}

static inline uint64_t orion_hash_handle(const void *handle)
{
    return orion_mix((uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15));
}

/* The identity of a kernel's launch. `name` is the hash of the kernel's name. `mark` is 0 for the plain identity. The
 * mark's lowest bits have the same meaning as an identity's, so the mark of a local kernel is ORION_IDENTITY_LOCAL. */
static inline uint64_t orion_identity_shape(uint64_t name, uint64_t mark, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes)
{
    uint64_t grid = grid_x + ((uint64_t)grid_y << 32) + ((uint64_t)grid_z << 48);
    uint64_t block = block_x + ((uint64_t)block_y << 11) + ((uint64_t)block_z << 22) + ((uint64_t)shared_bytes << 32);
    uint64_t hash =
        orion_mix(name + grid * UINT64_C(0xc2b2ae3d27d4eb4f) + block * UINT64_C(0x165667b19e3779f9) + ORION_WORK_KERNEL);
    return orion_identity_of_hash(hash, false) ^ mark;
}

/* Copies and memsets. Sizes between two powers of two share eight identities. */
static inline uint64_t orion_identity_bytes(enum orion_work_kind kind, size_t bytes)
{
    uint64_t size = bytes | 8;
    unsigned top = 63u - (unsigned)__builtin_clzll(size);
    uint64_t bucket = ((uint64_t)top << 3) | ((size >> (top - 3)) & 7);
    return orion_identity_of_hash(orion_mix(bucket * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)kind), false);
}

#endif
