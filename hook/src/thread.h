/* The hook's thread: one small thread for each GPU that the process uses.
 *
 * It joins the slot, holds the client's `alive` word as a robust futex (so the kernel tells everyone of the process's
 * death, by whatever means, before the address space is torn down), ends lingers, keeps the neighbours mapped and comes
 * back after an agent's restart. It is started with the GPU's first context, not at load; all signals are blocked in it;
 * its descriptor table is its own, so a program that closes every descriptor does not cut it off. It makes no driver
 * call: the driver's descriptors are not its own (see drain.h). */
#ifndef ORION_THREAD_H
#define ORION_THREAD_H

#include <stdint.h>

#include "agent/board.h"

struct orion_process;

void orion_thread_start(struct orion_process *process, struct orion_board *board);

/* Sees that the board's thread looks by `when` (CLOCK_MONOTONIC ns); a system call only if it would sleep longer. Starts
 * the thread again if it alone has died. */
void orion_thread_wake_by(struct orion_board *board, uint64_t when);

/* Starts the board's thread again if it alone has died (a program that ends threads it does not know). */
void orion_thread_revive(struct orion_board *board);

/* A detached thread with a small stack and all signals blocked, for the hook's own use. 0 or -1. */
int orion_thread_spawn(void *(*body)(void *), void *argument);

#endif
