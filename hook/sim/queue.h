/* Queuing operations and waiting for them. A position is (slot, generation, number): reached when the stream has
 * completed `number` operations, or is gone. */
#ifndef ORION_SIM_QUEUE_H
#define ORION_SIM_QUEUE_H

#include "shared.h"

struct sim_position { uint64_t stream, generation, number; };

/* Under the lock, with room: queue one operation; returns the number that the stream has completed when it is done. */
uint64_t sim_push(uint64_t stream, const struct sim_op *op);

/* Enter the state with room for `count` operations in `stream`, waiting for it outside. */
void sim_enter_with_room(uint64_t stream, uint64_t count);

/* Has it been reached, as far as the state says now? No lock. */
bool sim_reached(const struct sim_position *position);

/* The same, bringing the machine up to now first if that could change the answer. */
bool sim_query(const struct sim_position *position);

void sim_wait(const struct sim_position *position);

/* Under the lock: a time before which the position cannot be reached; SIM_NEVER: not by time alone. */
uint64_t sim_earliest(const struct sim_position *position);

#endif
