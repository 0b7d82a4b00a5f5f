/* How much device memory the process holds on each device. Only this folder includes the file: what others may call is in
 * memory.h. Three parts count here: single allocations (memory.c), pools (pools.c) and the memory of graphs
 * (graph_memory.c). */
#ifndef ORION_ACCOUNT_H
#define ORION_ACCOUNT_H

#include "memory/memory.h"

/* The lock around the sums and the tables of allocations. No driver call is made under it. */
void orion_account_lock(struct orion_memory *memory);
void orion_account_unlock(struct orion_memory *memory);

static inline bool orion_account_counts(CUdevice device) { return device >= 0 && device < (CUdevice)ORION_GPUS; }

/* A sum of such sizes does not overflow. The driver refuses a larger one. */
#define ORION_COUNTABLE_MOST ((UINT64_C(1) << 49) - 1) /* fits into an entry (memory.h) */
static inline uint64_t orion_account_countable(uint64_t bytes)
{
    return bytes < ORION_COUNTABLE_MOST ? bytes : ORION_COUNTABLE_MOST;
}

/* The first client that this process has on the device; with threads as clients it may have several. `awaits`: waits until its
 * join has succeeded or failed. */
struct orion_gpu *orion_account_client(struct orion_process *process, CUdevice device, bool awaits);

/* Whether a grant limits what the process holds on the device, as far as it is known now. */
bool orion_account_is_limited(struct orion_process *process, CUdevice device);

/* Sets or lowers the device's sum, and publishes it. The caller has the lock. */
void orion_account_change(struct orion_process *process, CUdevice device, uint64_t used);
/* orion_memory_takes (memory.h). The caller has the lock. */
void orion_account_takes(struct orion_process *process, CUdevice device, uint64_t bytes, bool takes);
void orion_account_give_back(struct orion_process *process, CUdevice device, uint64_t bytes, enum orion_memory_kind kind);

#endif
