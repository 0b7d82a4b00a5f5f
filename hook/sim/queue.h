/* Queues operations and waits for them. A position names a stream, by the stream's entry in the shared state and the
 * entry's generation, and a number of operations. A position is reached when the stream has completed that number of
 * operations, or when the stream no longer exists. */
#ifndef ORION_SIM_QUEUE_H
#define ORION_SIM_QUEUE_H

#include "shared.h"

struct sim_position { uint64_t stream, generation, number; };

/* Under the lock, with a free entry: queue one operation. Returns the stream's count of completed operations at which
 * this operation is done. */
uint64_t sim_push(uint64_t stream, const struct sim_op *op);

/* Enter the state with `count` free entries in `stream`. Waits for them outside the state. */
void sim_enter_with_room(uint64_t stream, uint64_t count);

/* Has the position been reached in the present state? Takes no lock. */
bool sim_reached(const struct sim_position *position);

/* Answers the same question, but first advances the machine to the present time if that can change the answer. */
bool sim_query(const struct sim_position *position);

void sim_wait(const struct sim_position *position);

/* Reads ORION_SIM_SPIN: whether waits keep a CPU busy, as a driver's do by default, or sleep. cuInit calls this. */
void sim_choose_waiting(void);

/* Under the lock: a lower bound of the time at which the position is reached; SIM_NEVER: time alone does not reach
 * it. */
uint64_t sim_earliest(const struct sim_position *position);

#endif
