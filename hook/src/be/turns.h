/* Turns: of the be slots that want a GPU at the same time, one has the turn. The others wait as if hp were busy.
 *
 * The agent gives turns, as a plan in each slot's grant (process/plan.h). Two messages make it plan again at once. A
 * client that has no work hands back the rest of its slot's turn. A client whose slot has no turn in the plan asks for one
 * when it launches.
 *
 * At the end of a turn the valve closes, and what is past the valve still runs: a piece. The valve closes about half a piece
 * before the end, so short pieces run over as often as they end early. Long ones need not: a program that pauses between them
 * begins each later than the one before would let it. So the client reports what ran after its turns, and the agent charges it.
 *
 * Rejected: the slots pass a token among themselves, because be clients would map one another's pages. Moves decided
 * by the agent alone, because it would have to wake for each. */
#ifndef ORION_TURNS_H
#define ORION_TURNS_H

#include <stdint.h>

#include "process/gpu.h"

/* Sleeps until this slot's turn begins, until the plan changes, or for most_ns. Asks for a turn if the plan has none. */
void orion_turns_sleep(struct orion_gpu *gpu, uint64_t most_ns);

/* A valve's wait follows so much work. */
void orion_turns_note_piece(struct orion_gpu *gpu, uint64_t expected_ns);

/* Called by the watcher when stops have just closed over work in flight, and when they have opened again. */
void orion_turns_closed(struct orion_gpu *gpu, uint64_t now_ns);
void orion_turns_opened(struct orion_gpu *gpu, uint64_t now_ns);

/* Returns how much of completed work ran after the slot's turn. The work was on the GPU from begin_ns to end_ns, and would have taken
 * work_ns without the next slot, with which the GPU alternates then. */
uint64_t orion_turns_ran_on(const struct orion_gpu *gpu, uint64_t begin_ns, uint64_t end_ns, uint64_t work_ns);

/* Called by the watcher while the client has nothing in flight. Hands the turn back if that lasts. Returns after what time, in ns,
 * there may be another turn to hand back; UINT64_MAX: none, as far as this client knows. */
uint64_t orion_turns_idle(struct orion_gpu *gpu);

#endif
