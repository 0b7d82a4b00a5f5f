/* Policies: what a be launch has to wait for. The agent chooses one for each GPU (policy page); the launching thread decides.
 *
 *   gate        waits for hp to be idle (gate.h, valve.h, window.h)
 *   orion       the same, and runs beside hp where hp's owner granted a budget and contexts run together (overlap.h,
 *               budget.h, partition.h). In time-slicing contexts never run together: there is nothing to gain, so it gates
 *   none        nothing
 *
 * The library of `orion bench` knows more, for comparison (baselines/). */
#ifndef ORION_POLICY_H
#define ORION_POLICY_H

#include <stdbool.h>

#include "process/baseline_kinds.h"
#include "process/gpu.h"

/* Whether work of several contexts runs together on this GPU: under MPS, and between the threads of one process. */
enum orion_sharing { ORION_SHARING_UNKNOWN = 0, ORION_SHARING_TIME_SLICED = 1, ORION_SHARING_TOGETHER = 2 };

/* Whether a be launch waits for hp to be idle. A policy that this library does not know, of a newer agent, is taken as GATE:
 * that protects hp whatever the policy is. */
static inline bool orion_policy_gates(const struct orion_policy *policy)
{
    return policy->kind != ORION_POLICY_NONE && !orion_baseline_is(policy->kind);
}

/* Of the baselines, those that hold be launches back. */
static inline bool orion_policy_is_baseline(const struct orion_policy *policy) { return orion_baseline_holds(policy->kind); }

/* Whether a be launch has to wait for anything. */
static inline bool orion_policy_admits(const struct orion_policy *policy)
{
    return orion_policy_gates(policy) || orion_policy_is_baseline(policy);
}

/* Whether this library has the policy by that number. */
static inline bool orion_policy_is_known(uint32_t kind) { return kind <= ORION_POLICY_ORION || orion_baseline_is(kind); }

static inline bool orion_runs_together(const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->sharing, memory_order_relaxed) == ORION_SHARING_TOGETHER;
}

/* How much longer hp's work may take beside be than without it, in thousandths: what its owner granted, less what sharing
 * a context costs it anyway. 1000: no longer. */
static inline uint32_t orion_policy_budget(const struct orion_policy *policy)
{
    uint64_t cost = policy->sharing_cost_milli > 1000 ? policy->sharing_cost_milli : 1000;
    uint64_t budget = (uint64_t)policy->max_slowdown_milli * 1000 / cost;
    return budget < 1000 ? 1000 : budget > 100000 ? 100000 : (uint32_t)budget;
}

static inline bool orion_policy_overlaps(const struct orion_gpu *gpu)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    return policy->kind == ORION_POLICY_ORION && policy->max_slowdown_milli > 1000 && orion_runs_together(gpu) &&
           orion_policy_budget(policy) > 1000;
}

/* Whether be wants to know of each launch of hp what it is. */
static inline bool orion_policy_asks(const struct orion_gpu *gpu)
{
    return orion_baseline_asks(orion_gpu_policy(gpu)->kind) || orion_policy_overlaps(gpu);
}

#endif
