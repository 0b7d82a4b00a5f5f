/* What the driver leaves out. */
#ifndef ORION_SIM_PROC_ADDRESS_H
#define ORION_SIM_PROC_ADDRESS_H

#include <stdbool.h>

/* Absent in the usual driver (old/no_checkpoint.c). */
extern const bool sim_without_checkpoint __attribute__((weak, visibility("hidden")));

#endif
