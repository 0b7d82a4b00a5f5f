/* The slot's limit of memory, as far as a process knows it that has not joined: the agent writes it to the file `memory-limit`
 * in the slot's directory. Without it, a process allocated without a limit while the agent was slow, away or refused it.
 *
 * Only the process's own memory counts then, because it does not know what other processes of the slot hold. Rejected: to
 * refuse all memory until the process has joined, since an agent that is away would end programs. */
#ifndef ORION_KNOWN_LIMIT_H
#define ORION_KNOWN_LIMIT_H

struct orion_gpu;

/* Reads the file into gpu->known_limit. Only the GPU's thread calls this. */
void orion_known_limit_read(struct orion_gpu *gpu);

#endif
