#include "slices/time_slice.h"

#include <errno.h>

#include "process/policy.h"
#include "system/system.h"

/* Whether another be client of the GPU is active. Active slots take turns, and the agent divides the window among the
 * active clients of a slot. */
static bool other_be_is_active(const struct orion_gpu *gpu)
{
    const struct orion_grant *grant = orion_gpu_grant(gpu);
    return orion_gpu_be_clients(gpu) > 1 &&
           (grant->plan_until_ns != 0 || grant->window_share_ns < orion_gpu_policy(gpu)->window_ns);
}

/* Whether another client of this GPU forbids the process a slice of its own. */
static bool forbids(const struct orion_gpu *gpu, uint32_t role)
{
    return role == ORION_ROLE_HP ? orion_gpu_hp_clients(gpu) > 1 : other_be_is_active(gpu);
}

/* 0: this GPU needs no slice other than CUDA's. */
static uint64_t wanted_of(const struct orion_gpu *gpu, uint32_t role)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    bool time_sliced = atomic_load_explicit(&gpu->sharing, memory_order_relaxed) == ORION_SHARING_TIME_SLICED;
    if (!time_sliced || !orion_policy_gates(policy)) return 0;
    bool is_hp = role == ORION_ROLE_HP;
    if ((is_hp ? orion_gpu_be_clients(gpu) : orion_gpu_hp_clients(gpu)) == 0) return 0;
    return (is_hp ? policy->hp_slice_ns : policy->be_slice_ns) / ORION_MICROSECOND;
}

/* The least slice that a GPU of the process wants; 0: CUDA's own. */
static uint64_t wanted_by(struct orion_process *process)
{
    uint64_t least = 0;
    uint32_t of_all = ORION_ROLE_NONE;
    ORION_EACH_GPU(gpu, process) {
        uint32_t role = atomic_load_explicit(&gpu->role, memory_order_acquire);
        if (role == ORION_ROLE_NONE) continue;
        if (of_all != ORION_ROLE_NONE && role != of_all) return 0;
        of_all = role;
        if (forbids(gpu, role)) return 0;
        uint64_t wanted = wanted_of(gpu, role);
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
        if (differs(&groups->group[i], wanted_us, &slice_us)) atomic_fetch_or(&process->errands, ORION_ERRAND_SLICES);
}

void orion_time_slice_apply(struct orion_process *process)
{
    struct orion_time_slice *groups = orion_time_slice(process);
    if (atomic_exchange(&groups->applying, 1) != 0) return;
    int kept = errno;
    atomic_fetch_and(&process->errands,
                     ~(uint32_t)ORION_ERRAND_SLICES); /* before the reads: a later decision is applied by a later launch */
    uint64_t wanted_us = atomic_load(&groups->wanted_us), slice_us;
    uint32_t used = atomic_load_explicit(&groups->used, memory_order_acquire);
    for (uint32_t i = 0; i < used && i < ORION_CHANNEL_GROUPS; i++)
        if (differs(&groups->group[i], wanted_us, &slice_us)) orion_group_set(groups, &groups->group[i], slice_us);
    errno = kept;
    atomic_store(&groups->applying, 0);
}
