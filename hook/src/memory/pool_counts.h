/* Which pools count, and how much: what the driver says of a pool, and what of it is in the device's sum. Only pools.c calls these
 * functions, under the lock of the pools. */
#ifndef ORION_POOL_COUNTS_H
#define ORION_POOL_COUNTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/pools.h"

#define ORION_POOL_STEP (UINT64_C(32) << 20)                                   /* by which the driver's pools grow */
#define ORION_POOL_OF_GRAPHS(device) ((CUmemoryPool)(uintptr_t)((device) + 1)) /* no pool has such a handle */

static inline uint64_t orion_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t orion_whole_steps(uint64_t bytes)
{
    return (bytes + ORION_POOL_STEP - 1) / ORION_POOL_STEP * ORION_POOL_STEP;
}

struct orion_pool *orion_pool_find(struct orion_pools *pools, CUmemoryPool handle);
/* NULL: the table is full. */
struct orion_pool *orion_pool_enter(struct orion_pools *pools, CUmemoryPool handle, CUdevice device, bool is_default);
void orion_pool_enter_graphs(struct orion_pools *pools, CUdevice device);
/* A pool that the hook has not seen created is the default pool of a device, on which the process may have no context yet, or
 * does not count. */
struct orion_pool *orion_pool_adopt(struct orion_process *process, CUmemoryPool handle);
/* NULL: the pool has been destroyed. */
struct orion_pool *orion_pool_of(struct orion_pools *pools, const struct orion_pooling *pooling);

bool orion_pool_held(const struct orion_pool *pool, uint64_t *bytes);
uint64_t orion_pool_free_part(const struct orion_pool *pool);

/* Changes the device's sum by the difference of two amounts. */
void orion_pool_move(struct orion_process *process, CUdevice device, uint64_t from, uint64_t to);
void orion_pool_count(struct orion_process *process, struct orion_pool *pool, uint64_t bytes);
/* Counts what the pool holds and may grow by. Returns how much lower the count is than before. If the driver does not answer, the
 * count stays. */
uint64_t orion_pool_correct(struct orion_process *process, struct orion_pool *pool);

#endif
