/* Effects: operations of streams that this process itself has to carry out when their turn comes. */
#ifndef ORION_SIM_EFFECT_H
#define ORION_SIM_EFFECT_H

#include "queue.h"

/* Carries out the effect; false: not yet (a value that is waited for), it is asked again. Runs without any lock. */
typedef bool (*sim_effect_run)(void *data);

/* Announce the effect whose operation is at `position`; the keeper runs it and then frees `data`. It may run up to
 * `early_ns` before its turn is expected: so a keeper that wakes late leaves no gap where a device would leave none. */
void sim_effect_add(const struct sim_position *position, sim_effect_run run, void *data, uint64_t early_ns);

/* One round of the keeper: run what has come to its turn, then sleep until there may be something. */
void sim_effects_work(void);

/* Is this the thread that runs host functions, in one? They must not call CUDA. */
bool sim_in_host_function(void);

/* Grows whenever an effect was done; sleepers of this process wait on it. */
extern _Atomic uint32_t sim_effects_done;

#endif
