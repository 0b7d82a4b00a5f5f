/* Which policies are baselines, and what each of them needs. A baseline is a policy of another system, such as REEF, to
 * which Orion is compared (baselines/). Only the library of `orion bench` has baselines. In the released library every
 * function here returns a constant, so the compiler removes the check. The released library treats a baseline's number
 * as an unknown policy. */
#ifndef ORION_BASELINE_KINDS_H
#define ORION_BASELINE_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "orion/policy.h"

#ifdef ORION_BASELINES

static inline bool orion_baseline_is(uint32_t kind) { return kind >= ORION_POLICY_STREAMS && kind <= ORION_POLICY_ORION_2024; }

/* Whether the baseline makes be launches wait. */
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
