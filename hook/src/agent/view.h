/* What this process's slot may have on a GPU, for a process that does not use the GPU by CUDA: one that uses NVML only, as a
 * monitor does, or that asks only how much memory the GPU has. The process does not become a client. */
#ifndef ORION_VIEW_H
#define ORION_VIEW_H

#include <stdbool.h>
#include <stdint.h>

struct orion_room {
    uint64_t limit, left; /* of the slot, in bytes; left is at most the limit */
    uint64_t leaving;     /* what others would leave to the slot, so that it is as good as free (memory/memory.h) */
    bool beyond;          /* the GPU bounds neither (memory/unified.h) */
};

/* Finds the room of the slot on the GPU "GPU-..." in its grant page, or, until an agent has shown the page, in the file that
 * says the limit (known_limit.h). False: nothing limits the process there. Asks the agent at most once a second for each GPU,
 * since a new agent has new pages. Waits for an answer, for a bounded time. While no agent answers, the last page stays.
 * Changes no errno. */
bool orion_view_room(const char *uuid, struct orion_room *room);

#endif
