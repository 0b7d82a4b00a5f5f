/* Defines the variant of a function that uses the calling thread's own default stream. */
#ifndef ORION_SIM_PER_THREAD_H
#define ORION_SIM_PER_THREAD_H

#include "sim.h"

#define SIM_PER_THREAD(variant, function, parameters, arguments) \
    CUresult CUDAAPI variant parameters \
    { \
        sim_per_thread_default = true; \
        CUresult result = function arguments; \
        sim_per_thread_default = false; \
        return result; \
    }

#endif
