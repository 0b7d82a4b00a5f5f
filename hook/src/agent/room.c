#include "agent/room.h"

#include <errno.h>
#include <poll.h>

#include "agent/memory_wish.h"
#include "process/gpu.h"
#include "process/process.h"
#include "system/system.h"

#define PATIENCE_NS (2 * ORION_SECOND) /* in which an agent can be replaced */
#define PAUSE_MS 5

static struct orion_gpu *waiting_gpu(CUdevice device)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_gpu *gpu = process == NULL || device < 0 ? NULL : orion_gpu_find(process, device);
    if (gpu == NULL || gpu->client != 0 || atomic_load(&gpu->role) != ORION_ROLE_HP) return NULL;
    return orion_gpu_grant(gpu)->memory_wait_ns != 0 ? gpu : NULL;
}

bool orion_room_may_come(CUdevice device, uint64_t bytes, uint64_t *until)
{
    struct orion_gpu *gpu = waiting_gpu(device);
    if (gpu == NULL) return false;
    int kept = errno;
    uint64_t now = orion_now(), answered = now;
    enum orion_credit_answer answer = ORION_CREDIT_LATER;
    if (*until == 0) *until = now + orion_gpu_grant(gpu)->memory_wait_ns;
    else poll(NULL, 0, PAUSE_MS); /* the driver refused again after a yes: another allocation took the room */
    while (answer != ORION_CREDIT_YES && answer != ORION_CREDIT_NO && now < *until && now - answered < PATIENCE_NS) {
        answer = orion_memory_ask(gpu, ORION_ROOM, bytes);
        if (answer != ORION_CREDIT_YES && answer != ORION_CREDIT_NO) poll(NULL, 0, PAUSE_MS);
        now = orion_now();
        if (answer != ORION_NO_ANSWER) answered = now;
    }
    errno = kept;
    return answer == ORION_CREDIT_YES;
}
