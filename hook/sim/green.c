/* Green contexts: creates and destroys them, their streams, and queries of both (see green.h). */
#include <sys/syscall.h>
#include <unistd.h>

#include "capture.h"
#include "context.h"
#include "dispatch.h"
#include "green.h"
#include "health.h"

#define GREEN(green) \
    SIM_READY(); \
    SIM_REFUSE(!sim_handle_is(green, SIM_GREEN), CUDA_ERROR_INVALID_CONTEXT)

/* Make the default streams and the name of a green context. After an error, the caller frees what `green` holds. */
static CUresult fill(struct CUgreenCtx_st *green)
{
    struct CUctx_st *context = green->context;
    green->name = sim_handle_new(SIM_CONTEXT, sizeof *green->name);
    SIM_REFUSE(!green->name, CUDA_ERROR_OUT_OF_MEMORY);
    green->name->green = green;
    green->name->device = context->device;
    green->name->slot = context->slot;
    green->id = green->name->id = sim_context_new_id();
    SIM_TRY(sim_stream_new(context, green, CU_STREAM_NON_BLOCKING, 0, &green->legacy));
    return sim_stream_new(context, green, CU_STREAM_NON_BLOCKING, 0, &green->everything);
}

static void drop(struct CUgreenCtx_st *green)
{
    if (green->legacy) sim_stream_forget(green->legacy);
    if (green->everything) sim_stream_forget(green->everything);
    if (green->name) sim_handle_free(green->name);
    sim_handle_free(green);
}

CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *made, CUdevResourceDesc resources, CUdevice device, unsigned flags)
{
    SIM_READY();
    SIM_REFUSE(!made || flags != CU_GREEN_CTX_DEFAULT_STREAM, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_handle_is(resources, SIM_RESOURCES), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_device_valid(device) || resources->device != device, CUDA_ERROR_INVALID_DEVICE);
    struct CUgreenCtx_st *green = sim_handle_new(SIM_GREEN, sizeof *green);
    SIM_REFUSE(!green, CUDA_ERROR_OUT_OF_MEMORY);
    green->sms = resources->sms;
    CUresult result = cuDevicePrimaryCtxRetain(&green->context, device);
    if (result) {
        sim_handle_free(green);
        return result;
    }
    result = fill(green);
    if (result) {
        drop(green);
        cuDevicePrimaryCtxRelease_v2(device);
        return result;
    }
    sim_enter();
    green->next = green->context->greens;
    green->context->greens = green;
    sim_leave();
    *made = green;
    return CUDA_SUCCESS;
}

bool sim_green_enter(struct CUctx_st *context)
{
    if (!sim_context_alive(context) || !context->green) return true;
    int self = (int)syscall(SYS_gettid), holder = 0;
    while (!atomic_compare_exchange_strong(&context->holder, &holder, self)) {
        if (holder == self) break;
        if (syscall(SYS_tgkill, getpid(), holder, 0) == 0) return false;
        atomic_compare_exchange_strong(&context->holder, &holder, 0); /* that thread has ended */
        holder = 0;
    }
    context->holds = holder == self ? context->holds + 1 : 1;
    return true;
}

void sim_green_leave(struct CUctx_st *context)
{
    if (!sim_context_alive(context) || !context->green || context->holder != (int)syscall(SYS_gettid)) return;
    if (--context->holds == 0) context->holder = 0;
}

static void detach_streams(struct CUgreenCtx_st *green)
{
    for (unsigned long long after = 0;;) {
        sim_enter();
        struct CUstream_st *stream = sim_context_stream_after(green->context, green, after);
        sim_leave();
        if (!stream) return;
        after = stream->id;
        sim_capture_leave(stream);
        stream->detached = true;
        stream->green = NULL;
    }
}

/* Waits for the queued work, as cuCtxDestroy does. The streams of the green context stay, but only cuStreamDestroy
 * accepts them. */
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx green)
{
    GREEN(green);
    struct CUctx_st *context = green->context;
    int device = context->device;
    sim_context_wait(context, green);
    detach_streams(green);
    sim_enter();
    struct CUgreenCtx_st **link = &context->greens;
    while (*link && *link != green) link = &(*link)->next;
    if (*link) *link = green->next;
    sim_leave();
    drop(green);
    return cuDevicePrimaryCtxRelease_v2(device);
}

/* The streams of green contexts are in the context's list, so the context frees them. */
void sim_greens_forget(struct CUctx_st *context)
{
    while (context->greens) {
        struct CUgreenCtx_st *green = context->greens;
        context->greens = green->next;
        sim_handle_free(green->name);
        sim_handle_free(green);
    }
}

CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    GREEN(green);
    SIM_REFUSE(!context, CUDA_ERROR_INVALID_VALUE);
    *context = green->name;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id)
{
    SIM_READY();
    green = green ? green : sim_green_named(NULL);
    GREEN(green);
    SIM_REFUSE(!id, CUDA_ERROR_INVALID_VALUE);
    *id = green->id;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
    GREEN(green);
    return sim_resource_describe(resource, type, green->context->device, &green->sms);
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type)
{
    SIM_CONTEXT_NAMED(context, handle);
    struct CUgreenCtx_st *green = sim_green_named(handle);
    struct sim_sms sms = green ? green->sms : sim_all_sms();
    return sim_resource_describe(resource, type, context->device, &sms);
}

CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority)
{
    GREEN(green);
    SIM_REFUSE(!stream || flags != CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_context_error(green->context));
    return sim_stream_new(green->context, green, flags, priority, stream);
}

CUresult CUDAAPI cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!green, CUDA_ERROR_INVALID_VALUE);
    *green = stream->green;
    return CUDA_SUCCESS;
}

/* For a stream of a green context, the first version returns the green context, the second also the primary context. */
CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!context, CUDA_ERROR_INVALID_VALUE);
    *context = stream->green ? stream->green->name : stream->context;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!context, CUDA_ERROR_INVALID_VALUE);
    *context = stream->context;
    if (green) *green = stream->green;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetDevResource(CUstream handle, CUdevResource *resource, CUdevResourceType type)
{
    SIM_STREAM(stream, handle);
    struct sim_sms sms = stream->green ? stream->green->sms : sim_all_sms();
    return sim_resource_describe(resource, type, stream->context->device, &sms);
}
