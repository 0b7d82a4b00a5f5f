/* Asking the agent to look at an hp client whose heartbeat is stale: is its process stopped, or just short of CPU? */
#ifndef ORION_SUSPECT_H
#define ORION_SUSPECT_H

#include <stdint.h>

#include "process/gpu.h"

/* Sent by the gated thread itself on a connection of its own, which it closes at once: the hook's thread has another
 * descriptor table and is not to be woken for this. At most one message a place every 4 ms. Never blocks. */
void orion_suspect_tell(struct orion_gpu *gpu, uint32_t client_index, uint64_t now);

#endif
