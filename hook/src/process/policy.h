/* Policies: what a be launch waits for. The agent chooses a policy for each GPU (policy page). The launching thread
 * applies the policy.
 *
 *   gate        be waits until hp is idle (gate.h, valve.h, window.h)
 *   orion       as gate; but be runs beside hp if hp's owner granted a budget and contexts run together (overlap.h,
 *               budget.h, partition.h). Time-sliced contexts never run together, so there orion does the same as gate
 *   none        be waits for nothing
 *
 * The library of `orion bench` has more policies, for comparison (baselines/). */
#ifndef ORION_POLICY_H
#define ORION_POLICY_H

#include <stdbool.h>

#include "process/baseline_kinds.h"
#include "process/gpu.h"

/* Whether work of several clients can run on this GPU at the same time. Such work runs together under MPS and between
 * threads of one process. */
enum orion_sharing { ORION_SHARING_UNKNOWN = 0, ORION_SHARING_TIME_SLICED = 1, ORION_SHARING_TOGETHER = 2 };

/* Whether a be launch waits until hp is idle. This library treats an unknown policy (of a newer agent) as GATE, because
 * GATE protects hp in every case. */
static inline bool orion_policy_gates(const struct orion_policy *policy)
{
    return policy->kind != ORION_POLICY_NONE && !orion_baseline_is(policy->kind);
}

/* Whether the policy is a baseline that makes be launches wait. */
static inline bool orion_policy_is_baseline(const struct orion_policy *policy) { return orion_baseline_holds(policy->kind); }

/* Whether the policy can make a be launch wait. */
static inline bool orion_policy_admits(const struct orion_policy *policy)
{
    return orion_policy_gates(policy) || orion_policy_is_baseline(policy);
}

/* Whether this library has the policy with that number. */
static inline bool orion_policy_is_known(uint32_t kind) { return kind <= ORION_POLICY_ORION || orion_baseline_is(kind); }

static inline bool orion_runs_together(const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->sharing, memory_order_relaxed) == ORION_SHARING_TOGETHER;
}

/* The slowdown that be may cause for hp's work, in thousandths; 1000: none. It is the slowdown that hp's owner granted,
 * divided by the slowdown that sharing a context causes even without be's work. */
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

/* Whether hp publishes each of its launches because be needs to know them. */
static inline bool orion_policy_asks(const struct orion_gpu *gpu)
{
    return orion_baseline_asks(orion_gpu_policy(gpu)->kind) || orion_policy_overlaps(gpu);
}

#endif
