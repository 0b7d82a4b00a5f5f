/* Baselines: published schedulers, re-implemented so that benches can compare with them under the same interception,
 * learnt durations and arrivals. Only the library of `orion bench` contains them. The rest of the hook calls them
 * through be/baseline_seam.h and process/baseline_kinds.h.
 *
 *   reef        REEF-N as Orion's authors coded it. While hp is busy, one be launch may follow each launch of hp, if
 *               the be launch is no longer than the hp launch and fills no fewer SMs. While hp is idle, be launches
 *               freely, but after reef_depth launches all of them must have completed before the next.
 *   ticktock    Tick-Tock. While hp is busy, be runs one iteration for each one that hp ends.
 *   orion-2024  Orion (EuroSys'24) as its authors coded it. While hp is busy, a be kernel may go if it needs at most
 *               orion_2024_sms SMs and is not known to be short of the same resource as hp's latest kernel. Copies and
 *               memsets always go. After orion_2024_duration_ns of be work, all of it must have completed before the
 *               next launch (a drain), also while hp is idle. The launches between two drains are a burst.
 *   streams     Nothing waits. hp's streams have priority (streams/priorities.c).
 *
 * Differences from the originals:
 *   - In the originals, clients are threads of one process, and one thread polls all their queues. Here each be client
 *     is a process that decides by itself, from hp's busy page. hp never waits. A drain covers the client's own work
 *     only.
 *   - An hp client is busy from its first launch until its work is proven complete. The originals count a request's
 *     operations instead. The linger is Orion's own, so no baseline uses it.
 *   - Durations and SMs are learnt, or come from a profile. hp measures nothing, so without a profile reef knows no hp
 *     duration and pairs nothing.
 *   - REEF's flush waits for a number of polling passes, namely the depth of the queue. A pass has no defined duration,
 *     so this file omits the flush. It keeps only the limit of REEF's device queue, as the largest number of launches
 *     in a burst.
 *   - Orion's search for the SM threshold while hp trains is left out.
 *   - Tick-Tock alternates forward and backward passes, which driver calls do not show. Here a turn is an iteration. An
 *     iteration ends with a synchronising call after some launch. A program that never synchronises stays in its first
 *     iteration.
 *   - On a GPU without an hp client, nothing waits.
 *
 * Every wait is bounded. be gives up on dead, stopped and stalled hp clients as at the gate. If hp does not end a turn
 * within the policy's stall time, be takes its turn. Several threads that launch at once may break a rule by one
 * launch. */
#ifndef ORION_BASELINE_RULES_H
#define ORION_BASELINE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "learning/durations.h"
#include "orion/pages.h"

/* -- The rules: pure functions --------------------------------------------------------------------------------------- */

/* A be launch, as the rules see it. */
struct orion_candidate {
    struct orion_kernel_facts facts;
    bool is_kernel; /* a kernel or a graph; not a copy, not a memset */
};

/* Whether be may launch beside hp_current: hp's latest launch, packed by orion_pack_current. */
bool orion_reef_pairs(const struct orion_candidate *be, uint64_t hp_current);
bool orion_2024_pairs(const struct orion_policy *policy, const struct orion_candidate *be, uint64_t hp_current);

/* Whether an iteration of be is running or may begin. turn_own, turn_hp: iterations that be and hp had ended when be's
 * latest one began. own, hp: iterations that be and hp have ended by now. */
bool orion_ticktock_allows(uint64_t turn_own, uint64_t turn_hp, uint64_t own, uint64_t hp);

/* Whether all be work must complete before the next launch. */
bool orion_burst_is_over(const struct orion_policy *policy, uint64_t burst_ns, uint32_t burst_launches);

/* What a launch adds to the burst. A launch of unknown length adds more than the limit, so it ends the burst. */
uint64_t orion_burst_cost(const struct orion_policy *policy, const struct orion_candidate *be);

#endif
