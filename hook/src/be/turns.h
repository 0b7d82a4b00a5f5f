/* Turns: of the be slots that want a GPU at the same time, one has the turn. The others wait as if hp were busy.
 *
 * The agent gives turns. It writes them ahead into each slot's grant, as a plan: when this slot's turn begins and ends, and
 * how often both repeat. So turns pass on time while the agent sleeps, and no message is sent when they do. A plan ends
 * at plan_until_ns if the agent does not renew it. Then nobody waits.
 *
 * Two messages make the agent plan again at once. A client that has no work hands back the rest of its slot's turn. A
 * client whose slot has no turn in the plan asks for one when it launches.
 *
 * At the end of a turn the valve closes, and what is past the valve still runs: a piece. The valve closes half a piece
 * before the end, so pieces run over as often as they end early, and a slot with long pieces gains nothing.
 *
 * Rejected: the slots pass a token among themselves, because be clients would map one another's pages. Moves decided
 * by the agent alone, because it would have to wake for each. */
#ifndef ORION_TURNS_H
#define ORION_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "process/gpu.h"

/* Whether the GPU's be slots take turns. A plan that is over still counts, until the agent removes it. */
static inline bool orion_turns_planned(const struct orion_gpu *gpu)
{
    return __builtin_expect(orion_gpu_grant(gpu)->plan_until_ns != 0, 0);
}

/* Whether this slot must wait, because another slot has the turn. */
bool orion_turns_hold(const struct orion_gpu *gpu);

/* Sleeps until this slot's turn begins, until the plan changes, or for most_ns. Asks for a turn if the plan has none. */
void orion_turns_sleep(struct orion_gpu *gpu, uint64_t most_ns);

/* A valve's wait follows so much work. */
void orion_turns_note_piece(struct orion_gpu *gpu, uint64_t expected_ns);

/* Called by the watcher while the client has nothing in flight. Hands the turn back if that lasts. */
void orion_turns_idle(struct orion_gpu *gpu);

#endif
