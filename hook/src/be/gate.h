/* The be gate: the wait before a be launch while an hp client of the GPU is busy.
 *
 * Only living hp clients' pages are touched, one cache line each. Waiting is a futex on the hp client's own read-only
 * page, woken by that client's thread when its linger is over, and looked at again every few milliseconds, so nothing
 * that a neighbour does or fails to do can hold a launch for ever:
 *   - a dead hp client: the kernel has marked its `alive` word before its address space is torn down;
 *   - a stopped one (its heartbeat is stale and the agent has seen the process stopped) is not waited for;
 *   - one that is busy without completing anything for the policy's stall time is given up on until it completes
 *     something. */
#ifndef ORION_GATE_H
#define ORION_GATE_H

#include <stdbool.h>

#include "process/gpu.h"
#include "system/system.h"

struct orion_process;

bool orion_gate_closed(const struct orion_gpu *gpu);   /* whether some hp client has to be waited for now */
bool orion_gate_hp_works(const struct orion_gpu *gpu); /* whether one does; the baselines' rules say what then */
bool orion_gate_held(const struct orion_gpu *gpu);     /* ahead of its peers: as if hp were busy */
/* Until it has not, or a budget is granted meanwhile: then there are other rules. */
void orion_gate_wait(struct orion_process *process, struct orion_gpu *gpu);

/* One step of waiting, most_ns at most; and, for whoever makes the steps, the wait's entry in the record. */
#define ORION_GATE_LOOK_NS (5 * ORION_MILLISECOND) /* a waiter that nobody wakes looks again so often */
void orion_gate_sleep(struct orion_process *process, struct orion_gpu *gpu, uint64_t most_ns);
void orion_gate_note(struct orion_gpu *gpu, uint64_t waited_ns);

/* Whether an hp client was busy at any time since `since_ns`: then what was measured meanwhile says nothing. */
bool orion_gate_touched_since(const struct orion_gpu *gpu, uint64_t since_ns);

#endif
