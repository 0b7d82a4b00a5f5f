/* The shared file: its path, its creation, and its regions in memory. */
#ifndef ORION_SIM_FILE_H
#define ORION_SIM_FILE_H

#include "shared.h"

/* Open the machine's file. If no file fits, make one from the environment. NULL: no file can be opened or made. */
struct sim_header *sim_file_open(void);

/* Map region `number`; NULL: it cannot be mapped. */
struct sim_region *sim_file_region(uint64_t number);
void sim_file_unmap(struct sim_region *region);

/* Unmap later, because readers without the lock may still use the region. NULL is allowed. */
void sim_file_retire(struct sim_region *region);

/* Free the memory of a region that no process reads any more. */
void sim_file_forget(uint64_t number);

/* A client claims its index by a record lock of the process. Linux releases the lock when the process ends. Linux also
 * reports the lock's owner, as a process id in the caller's pid namespace. Repeated claims are allowed and sometimes
 * needed: the process loses the lock when the program closes any descriptor of the file.
 *
 * The lock shows too late that a client died: Linux frees the process's memory before it releases the lock. */
bool sim_file_claim(uint64_t client_index); /* false: another process has it */
void sim_file_unclaim(uint64_t client_index);
/* The process id of the claim's owner, in the caller's pid namespace. 0: no process has claimed the index, or the owner
 * is not visible in this namespace. */
uint32_t sim_file_claimant(uint64_t client_index);

#endif
