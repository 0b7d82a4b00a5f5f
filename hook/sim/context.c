/* Contexts that a program creates itself, and each thread's stack of contexts. */
#include "context.h"
#include "green.h"
#include "health.h"

#define STACK 64

static __thread struct CUctx_st *stack[STACK];
static __thread int depth; /* the current context is stack[depth - 1] */

/* The current context as the program set it. It can be a handle that cuCtxFromGreenCtx returned for a green context. */
static struct CUctx_st *current_handle(void) { return depth ? stack[depth - 1] : NULL; }

bool sim_context_alive(const struct CUctx_st *context) { return sim_handle_is(context, SIM_CONTEXT) && !context->dead; }

static struct CUctx_st *resolve(struct CUctx_st *handle)
{
    return sim_context_alive(handle) && handle->green ? handle->green->context : handle;
}

struct CUctx_st *sim_current(void) { return resolve(current_handle()); }

struct CUgreenCtx_st *sim_green_named(CUcontext handle)
{
    handle = handle ? handle : current_handle();
    return sim_context_alive(handle) ? handle->green : NULL;
}

CUresult sim_context(struct CUctx_st **context)
{
    SIM_READY();
    *context = sim_current();
    SIM_REFUSE(!*context, CUDA_ERROR_INVALID_CONTEXT);
    SIM_REFUSE(!sim_context_alive(*context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return sim_context_error(*context);
}

static CUresult create(CUcontext *context, unsigned flags, CUdevice device)
{
    SIM_READY();
    SIM_REFUSE(!context || (flags & ~CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    SIM_REFUSE(depth == STACK, CUDA_ERROR_UNKNOWN);
    SIM_TRY(sim_context_make(device, flags, context));
    stack[depth++] = *context;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return create(context, flags, device);
}

SIM_EXPORT CUresult CUDAAPI cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned flags,
                                           CUdevice device)
{
    SIM_REFUSE(count && !affinity, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(count, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return create(context, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned flags, CUdevice device)
{
    SIM_REFUSE(parameters && parameters->numExecAffinityParams, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return create(context, flags, device);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context)
{
    SIM_READY();
    SIM_REFUSE(!context, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_context_alive(context) || context->primary || context->green, CUDA_ERROR_INVALID_CONTEXT);
    if (current_handle() == context) depth--;
    sim_context_destroy(context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context)
{
    SIM_READY();
    SIM_REFUSE(context && !sim_context_alive(context), CUDA_ERROR_INVALID_CONTEXT);
    SIM_REFUSE(depth == STACK, CUDA_ERROR_UNKNOWN);
    SIM_REFUSE(!sim_green_enter(context), CUDA_ERROR_INVALID_CONTEXT);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *context)
{
    SIM_READY();
    SIM_REFUSE(!depth, CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    sim_green_leave(stack[depth]);
    if (context) *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    SIM_READY();
    SIM_REFUSE(context && !sim_context_alive(context), CUDA_ERROR_INVALID_CONTEXT);
    SIM_REFUSE(!sim_green_enter(context), CUDA_ERROR_INVALID_CONTEXT);
    if (depth) sim_green_leave(stack[depth - 1]);
    else depth = 1;
    stack[depth - 1] = context;
    if (!context) depth--;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    SIM_READY();
    SIM_REFUSE(!context, CUDA_ERROR_INVALID_VALUE);
    *context = current_handle();
    return CUDA_SUCCESS;
}

CUresult sim_context_named(CUcontext handle, struct CUctx_st **context)
{
    if (!handle) return sim_context(context);
    SIM_READY();
    SIM_REFUSE(!sim_context_alive(handle), CUDA_ERROR_INVALID_CONTEXT);
    *context = resolve(handle);
    return sim_context_error(*context);
}
