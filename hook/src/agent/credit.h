/* Whether an allocation may begin: asks the agent for credit where that of the client does not suffice. */
#ifndef ORION_CREDIT_H
#define ORION_CREDIT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/memory.h"

/* Reserves memory for an allocation (memory/memory.h). Waits, for a bounded time, for the agent's answer. False: the
 * allocation would exceed the limit of the slot, and the wrapper returns CUDA_ERROR_OUT_OF_MEMORY. */
bool orion_allocation_may_begin(CUdevice device, uint64_t bytes, enum orion_memory_kind kind);

/* orion_memory_info for a program that asks how much is free. The first call waits, for a bounded time, until the agent
 * knows what the process's context takes of the limit. With free_bytes NULL the program asks only for the total, by which it
 * becomes no client: then this function does not wait for a join. */
void orion_room_is_asked(CUdevice device, size_t *free_bytes, size_t *total_bytes);

/* The same for the functions of CUDA 2, whose figures have 32 bits: more than those hold is shown as the most that they hold. */
void orion_narrow_room_is_asked(CUdevice device, unsigned *free_bytes, unsigned *total_bytes);

/* orion_allocation_may_begin for an allocation from a pool, after orion_pool_begin (memory/pools.h). */
struct orion_pooling;
bool orion_pool_may_begin(struct orion_pooling *pooling);
/* After the driver's call. Returns what the program gets: "out of memory" if the pool has grown beyond the limit. */
CUresult orion_pool_ended(struct orion_pooling *pooling, CUdeviceptr *at, CUresult result);

#endif
