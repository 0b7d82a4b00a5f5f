/* Which policies are baselines (baselines/), and what they want; only the library of `orion bench` has them. In the released
 * library every answer is a constant, so the compiler drops the question, and a baseline's number is that of a policy
 * which the library does not know. */
#ifndef ORION_BASELINE_KINDS_H
#define ORION_BASELINE_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "orion/policy.h"

#ifdef ORION_BASELINES

static inline bool orion_baseline_is(uint32_t kind) { return kind >= ORION_POLICY_STREAMS && kind <= ORION_POLICY_ORION_2024; }

/* Whether be launches are held back by it. */
static inline bool orion_baseline_holds(uint32_t kind) { return kind != ORION_POLICY_STREAMS && orion_baseline_is(kind); }

/* Whether hp publishes what each launch is. */
static inline bool orion_baseline_asks(uint32_t kind) { return kind == ORION_POLICY_REEF || kind == ORION_POLICY_ORION_2024; }

/* Whether hp's streams have a higher priority than be's. */
static inline bool orion_baseline_orders(uint32_t kind) { return kind == ORION_POLICY_STREAMS || kind == ORION_POLICY_ORION_2024; }

#else

static inline bool orion_baseline_is(uint32_t kind)
{
    (void)kind;
    return false;
}
static inline bool orion_baseline_holds(uint32_t kind)
{
    (void)kind;
    return false;
}
static inline bool orion_baseline_asks(uint32_t kind)
{
    (void)kind;
    return false;
}
static inline bool orion_baseline_orders(uint32_t kind)
{
    (void)kind;
    return false;
}

#endif

#endif
