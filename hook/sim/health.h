/* How a faulty GPU affects programs. */
#ifndef ORION_SIM_HEALTH_H
#define ORION_SIM_HEALTH_H

#include "sim.h"

bool sim_device_lost(CUdevice device);

/* The permanent error of a context; CUDA_SUCCESS: none. The first call for a context of a lost GPU sets its error. */
CUresult sim_context_error(struct CUctx_st *context);

#endif
