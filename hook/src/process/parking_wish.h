/* What the grants of this process say about parking (parking/parking.h). The agent's thread reads them, in a layer below. */
#ifndef ORION_PARKING_WISH_H
#define ORION_PARKING_WISH_H

#include <stdbool.h>
#include <stdint.h>

#include "process/gpu.h"

struct orion_process;

/* The agent's wish for the client on one GPU: odd: leave; else stay. It is that for the slot, but for a client that stays although
 * the others of the slot leave it is the one before. */
static inline uint32_t orion_parking_number(const struct orion_gpu *gpu)
{
    uint32_t number = atomic_load_explicit(&gpu->grant->park, memory_order_acquire), index = gpu->record->client_index;
    bool stays = index < ORION_GPU_CLIENTS_MAX && atomic_load(&gpu->grant->stays[index / 32]) >> index % 32 & 1;
    return stays ? number & ~1u : number;
}
static inline bool orion_parking_is_a_wish(uint32_t number) { return number & 1; }

/* Whether some slot of the process shall leave. A process leaves all of its GPUs together. */
bool orion_parking_is_wished(struct orion_process *process);

/* Called by the GPU's thread whenever it has read the agent's messages: wakes the thread that parks the process if the wish
 * has changed, and has that thread started if the slot parks. */
void orion_parking_look(struct orion_process *process, struct orion_gpu *gpu);

#endif
