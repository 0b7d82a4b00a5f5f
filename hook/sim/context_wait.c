/* Waiting for whole contexts, and events that stand for all of one. */
#include "capture.h"
#include "context.h"

/* Not while a stream of the context is being captured, whatever the mode. */
static CUresult synchronise(struct CUctx_st *context) {
    SIM_TRY(sim_capture_unsafe());
    SIM_TRY(sim_capture_refuse_context(context));
    sim_context_wait(context);
    return context->sticky;
}

CUresult CUDAAPI cuCtxSynchronize(void) {
    SIM_CONTEXT(context);
    return synchronise(context);
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle) {
    struct CUctx_st *context;
    SIM_TRY(sim_context_named(handle, &context));
    return synchronise(context);
}

/* The event stands for all that is queued in the context: a hidden stream waits for the others, and is recorded. */
CUresult CUDAAPI cuCtxRecordEvent(CUcontext handle, CUevent event) {
    struct CUctx_st *context;
    SIM_TRY(sim_context_named(handle, &context));
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT) || event->context != context, CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_capture_refuse_context(context));
    event->capture = NULL;
    SIM_TRY(sim_wait_for_streams(context->everything));
    return sim_submit_record(context->everything, event);
}

CUresult CUDAAPI cuCtxWaitEvent(CUcontext handle, CUevent event) {
    struct CUctx_st *context;
    SIM_TRY(sim_context_named(handle, &context));
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_capture_refuse_context(context));
    struct sim_position on = sim_event_position(event);
    for (unsigned long long after = 0;;) {
        sim_enter();
        struct CUstream_st *next = sim_context_stream_after(context, after);
        sim_leave();
        if (!next)
            return CUDA_SUCCESS;
        after = next->id;
        SIM_TRY(sim_submit_wait(next, &on));
    }
}
