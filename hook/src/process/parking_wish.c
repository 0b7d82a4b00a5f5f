#include "process/parking_wish.h"

#include "process/process.h"
#include "system/system.h"

bool orion_parking_is_wished(struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        if (orion_parking_is_a_wish(orion_parking_number(gpu))) return true;
    return false;
}

void orion_parking_look(struct orion_process *process, struct orion_gpu *gpu)
{
    if (atomic_load(&gpu->role) != ORION_ROLE_BE) return;
    if (orion_gpu_grant(gpu)->parks && !atomic_load(&process->parks)) atomic_fetch_or(&process->errands, ORION_ERRAND_PARKER);
    uint32_t number = orion_parking_number(gpu);
    if (atomic_exchange(&gpu->parking_seen, number) == number) return;
    atomic_fetch_add(&process->parking_notifier, 1);
    orion_futex_wake_all(&process->parking_notifier, false);
}
