#include "slices/time_slice.h"

#include <errno.h>

#include "process/policy.h"
#include "system/system.h"

/* 0: this GPU needs no shorter slice. */
static uint64_t wanted_of(const struct orion_gpu *gpu)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    bool time_sliced = atomic_load_explicit(&gpu->sharing, memory_order_relaxed) == ORION_SHARING_TIME_SLICED;
    bool has_hp = atomic_load_explicit(&gpu->policy->hp_clients, memory_order_relaxed) != 0;
    return time_sliced && has_hp && orion_policy_gates(policy) ? policy->be_slice_ns / ORION_MICROSECOND : 0;
}

/* Whether another be client of the GPU is active. The agent divides the window among the active clients, so a client whose
 * share is the whole window is the only active one. */
static bool other_is_active(const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->policy->be_clients, memory_order_relaxed) > 1 &&
           orion_gpu_grant(gpu)->window_share_ns < orion_gpu_policy(gpu)->window_ns;
}

/* The least slice that a GPU of the process wants; 0: CUDA's own. */
static uint64_t wanted_by(struct orion_process *process)
{
    uint64_t least = 0;
    uint32_t count = atomic_load(&process->gpu_count);
    for (uint32_t i = 0; i < count && i < ORION_GPUS; i++) {
        const struct orion_gpu *gpu = &process->gpus[i];
        uint32_t role = atomic_load_explicit(&gpu->role, memory_order_acquire);
        if (role == ORION_ROLE_NONE) continue;
        if (role != ORION_ROLE_BE) return 0;
        if (other_is_active(gpu)) return 0;
        uint64_t wanted = wanted_of(gpu);
        if (wanted != 0 && (least == 0 || wanted < least)) least = wanted;
    }
    return least;
}

static bool differs(const struct orion_channel_group *group, uint64_t wanted_us, uint64_t *slice_us)
{
    if (atomic_load_explicit(&group->key, memory_order_acquire) == 0) return false;
    *slice_us = wanted_us != 0 ? wanted_us : atomic_load(&group->own_us);
    return atomic_load(&group->now_us) != *slice_us;
}

void orion_time_slice_decide(struct orion_process *process)
{
    struct orion_time_slice *groups = orion_time_slice(process);
    uint32_t used = atomic_load_explicit(&groups->used, memory_order_acquire);
    if (used == 0) return;
    uint64_t wanted_us = wanted_by(process), slice_us;
    atomic_store(&groups->wanted_us, wanted_us);
    for (uint32_t i = 0; i < used && i < ORION_CHANNEL_GROUPS; i++)
        if (differs(&groups->group[i], wanted_us, &slice_us)) atomic_store(&groups->due, 1);
}

void orion_time_slice_apply(struct orion_process *process)
{
    struct orion_time_slice *groups = orion_time_slice(process);
    if (atomic_exchange(&groups->applying, 1) != 0) return;
    int kept = errno;
    atomic_store(&groups->due, 0); /* before the reads: a later decision is applied by a later launch */
    uint64_t wanted_us = atomic_load(&groups->wanted_us), slice_us;
    uint32_t used = atomic_load_explicit(&groups->used, memory_order_acquire);
    for (uint32_t i = 0; i < used && i < ORION_CHANNEL_GROUPS; i++)
        if (differs(&groups->group[i], wanted_us, &slice_us)) orion_group_set(groups, &groups->group[i], slice_us);
    errno = kept;
    atomic_store(&groups->applying, 0);
}
