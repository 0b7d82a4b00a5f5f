/* hp's limit: an hp slot that has used its part of the time launches nothing until it may again.
 *
 * The agent compares what the slot has used in the last second with its limit, and writes into its grant when it may
 * launch (process/plan.h). What is in flight runs on; it counts. While hp is held and has nothing in flight, it is idle
 * for be, without a linger. A slot without a limit never has a plan, so its launches test one word that is 0.
 *
 * Rejected: a window of work in flight, as be has one. hp's launches would need durations, chunks and a ledger. */
#ifndef ORION_CEILING_H
#define ORION_CEILING_H

#include "process/gpu.h"

/* Returns when hp may launch. */
void orion_ceiling_wait(struct orion_gpu *gpu);

#endif
