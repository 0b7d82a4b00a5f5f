/* Whether this process is a client of MPS. The GPU runs the contexts of all MPS clients together, as one context. */
#ifndef ORION_SIM_MPS_H
#define ORION_SIM_MPS_H

#include <stdbool.h>

/* True if the whole machine is in MPS mode, or if a control daemon listens in CUDA_MPS_PIPE_DIRECTORY. The first call
 * decides for the life of the process, which stays a client of that daemon. */
bool sim_mps_client(void);

/* Has the daemon ended? Then the process has lost its contexts. */
bool sim_mps_lost(void);

#endif
