/* Device memory that this process has allocated, against the limit of its grant. Not the launch path: a short spin
 * lock guards a table from address (or handle) to size. A full table counts no further allocations, and refuses none
 * for that. The limit is for each process of the slot. */
#ifndef ORION_MEMORY_H
#define ORION_MEMORY_H

#include <stdatomic.h>
#include <stdint.h>

#define ORION_ALLOCATIONS 16384u /* a power of two */

struct orion_allocation { uint64_t key, bytes; }; /* key 0: free */

struct orion_memory {
    _Atomic uint32_t lock;
    _Atomic uint64_t used;
    struct orion_allocation allocation[ORION_ALLOCATIONS];
};

#endif
