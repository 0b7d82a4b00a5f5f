/* Device memory that this process has allocated, and the limit of its grant. The limit applies to each process of the
 * slot.
 *
 * A table maps addresses (or handles) to sizes. A short spin lock guards it; it is not on the launch path. When the
 * table is full, further allocations do not count, and succeed. A process that has not joined counts its memory, too:
 * when it joins later, the limit applies to all its memory. */
#ifndef ORION_MEMORY_H
#define ORION_MEMORY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/process.h"

#define ORION_ALLOCATIONS 16384u /* a power of two */

struct orion_allocation { uint64_t key, bytes; }; /* key 0: free */

struct orion_memory {
    _Atomic uint32_t lock;
    _Atomic uint64_t used;
    struct orion_allocation allocation[ORION_ALLOCATIONS];
};
ORION_PART(memory)

struct orion_process;

void orion_memory_publish(struct orion_process *process); /* writes the used bytes into the record page */

/* Called before and after an allocation. False: the allocation would exceed the limit, and the wrapper returns
 * CUDA_ERROR_OUT_OF_MEMORY. `key` is the address or handle; `result` is the driver's. */
bool orion_memory_reserve(uint64_t bytes);
void orion_memory_reserved(uint64_t bytes, uint64_t key, CUresult result);

void orion_memory_released(uint64_t key, CUresult result);       /* after a free; the table has the size */
void orion_memory_info(size_t *free_bytes, size_t *total_bytes); /* after cuMemGetInfo succeeded: applies the limit */

#endif
