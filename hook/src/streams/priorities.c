/* Priorities of streams, for GPUs where work of several processes runs together: hp's blocks start before be's blocks
 * whenever an SM has room. Every stream of hp gets a priority one step higher, so hp's streams keep their order. Every
 * stream of be gets the lowest priority. The hook changes the priority of streams and not of launches, because a graph
 * has the priority of the stream that it was captured on. The default stream's priority cannot be changed. When
 * contexts are time-sliced, priorities of different processes are never compared, so the hook leaves the program's
 * priorities alone. */
#include "streams/priorities.h"

#include "generated/driver.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"

static bool orders_by_priority(const struct orion_gpu *gpu)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    return orion_baseline_orders(policy->kind) || (policy->kind == ORION_POLICY_ORION && orion_runs_together(gpu));
}

int orion_stream_priority(int priority)
{
    CUdevice device;
    int lowest, highest;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || orion_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return priority;
    orion_owner *owner = atomic_load(&process->owner);
    struct orion_gpu *gpu = owner != NULL ? owner(process, NULL, device) : NULL;
    if (gpu == NULL) return priority;
    if (!orders_by_priority(gpu) || orion_driver.cuCtxGetStreamPriorityRange == NULL) return priority;
    if (orion_driver.cuCtxGetStreamPriorityRange(&lowest, &highest) != CUDA_SUCCESS) return priority;
    uint32_t role = atomic_load_explicit(&gpu->role, memory_order_relaxed);
    if (role == ORION_ROLE_BE) return lowest;
    return role == ORION_ROLE_HP && priority > highest ? priority - 1 : priority; /* a lower number is higher */
}
