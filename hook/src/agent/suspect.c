#include "agent/suspect.h"

#include "agent/agent_socket.h"
#include "orion/join.h"
#include "system/system.h"

#define REPEAT_AFTER_NS (4 * ORION_MILLISECOND)

void orion_suspect_report(struct orion_gpu *gpu, uint32_t client_index, uint64_t now)
{
    /* hp is a thread of this process: if the process were stopped, this code would not run. */
    if (gpu->client != 0) return;
    uint64_t asked = atomic_load(&gpu->suspected_ns[client_index]);
    if (now < asked + REPEAT_AFTER_NS || !atomic_compare_exchange_strong(&gpu->suspected_ns[client_index], &asked, now)) return;
    struct orion_suspect suspect = {
        .head = {ORION_MESSAGE_MAGIC, ORION_SUSPECT},
        .client_index = client_index,
        .generation = atomic_load(&gpu->hp_generation[client_index]),
    };
    orion_agent_tell(gpu->uuid, &suspect, sizeof suspect);
}
