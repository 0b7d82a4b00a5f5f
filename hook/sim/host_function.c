/* Host functions and callbacks in streams. */
#include <stdlib.h>

#include "capture.h"
#include "graph.h"
#include "sim.h"

struct host_call {
    CUhostFn function;
    void *data;
};
struct callback {
    CUstreamCallback function;
    void *data;
    CUstream stream;
};

static bool run_host(void *data)
{
    struct host_call *call = data;
    call->function(call->data);
    return true;
}

static bool run_callback(void *data)
{
    struct callback *callback = data;
    callback->function(callback->stream, CUDA_SUCCESS, callback->data);
    return true;
}

CUresult sim_submit_host_function(struct CUstream_st *stream, CUhostFn function, void *data)
{
    struct host_call *call = malloc(sizeof *call);
    SIM_REFUSE(!call, CUDA_ERROR_OUT_OF_MEMORY);
    *call = (struct host_call){function, data};
    return sim_submit_host(stream, run_host, call, 0);
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!function, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_host(stream, function, data);
    return sim_submit_host_function(stream, function, data);
}

CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *data, unsigned flags)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!function || flags, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_check_use(stream)); /* callbacks cannot be captured */
    struct callback *callback = malloc(sizeof *callback);
    SIM_REFUSE(!callback, CUDA_ERROR_OUT_OF_MEMORY);
    *callback = (struct callback){function, data, handle};
    return sim_submit_host(stream, run_callback, callback, 0);
}
