/* Effects: operations in streams that this process itself carries out when they are due, such as host functions. The
 * keeper, a thread of the driver in this process, carries them out (client.c). */
#ifndef ORION_SIM_EFFECT_H
#define ORION_SIM_EFFECT_H

#include "queue.h"

/* A function that carries out an effect. The keeper calls it without any lock. False: the effect still waits for a
 * value, so the keeper calls the function again later. */
typedef bool (*sim_effect_run)(void *data);

/* Announce the effect whose operation is at `position`. The keeper runs it and then frees `data`. The keeper may run it
 * up to `early_ns` before it is due. A keeper that wakes a little late then causes no pause in the stream. */
void sim_effect_add(const struct sim_position *position, sim_effect_run run, void *data, uint64_t early_ns);

/* One round of the keeper: run the effects that are due, then sleep until another may be due. */
void sim_effects_work(void);

/* Is the calling thread inside a host function? Host functions must not call CUDA. */
bool sim_in_host_function(void);

/* Grows with every completed effect, and with every change of a time that no thread could know. Threads of this process
 * sleep on it, without an end while they know of no time. */
extern _Atomic uint32_t sim_effects_done;
void sim_effects_wake(void);

#endif
