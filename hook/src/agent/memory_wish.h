/* Asks the agent about memory, on a connection of its own, and waits for a bounded time for the answer. A process that has used up
 * its file descriptors asks by a thread that has a table of its own, as CUDA needs none for an allocation. If that is impossible, too,
 * no agent answers, and the process says why. */
#ifndef ORION_MEMORY_WISH_H
#define ORION_MEMORY_WISH_H

#include <stdint.h>

#include "orion/join.h"

struct orion_gpu;

#define ORION_NO_ANSWER ((enum orion_credit_answer)0) /* no agent answered in time */

/* `type`: ORION_MEMORY or ORION_ROOM; `bytes` as in orion_memory_wish. Keeps errno. */
enum orion_credit_answer orion_memory_ask(const struct orion_gpu *gpu, enum orion_message_type type, uint64_t bytes);

#endif
