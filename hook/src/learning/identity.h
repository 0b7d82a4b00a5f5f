/* Identities: keys under which the time of a piece of work is learnt.
 *
 * Work of one identity takes about the same time: a kernel of one name at one grid, block and shared-memory size; an
 * executable graph of the same nodes; a copy of about one size. An identity is a 64-bit hash, never 0; two pieces of
 * work that collide share an estimate, which costs a little accuracy and nothing else. Never by position in a sequence:
 * dynamic shapes and data-dependent control flow change the sequence.
 *
 * Identities are the same in every process and in Python (`hook/identity.py`), so what one process learnt serves the
 * next. Where a kernel's name or a graph's nodes cannot be had, the handle stands in for them: such an identity says so
 * (ORION_IDENTITY_LOCAL) and is told to nobody.
 *
 * The code of one name may differ from process to process (compilers that name kernels by what they fuse), so a kernel's
 * identity is its shape's XORed with a mark of the code: registers, memory and parameters. Without the mark it is the
 * plain identity, which is all that a profile's row can know. */
#ifndef ORION_IDENTITY_H
#define ORION_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "system/mix.h"

enum orion_work_kind { /* the seed of the hash */
                       ORION_WORK_KERNEL = 1,
                       ORION_WORK_GRAPH = 2,
                       ORION_WORK_COPY_IN = 3,
                       ORION_WORK_COPY_OUT = 4,
                       ORION_WORK_COPY_DEVICE = 5,
                       ORION_WORK_MEMSET = 6,
                       ORION_WORK_PREFETCH = 7,
                       ORION_WORK_STREAM_OPERATION = 8,
};

#define ORION_IDENTITY_NONE UINT64_C(0)
#define ORION_IDENTITY_UNREAD UINT64_C(2) /* of a launch, not computed yet: see launch.h. Identities are odd or 0 */
#define ORION_IDENTITY_LOCAL UINT64_C(2)  /* of this process alone: made of a handle */
#define ORION_IDENTITY_BITS UINT64_C(3)   /* bit 0: not NONE; bit 1: local; the hash above them */
#define ORION_NAME_MAX 4096u              /* bytes of a kernel's name that count */

/* Makes an identity of a hash. */
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

/* A kernel of that name's hash and mark (0: the plain identity; its lower bits as in an identity, so a local kernel's
 * mark is ORION_IDENTITY_LOCAL). */
static inline uint64_t orion_identity_shape(uint64_t name, uint64_t mark, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes)
{
    uint64_t grid = grid_x + ((uint64_t)grid_y << 32) + ((uint64_t)grid_z << 48);
    uint64_t block = block_x + ((uint64_t)block_y << 11) + ((uint64_t)block_z << 22) + ((uint64_t)shared_bytes << 32);
    uint64_t hash =
        orion_mix(name + grid * UINT64_C(0xc2b2ae3d27d4eb4f) + block * UINT64_C(0x165667b19e3779f9) + ORION_WORK_KERNEL);
    return orion_identity_of_hash(hash, false) ^ mark;
}

/* Copies and memsets: sizes within an eighth of a power of two share an identity. */
static inline uint64_t orion_identity_bytes(enum orion_work_kind kind, size_t bytes)
{
    uint64_t size = bytes | 8;
    unsigned top = 63u - (unsigned)__builtin_clzll(size);
    uint64_t bucket = ((uint64_t)top << 3) | ((size >> (top - 3)) & 7);
    return orion_identity_of_hash(orion_mix(bucket * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)kind), false);
}

#endif
