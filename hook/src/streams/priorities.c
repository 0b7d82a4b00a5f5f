/* Priorities of streams, where work of several processes runs together: hp's blocks start before be's whenever an SM has
 * room. The order among a program's own streams is kept: hp's are all lifted by one step, be's all get the lowest. The
 * default stream has no priority of its own; graphs take that of the stream that they were captured on, which is why
 * streams are lifted rather than launches. By turns, in time-slicing, priorities of different processes never meet, and a
 * program's own are left alone. */
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
    return role == ORION_ROLE_HP && priority > highest ? priority - 1 : priority; /* numerically lower is higher */
}
