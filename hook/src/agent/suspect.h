/* Asks the agent to check an hp client whose heartbeat is stale: the client's process is either stopped or short of
 * CPU. */
#ifndef ORION_SUSPECT_H
#define ORION_SUSPECT_H

#include <stdint.h>

#include "process/gpu.h"

/* Sends at most one message every 4 ms for each client index. Never blocks. */
void orion_suspect_report(struct orion_gpu *gpu, uint32_t client_index, uint64_t now);

#endif
