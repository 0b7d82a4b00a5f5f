/* Asks the agent for credit: one thread of the process at a time for each GPU (agent/asking.h), the others use its answer. */
#ifndef ORION_CREDIT_REQUEST_H
#define ORION_CREDIT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "orion/join.h"

struct orion_gpu;

/* The waiting of one allocation; all zero: it has not begun. */
struct orion_credit_wait {
    uint64_t until; /* when it ends to wait for an agent */
    uint32_t begun; /* the process's requests for the GPU until then: later answers hold for it, too */
    bool has_asked; /* itself */
};

/* Asks for credit to hold `bytes` in all, or waits until the thread that asks now has its answer. ORION_CREDIT_NO: there is
 * no such room, or no agent has answered in time. Else the caller tries to reserve again. Keeps errno. */
enum orion_credit_answer orion_credit_request(const struct orion_gpu *gpu, uint64_t bytes, struct orion_credit_wait *wait);

/* The process's first request on the GPU, for one byte; later calls return at once. Waits for the answer, for a bounded time: the
 * credit that the process has then may be less. */
void orion_credit_first(const struct orion_gpu *gpu);

#endif
