/* Baselines: published schedulers, re-implemented so that benches can compare with them under the same interception, the
 * same learnt durations and the same arrivals. Only the library of `orion bench` has them; the rest
 * of the hook reaches them through be/baseline_seam.h and process/baseline_kinds.h.
 *
 *   reef        REEF-N as Orion's authors coded it. While hp is busy, one be launch may follow each launch of hp, if it is
 *               no longer and fills no fewer SMs. At any other time be launches freely, but after reef_depth launches all
 *               of them must have completed before the next.
 *   ticktock    Tick-Tock. While hp is busy, be runs one iteration for each one that hp ends.
 *   orion-2024  Orion (EuroSys'24) as its authors coded it. While hp is busy, a be kernel may go that needs at most
 *               orion_2024_sms SMs and is not known to be short of the same thing as hp's latest one; copies and memsets
 *               go always. After orion_2024_duration_ns of be work all of it must have completed before the next launch,
 *               also while hp is idle.
 *   streams     nothing waits; hp's streams have priority (streams/priorities.c).
 *
 * What differs from the originals. They schedule threads of one process, one thread that polls all queues; here each be
 * client decides for itself, by what hp's busy page says: hp never waits, not for its turn either; a drain is of the
 * client's own work; an hp client is busy from its first launch to the proof that its work has completed, not by a count
 * of a request's operations (the linger is Orion's own, and none of theirs). Durations and SMs are learnt, or a
 * profile's; hp measures nothing, so without a profile reef knows no hp duration and pairs nothing. REEF's flush waits for
 * as many polling passes as the queue is deep, which is no length of time elsewhere: its bound of the device queue was
 * kept, the length of the burst. Orion's search for the SM threshold while hp trains is left out. Tick-Tock alternates
 * forward and backward passes, which driver calls do not show: turns are iterations, and an iteration ends with a
 * synchronising call after some launch; a program that never synchronises is in its first one for ever. Where no hp client
 * lives, nothing waits.
 *
 * No wait is without bound: dead, stopped and stalled hp clients are given up as at the gate, and a turn that hp does not
 * give within the policy's stall time is taken. Several threads that launch at a time may be a launch off the rules. */
#ifndef ORION_BASELINE_RULES_H
#define ORION_BASELINE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "learning/durations.h"
#include "orion/pages.h"

/* -- The rules: pure ------------------------------------------------------------------------------------------------- */

/* What a be launch is, to the rules. */
struct orion_candidate {
    struct orion_kernel_facts facts;
    bool is_kernel; /* or a graph: not a copy, not a memset */
};

/* hp_current: hp's latest launch, as orion_pack_current packed it. */
bool orion_reef_pairs(const struct orion_candidate *be, uint64_t hp_current);
bool orion_2024_pairs(const struct orion_policy *policy, const struct orion_candidate *be, uint64_t hp_current);

/* Whether an iteration of be is under way, or may begin: (own, hp) iterations ended when the latest began, and by now. */
bool orion_ticktock_allows(uint64_t turn_own, uint64_t turn_hp, uint64_t own, uint64_t hp);

/* Whether all be work has to complete before the next launch. */
bool orion_burst_is_over(const struct orion_policy *policy, uint64_t burst_ns, uint32_t burst_launches);

/* What a launch adds to the burst; of unknown length: all that there is room for, so it ends the burst. */
uint64_t orion_burst_cost(const struct orion_policy *policy, const struct orion_candidate *be);

#endif
