/* Queries and settings of contexts: flags, limits, ids, priorities. */
#include "context.h"
#include "green.h"

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!device, CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    SIM_REFUSE(!device, CUDA_ERROR_INVALID_VALUE);
    SIM_CONTEXT_NAMED(context, handle);
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetFlags(unsigned *flags)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!flags, CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetFlags(unsigned flags)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(flags & ~CU_CTX_FLAGS_MASK, CUDA_ERROR_INVALID_VALUE);
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    SIM_REFUSE(!id, CUDA_ERROR_INVALID_VALUE);
    SIM_CONTEXT_NAMED(context, handle);
    *id = sim_green_named(handle) ? sim_green_named(handle)->id : context->id;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
    SIM_REFUSE(!version, CUDA_ERROR_INVALID_VALUE);
    SIM_CONTEXT_NAMED(context, handle);
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!value, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(limit >= CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(limit >= CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
    if (limit == CU_LIMIT_STACK_SIZE) sim_context_settle(context);
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_IN_CONTEXT();
    if (least) *least = 0;
    if (greatest) *greatest = -(SIM_PRIORITIES - 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *config)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(!config, CUDA_ERROR_INVALID_VALUE);
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
    SIM_IN_CONTEXT();
    (void)config;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxResetPersistingL2Cache(void)
{
    SIM_IN_CONTEXT();
    return CUDA_SUCCESS;
}
