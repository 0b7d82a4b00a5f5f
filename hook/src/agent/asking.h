/* Lets one thread of the process at a time ask the agent; the others wait until it has its answer.
 *
 * The agent serves a slot's socket at a limited rate, and processes join on the same socket. Threads that each asked for
 * themselves made the queue so long that new processes joined seconds later. So the queue has at most one request of each
 * process and kind. */
#ifndef ORION_ASKING_H
#define ORION_ASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "orion/join.h"

#define ORION_ASKING_PATIENCE_NS (2 * ORION_SECOND) /* without an answer; an agent can be replaced in that time */

struct orion_gpu;

/* All zero: nobody asks, and nobody has. */
struct orion_asking {
    _Atomic uint64_t turn_ends_ns; /* of the thread that asks; 0: none does. Also names the turn. */
    _Atomic uint64_t answered_ns;  /* when the agent has answered last; 0: never */
    _Atomic uint32_t ended;        /* a private futex: grows when a turn ends */
};

/* Begins a turn, whose name is *turn then. False: another thread had its turn, or `until` has passed. Changes no errno. */
bool orion_asking_begin(struct orion_asking *asking, uint64_t until, uint64_t *turn);
void orion_asking_end(struct orion_asking *asking, uint64_t turn);

/* Asks the agent (agent/memory_wish.h); pauses if there is no decision yet, because the others would get the same answer. */
enum orion_credit_answer orion_asking_ask(struct orion_asking *asking, const struct orion_gpu *gpu, enum orion_message_type type,
                                          uint64_t bytes);

#endif
