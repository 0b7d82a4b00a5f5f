/* Whether this process's contexts are one with those of others, as clients of an MPS server's are. */
#ifndef ORION_SIM_MPS_H
#define ORION_SIM_MPS_H

#include <stdbool.h>

/* Decided when it is first asked, for the life of the process: the whole machine is in that mode, or a control daemon
 * listens where CUDA_MPS_PIPE_DIRECTORY says. The process is that daemon's client from then on. */
bool sim_mps_client(void);

/* The daemon has ended since: the contexts are lost. */
bool sim_mps_lost(void);

#endif
