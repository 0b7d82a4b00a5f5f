/* Device memory that this process has allocated, against the limit of its grant. Not the launch path: a short spin
 * lock guards a table from address (or handle) to size. A full table counts no further allocations, and refuses none
 * for that. The limit is for each process of the slot. A process that has not joined counts too: it may join later, and
 * the limit is then for all that it has. */
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

void orion_memory_publish(struct orion_process *process); /* into the record; the program's own calls do so, too */

bool orion_memory_reserve(uint64_t bytes);                                 /* false: over the limit; answer OUT_OF_MEMORY */
void orion_memory_reserved(uint64_t bytes, uint64_t key, CUresult result); /* after the driver's; key: address or handle */
void orion_memory_released(uint64_t key, CUresult result);                 /* after a free; the size is remembered by key */
void orion_memory_info(size_t *free_bytes, size_t *total_bytes);           /* after a successful cuMemGetInfo: the slot's view */

#endif
