/* The shared file: its path, its creation, and its regions in memory. */
#ifndef ORION_SIM_FILE_H
#define ORION_SIM_FILE_H

#include "shared.h"

/* Open the machine's file. If none fits, make it from the environment. NULL: no file can be opened or made. */
struct sim_header *sim_file_open(void);

/* Map region `number`; NULL: it cannot be mapped. */
struct sim_region *sim_file_region(uint64_t number);
void sim_file_unmap(struct sim_region *region);

/* Unmap later, because readers without the lock may still use the region. NULL is allowed. */
void sim_file_retire(struct sim_region *region);

/* Free the memory of a region that no process reads any more. */
void sim_file_forget(uint64_t number);

/* A client claims its index by a record lock of the process. The kernel releases the lock when the process ends, and
 * reports its owner as a process id in the caller's pid namespace. Repeated claims are allowed and sometimes needed:
 * the process loses the lock when the program closes any descriptor of the file.
 *
 * The lock does not show in time that a client died: the kernel releases it only after the process's memory. */
bool sim_file_claim(uint64_t client_index); /* false: another process has it */
void sim_file_unclaim(uint64_t client_index);
/* The process id of the claim's owner, in the caller's pid namespace; 0: unclaimed, or not visible from it. */
uint32_t sim_file_claimant(uint64_t client_index);

#endif
