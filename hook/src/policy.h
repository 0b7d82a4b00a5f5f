/* Policies: what a be launch has to wait for. The agent chooses one for each GPU (policy page); the launching thread decides.
 *
 *   gate        waits for hp to be idle (gate.h, valve.h, window.h)
 *   orion       the same, and runs beside hp where hp's owner granted a budget and contexts run together (overlap.h,
 *               budget.h, partition.h). In time-slicing contexts never run together: there is nothing to gain, so it gates
 *   streams, reef, ticktock, orion-2024
 *               re-implementations for comparison (baselines.h)
 *   none        nothing */
#ifndef ORION_POLICY_H
#define ORION_POLICY_H

#include <stdbool.h>

#include "agent/board.h"

/* Whether work of several contexts runs together on this GPU: under MPS, and between the threads of one process. */
enum orion_sharing { ORION_SHARING_UNKNOWN = 0, ORION_SHARING_BY_TURNS = 1, ORION_SHARING_TOGETHER = 2 };

static inline bool orion_policy_gates(const struct orion_policy *policy)
{
    return policy->kind == ORION_POLICY_GATE || policy->kind == ORION_POLICY_ORION;
}

/* Of the baselines, those that hold be launches back (not STREAMS). */
static inline bool orion_policy_is_baseline(const struct orion_policy *policy)
{
    return policy->kind > ORION_POLICY_STREAMS && policy->kind <= ORION_POLICY_ORION_2024;
}

/* Whether a be launch has to wait for anything. */
static inline bool orion_policy_admits(const struct orion_policy *policy)
{
    return orion_policy_gates(policy) || orion_policy_is_baseline(policy);
}

static inline bool orion_runs_together(const struct orion_board *board)
{
    return atomic_load_explicit(&board->sharing, memory_order_relaxed) == ORION_SHARING_TOGETHER;
}

/* How much longer hp's work may take beside be than without it, in thousandths: what its owner granted, less what sharing
 * a context costs it anyway. 1000: no longer. */
static inline uint32_t orion_policy_budget(const struct orion_policy *policy)
{
    uint64_t cost = policy->sharing_cost_milli > 1000 ? policy->sharing_cost_milli : 1000;
    uint64_t budget = (uint64_t)policy->max_slowdown_milli * 1000 / cost;
    return budget < 1000 ? 1000 : budget > 100000 ? 100000 : (uint32_t)budget;
}

static inline bool orion_policy_overlaps(const struct orion_board *board)
{
    const struct orion_policy *policy = orion_board_policy(board);
    return policy->kind == ORION_POLICY_ORION && policy->max_slowdown_milli > 1000 && orion_runs_together(board) &&
           orion_policy_budget(policy) > 1000;
}

/* Whether be wants to know of each launch of hp what it is. */
static inline bool orion_policy_asks(const struct orion_board *board)
{
    uint32_t kind = orion_board_policy(board)->kind;
    return kind == ORION_POLICY_REEF || kind == ORION_POLICY_ORION_2024 || orion_policy_overlaps(board);
}

#endif
