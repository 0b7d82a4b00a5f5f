#include "agent/room.h"

#include <errno.h>
#include <poll.h>

#include "agent/memory_wish.h"
#include "process/gpu.h"
#include "process/process.h"
#include "system/system.h"

#define PATIENCE_NS (2 * ORION_SECOND) /* in which an agent can be replaced */
#define PAUSE_MS 5
#define BE_WAIT_NS (30 * ORION_SECOND)
#define STAY_COST_NS (3 * ORION_SECOND) /* an allocation that fails although there is room fails after ten stays */
#define CONTEXT_BYTES (UINT64_C(512) << 20)

/* For how long an allocation waits on this GPU at most; 0: not at all. */
static uint64_t patience(const struct orion_gpu *gpu)
{
    uint32_t role = atomic_load(&gpu->role);
    if (role == ORION_ROLE_HP) return orion_gpu_grant(gpu)->memory_wait_ns;
    return role == ORION_ROLE_BE && orion_gpu_grant(gpu)->parks ? BE_WAIT_NS : 0;
}

static struct orion_gpu *waiting_gpu(struct orion_process *process, CUdevice device)
{
    struct orion_gpu *gpu = process == NULL || device < 0 ? NULL : orion_gpu_find(process, device);
    return gpu != NULL && gpu->client == 0 && patience(gpu) != 0 ? gpu : NULL;
}

/* Waits while the process leaves, is away or comes back. Returns whether it did so. */
static bool stayed_away(struct orion_process *process, uint64_t *until)
{
    uint64_t began = orion_now();
    if (!(atomic_load(&process->errands) & ORION_ERRAND_STAY)) return false;
    while (atomic_load(&process->errands) & ORION_ERRAND_STAY) poll(NULL, 0, PAUSE_MS);
    *until += orion_now() - began;
    *until -= STAY_COST_NS;
    return true;
}

bool orion_room_may_come(CUdevice device, uint64_t bytes, uint64_t *until)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_gpu *gpu = waiting_gpu(process, device);
    if (gpu == NULL) return false;
    int kept = errno;
    uint64_t now = orion_now(), answered = now;
    enum orion_credit_answer answer = ORION_CREDIT_LATER;
    if (*until == 0) *until = now + patience(gpu);
    else poll(NULL, 0, PAUSE_MS); /* the driver refused again after a yes: another allocation took the room */
    while (answer != ORION_CREDIT_YES && answer != ORION_CREDIT_NO && now < *until && now - answered < PATIENCE_NS) {
        if (stayed_away(process, until)) answer = ORION_CREDIT_YES;
        else answer = orion_memory_ask(gpu, ORION_ROOM, bytes);
        if (answer != ORION_CREDIT_YES && answer != ORION_CREDIT_NO) poll(NULL, 0, PAUSE_MS);
        now = orion_now();
        if (answer != ORION_NO_ANSWER) answered = now;
    }
    errno = kept;
    return answer == ORION_CREDIT_YES;
}

bool orion_room_for_context(CUdevice device, uint64_t *until)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_gpu *gpu = process == NULL || device < 0 ? NULL : orion_gpu_find(process, device);
    if (gpu == NULL) return false;
    orion_gpu_await_join(gpu);
    return orion_room_may_come(device, CONTEXT_BYTES, until);
}

void orion_room_ask_first(CUdevice device, uint64_t bytes, uint64_t *until)
{
    struct orion_gpu *gpu = waiting_gpu(orion_process_if_managed(), device);
    if (gpu != NULL && atomic_load(&gpu->role) == ORION_ROLE_HP && atomic_load(&gpu->grant->returning_mib) != 0)
        orion_room_may_come(device, bytes, until);
}
