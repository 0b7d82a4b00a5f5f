/* What the environment says about the machine. */
#ifndef ORION_SIM_PARAMETERS_H
#define ORION_SIM_PARAMETERS_H

#include <stddef.h>

#include "shared.h"

struct sim_parameters sim_parameters_from_environment(void);

/* The folder of the state files, into `folder`. */
void sim_state_folder(char *folder, size_t size);

/* May this process make the machine, where there is none or one that does not fit? Not in a container: the node's GPUs
 * are not its to choose. */
bool sim_may_make(void);

#endif
