/* The grant of this process's slot on a GPU that it does not use by CUDA, read-only: what NVML shows to a monitor. The
 * process does not become a client. */
#ifndef ORION_VIEW_H
#define ORION_VIEW_H

#include "orion/pages.h"

/* Returns the page; NULL: the process has no slot on the GPU "GPU-...", or no agent has shown the page yet. Asks the agent
 * at most once a second for each GPU, since a new agent has new pages. Waits for an answer, for a bounded time. While no
 * agent answers, the last page stays. */
const struct orion_grant_page *orion_view_grant(const char *uuid);

#endif
