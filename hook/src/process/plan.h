/* The plan in a slot's grant: when the slot may launch.
 *
 * The agent writes ahead when the slot's turn begins and ends, and how often both repeat. So turns pass on time while the
 * agent sleeps, and no message is sent when they do. A plan ends at plan_until_ns if the agent does not renew it. Then
 * nobody waits. be slots have plans when they compete or have a limit (be/turns.h), hp slots when they are at their limit
 * (hp/ceiling.h). */
#ifndef ORION_PLAN_H
#define ORION_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "process/gpu.h"
#include "system/system.h"

#define ORION_NO_TURN UINT64_MAX

struct orion_turn_time { uint64_t begin, end; };

/* Returns the turn that is not over at `now`; begin ORION_NO_TURN: the plan has none. */
struct orion_turn_time orion_plan_turn(const struct orion_grant *grant, uint64_t now);

/* Whether the slot has a plan. A plan that is over still counts, until the agent removes it. */
static inline bool orion_plan_exists(const struct orion_gpu *gpu)
{
    return __builtin_expect(orion_gpu_grant(gpu)->plan_until_ns != 0, 0);
}

/* Whether the slot has or had a plan; one load from a page that the launch path has in its cache. */
static inline bool orion_plan_may_exist(const struct orion_gpu *gpu)
{
    return __builtin_expect(atomic_load_explicit(&gpu->grant->plan, memory_order_relaxed) != 0, 0);
}

/* Returns when the slot may launch; `now`: it may launch now; ORION_NO_TURN: the plan has no turn for it. */
uint64_t orion_plan_opens_at(const struct orion_gpu *gpu, uint64_t now);

/* Where the slot's memory moves, its launches wait at the begin of a turn until the pages for the turn have come, but no longer than
 * for this part of the turn; then page faults bring what is missing. */
#define ORION_PAGES_PART(turn_ns) ((turn_ns) / 4 * 3)

/* While the memory of all slots fits, turns are no longer than this (node_agent/sharing/moving.py), and the pages stay. */
#define ORION_PAGES_STAY_NS (100 * ORION_MILLISECOND)

static inline bool orion_pages_move(const struct orion_grant *grant, const struct orion_turn_time *turn)
{
    return grant->unified != ORION_UNIFIED_NONE && turn->end - turn->begin > ORION_PAGES_STAY_NS;
}

/* Whether launches of a turn that has begun wait for its pages. */
bool orion_plan_awaits_pages(const struct orion_gpu *gpu);

/* Whether what was launched at `launched_ns` has run with its pages on the GPU, as far as the hook knows. */
bool orion_plan_had_pages(const struct orion_gpu *gpu, uint64_t launched_ns);

/* Whether the slot must not launch now. */
bool orion_plan_holds(const struct orion_gpu *gpu);

/* Sleeps until the slot may launch, until the plan changes, or for most_ns. */
void orion_plan_sleep(const struct orion_gpu *gpu, uint64_t most_ns);

#endif
