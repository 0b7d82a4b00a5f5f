#include "core/joining.h"

#include <stdlib.h>

#include "agent/thread.h"
#include "core/lifetimes.h"
#include "core/thread_ends.h"
#include "parking/parking.h"
#include "process/gpu.h"
#include "process/process.h"

/* The hook registers its exit handler at the first GPU, after the driver has registered its own. So the hook's handler
 * runs before those of the driver. */
static void register_exit_handler(struct orion_process *process)
{
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&process->sees_exit, &none, 1)) atexit(orion_process_ending);
}

struct orion_gpu *orion_gpu_of(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return NULL;
    struct orion_gpu *gpu = orion_gpu_find(process, device);
    if (gpu != NULL) return gpu;
    /* With a scheduler of threads, each client has a struct orion_gpu of its own, and the GPU found here joins no
     * slot. */
    bool made, joins = !orion_process_has_scheduler(process);
    orion_owner *none = NULL;
    atomic_compare_exchange_strong(&process->owner, &none, orion_owner_by_device);
    atomic_store(&process->thread_ended, orion_thread_stream_ended);
    if (joins) atomic_store(&process->thread_begins, orion_thread_ends_watch);
    gpu = orion_gpu_make(process, device, joins, &made);
    if (!made) return gpu;
    if (joins) {
        orion_thread_start(process, gpu);
        orion_parking_start_once_joined(process, gpu);
    }
    register_exit_handler(process);
    return gpu;
}

struct orion_gpu *orion_owner_by_device(struct orion_process *process, CUstream stream, CUdevice device)
{
    (void)process, (void)stream;
    struct orion_gpu *gpu = orion_gpu_of(device);
    if (gpu == NULL) return NULL;
    orion_gpu_await_join(gpu);
    if (orion_gpu_grant(gpu)->parks) orion_parking_start(process, gpu);
    return atomic_load(&gpu->role) != ORION_ROLE_NONE ? gpu : NULL;
}
