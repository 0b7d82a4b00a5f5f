/* What a GPU in trouble does to programs. */
#ifndef ORION_SIM_HEALTH_H
#define ORION_SIM_HEALTH_H

#include "sim.h"

bool sim_device_lost(CUdevice device);

/* The error that stays with a context, CUDA_SUCCESS if there is none; that of a lost GPU's contexts begins here. */
CUresult sim_context_error(struct CUctx_st *context);

#endif
