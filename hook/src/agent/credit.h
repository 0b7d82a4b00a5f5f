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

/* The same for an allocation from a pool (memory/pools.h). */
struct orion_pooling;
bool orion_pool_may_begin(struct orion_pooling *pooling);
/* After the driver's call. Returns what the program gets: "out of memory" if the pool has grown beyond the limit. */
CUresult orion_pool_ended(struct orion_pooling *pooling, CUdeviceptr *at, CUresult result);

#endif
