/* Whether this process's contexts share one context with other processes, as those of an MPS server's clients do. */
#ifndef ORION_SIM_MPS_H
#define ORION_SIM_MPS_H

#include <stdbool.h>

/* Decided at the first call, for the life of the process: the whole machine is in that mode, or a control daemon
 * listens in CUDA_MPS_PIPE_DIRECTORY. The process is that daemon's client from then on. */
bool sim_mps_client(void);

/* The daemon has ended, so the contexts are lost. */
bool sim_mps_lost(void);

#endif
