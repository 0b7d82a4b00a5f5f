#include "process/notifier.h"

#include <errno.h>
#include <stddef.h>

#include "process/alive.h"
#include "process/gpu.h"
#include "process/process.h"
#include "system/spawn.h"
#include "system/system.h"

void orion_notifier_start(struct orion_process *process, struct orion_gpu *gpu, void *(*body)(void *))
{
    uint32_t stopped = 0;
    if (!atomic_compare_exchange_strong(&gpu->thread_runs, &stopped, 1)) return;
    int kept = errno;
    atomic_store(&gpu->thread_body, body);
    if (orion_thread_spawn(body, gpu) != 0) { /* without a thread, Orion cannot manage the GPU in this process */
        if (atomic_exchange(&gpu->join, ORION_JOIN_UNMANAGED) <= ORION_JOIN_TRYING) atomic_fetch_sub(&process->joining, 1);
        orion_futex_wake_all(&gpu->join, false);
        atomic_store(&gpu->thread_runs, 0);
    }
    errno = kept;
}

void orion_thread_revive(struct orion_gpu *gpu)
{
    if (orion_alive_is_held(gpu)) return;
    void *(*body)(void *) = atomic_load(&gpu->thread_body);
    uint32_t runs = 1;
    if (body == NULL || !atomic_compare_exchange_strong(&gpu->thread_runs, &runs, 0)) return;
    atomic_store(&gpu->wake_at_ns, 0);
    orion_notifier_start(orion_the_process, gpu, body);
}

void orion_thread_wake_by(struct orion_gpu *gpu, uint64_t when)
{
    if (__builtin_expect(!orion_alive_is_held(gpu), 0)) {
        orion_thread_revive(gpu);
        return;
    }
    if (atomic_load(&gpu->wake_at_ns) <= when) return; /* the thread is awake, or wakes by then */
    atomic_fetch_add(&gpu->notifier, 1);
    orion_futex_wake_all(&gpu->notifier, false);
}
