/* What NVML shows of a GPU where a grant limits this process: the slot's memory instead of the GPU's.
 *
 * The total is the limit of the grant, and used is the sum of the slot, as for cuMemGetInfo. Free is what the slot may
 * still allocate, and no more than the GPU has. NVML's figures stay as they are where nothing limits the process. */
#ifndef ORION_ROOM_H
#define ORION_ROOM_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/view.h"
#include "orion/nvml.h"

/* Finds the room of this process's slot on the GPU "GPU-...". False: nothing limits the process there. Waits for a join
 * that is under way, as an allocation does. Changes no errno. */
bool orion_room_of(const char *uuid, struct orion_room *room);

/* Change what NVML has answered. In the first structure `used` is all that is not free. */
void orion_room_show(const struct orion_room *room, struct orion_nvml_memory *memory);
void orion_room_show_v2(const struct orion_room *room, struct orion_nvml_memory_v2 *memory);

/* Removes the processes that do not exist in the caller's pid namespace: those of other containers. Each of the `count`
 * entries has `size` bytes and begins with the process id. Returns how many remain. */
unsigned orion_room_show_processes(void *entries, unsigned count, size_t size);

#endif
