/* The shared file: where it is, who makes it, and its regions in memory. */
#ifndef ORION_SIM_FILE_H
#define ORION_SIM_FILE_H

#include "shared.h"

/* Open the machine's file, making it from the environment if there is none that fits. NULL: it cannot be had. */
struct sim_header *sim_file_open(void);

/* Map region `number`; NULL: it cannot be mapped. */
struct sim_region *sim_file_region(uint64_t number);
void sim_file_unmap(struct sim_region *region);

/* Unmap later: readers without the lock may still look at it. NULL is fine. */
void sim_file_retire(struct sim_region *region);

/* Give the memory of a region back that nobody reads any more. */
void sim_file_forget(uint64_t number);

/* A place among the clients is claimed by a record lock of the process: the kernel gives it back when the process ends,
 * and says whose it is in the terms of who asks. Claiming again is fine, and needed now and then: the lock is lost when
 * the program closes any descriptor of the file.
 *
 * Refused as a sign of life: it is given back late, after the process's memory. */
bool sim_file_claim(uint64_t place); /* false: another process has it */
void sim_file_unclaim(uint64_t place);
uint32_t sim_file_claimant(uint64_t place); /* process id in the caller's pid namespace; 0: nobody, or not seen from it */

#endif
