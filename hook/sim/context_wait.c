/* Waits for all work of a context, and records events behind all work of a context. */
#include "capture.h"
#include "checkpoint.h"
#include "context.h"
#include "green.h"
#include "health.h"

/* Returns an error while any stream of the context is being captured, in every capture mode. A wait for a primary
 * context includes its green contexts. A wait for a green context includes only that one. */
static CUresult synchronise(struct CUctx_st *context, struct CUgreenCtx_st *green)
{
    SIM_TRY(sim_capture_unsafe());
    SIM_TRY(sim_capture_refuse_context(context, green));
    sim_context_wait(context, green);
    return sim_context_error(context);
}

void sim_context_settle(struct CUctx_st *context)
{
    struct sim_position position;
    if (sim_capture_refuse_context(context, NULL)) return;
    for (unsigned long long after = 0;;) {
        sim_enter();
        struct CUstream_st *next = sim_context_stream_after(context, NULL, after);
        if (next) position = sim_stream_position(next);
        sim_leave();
        if (!next) break;
        after = next->id;
        if (next != context->everything && sim_submit_event_wait(context->everything, &position)) return;
    }
    sim_enter();
    position = sim_stream_position(context->everything);
    sim_leave();
    sim_wait(&position);
}

void sim_context_load(struct CUctx_st *context, struct sim_kernel *kernel)
{
    if (!atomic_exchange(&kernel->loaded, true)) sim_context_settle(context);
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    sim_checkpoint_read();
    SIM_CONTEXT(context);
    return synchronise(context, sim_green_named(NULL));
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle)
{
    sim_checkpoint_read();
    SIM_CONTEXT_NAMED(context, handle);
    return synchronise(context, sim_green_named(handle));
}

/* Makes the event complete after all work queued in the context. A hidden stream waits for the context's other streams,
 * and the event is recorded in the hidden stream. */
static CUresult record(struct CUctx_st *context, struct CUgreenCtx_st *green, CUevent event)
{
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT) || event->context != context, CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_capture_refuse_context(context, green));
    event->capture = NULL;
    struct CUstream_st *everything = green ? green->everything : context->everything;
    SIM_TRY(sim_wait_for_streams(everything));
    return sim_submit_record(everything, event);
}

static CUresult wait(struct CUctx_st *context, struct CUgreenCtx_st *green, CUevent event)
{
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_capture_refuse_context(context, green));
    struct sim_position on = sim_event_position(event);
    for (unsigned long long after = 0;;) {
        sim_enter();
        struct CUstream_st *next = sim_context_stream_after(context, green, after);
        sim_leave();
        if (!next) return CUDA_SUCCESS;
        after = next->id;
        SIM_TRY(sim_submit_wait(next, &on));
    }
}

CUresult CUDAAPI cuCtxRecordEvent(CUcontext handle, CUevent event)
{
    SIM_CONTEXT_NAMED(context, handle);
    return record(context, sim_green_named(handle), event);
}

CUresult CUDAAPI cuCtxWaitEvent(CUcontext handle, CUevent event)
{
    SIM_CONTEXT_NAMED(context, handle);
    return wait(context, sim_green_named(handle), event);
}

CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(green, SIM_GREEN), CUDA_ERROR_INVALID_CONTEXT);
    return record(green->context, green, event);
}

CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(green, SIM_GREEN), CUDA_ERROR_INVALID_CONTEXT);
    return wait(green->context, green, event);
}
