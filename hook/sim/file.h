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

#endif
