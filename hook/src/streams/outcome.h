/* What the result of a query or a synchronise says about the work that the call asks for.
 *
 * Success alone proves that the work is complete. Some errors show that the work has ended: they are permanent, and
 * nothing runs in that context any more. No other error says anything about the work, because the call did not look at
 * it: the work is not complete yet (CUDA_ERROR_NOT_READY), a capture forbids the question
 * (CUDA_ERROR_STREAM_CAPTURE_*), the driver refuses the context or the handle in this thread
 * (CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE), or it lacks memory (CUDA_ERROR_OUT_OF_MEMORY). The hook then
 * asks again later. If it never gets another answer, be stops waiting for such an hp after the policy's stall time, and
 * a be thread forgets its own work in flight after two seconds without progress. */
#ifndef ORION_OUTCOME_H
#define ORION_OUTCOME_H

#include <cuda.h>

enum orion_outcome {
    ORION_OUTCOME_COMPLETE, /* the work is complete */
    ORION_OUTCOME_LOST,     /* the context or the driver has ended: the work will never run, and no call can prove it */
    ORION_OUTCOME_UNKNOWN,
};
enum orion_outcome orion_outcome_of(CUresult result);

#endif
