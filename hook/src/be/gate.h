/* The be gate: a be launch waits here while an hp client of the GPU is busy.
 *
 * The gate reads only the pages of living hp clients, one cache line of each page. A waiter sleeps on a futex in the hp
 * client's read-only page. That client's thread wakes the waiter when the linger is over. The waiter also checks again
 * every few milliseconds. So no neighbour can hold a launch for ever:
 *   - a dead hp client: the kernel marks its `alive` word before it tears down the address space;
 *   - a stopped hp client: be does not wait for it once its heartbeat is stale and the agent has seen its process
 *     stopped;
 *   - a stalled hp client, which is busy for the policy's stall time without completing anything: be stops waiting
 *     for it until it completes something. */
#ifndef ORION_GATE_H
#define ORION_GATE_H

#include <stdbool.h>

#include "process/gpu.h"
#include "system/system.h"

struct orion_process;

bool orion_gate_closed(const struct orion_gpu *gpu); /* whether be must wait for some hp client, or for its turn */
/* Whether some hp client counts as busy. Baselines call this, and their own rules decide whether be waits. */
bool orion_gate_hp_is_busy(const struct orion_gpu *gpu);
/* Waits until the gate is open, or until a budget is granted: then other rules apply. */
void orion_gate_wait(struct orion_process *process, struct orion_gpu *gpu);

/* For callers that wait in steps: waits for one step of at most most_ns. */
#define ORION_GATE_POLL_NS (5 * ORION_MILLISECOND) /* a waiter checks again at least this often */
void orion_gate_sleep(struct orion_process *process, struct orion_gpu *gpu, uint64_t most_ns);

/* Whether an hp client was busy at any time since `since_ns`. If so, durations that were measured since then are
 * invalid. */
bool orion_gate_hp_was_busy_since(const struct orion_gpu *gpu, uint64_t since_ns);

#endif
