/* The slot's limit of memory, as far as a process knows it that has not joined: the agent writes it to the file `memory-limit`
 * in the slot's directory. Without it, a process allocated without a limit while the agent was slow, away or refused it.
 *
 * Only the process's own memory counts then, because it does not know what other processes of the slot hold. Rejected: to
 * refuse all memory until the process has joined, since an agent that is away would end programs; to divide the limit by the
 * number of such processes, counted by locks of the file, since the first ones have already taken more than their part when the
 * next ones come; and to lock a part of the file for each part of the limit that a process takes, since containers cannot write
 * the file, so their locks do not exclude each other, and a child of the process would keep its locks. */
#ifndef ORION_KNOWN_LIMIT_H
#define ORION_KNOWN_LIMIT_H

#include <stdint.h>

/* The limit of the slot on the GPU "GPU-..."; 0: none is known. */
uint64_t orion_known_limit(const char *uuid);

#endif
