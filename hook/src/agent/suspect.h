/* Asking the agent to look at an hp client whose beat is stale: is its process stopped, or just short of CPU? */
#ifndef ORION_SUSPECT_H
#define ORION_SUSPECT_H

#include <stdint.h>

#include "agent/board.h"

/* Sent by the gated thread itself on a connection of its own, which it closes at once: the hook's thread has another
 * descriptor table and is not to be woken for this. At most one message a place every 4 ms. Never blocks. */
void orion_suspect_tell(struct orion_board *board, uint32_t place, uint64_t now);

#endif
