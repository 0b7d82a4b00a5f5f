/* The machine's parameters from the environment. */
#ifndef ORION_SIM_PARAMETERS_H
#define ORION_SIM_PARAMETERS_H

#include <stddef.h>

#include "shared.h"

struct sim_parameters sim_parameters_from_environment(void);

/* Writes the folder of the state files into `folder`. */
void sim_state_folder(char *folder, size_t size);

/* May this process make the machine if none fits? A process in a container may not, because it must not choose the
 * node's GPUs. */
bool sim_may_make(void);

#endif
