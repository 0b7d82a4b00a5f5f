/* Primary contexts: one per device, with a count of retains. */
#include <pthread.h>

#include "context.h"

static struct CUctx_st *primaries[SIM_GPUS];
static unsigned primary_flags[SIM_GPUS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define DEVICE(device) \
    SIM_READY(); \
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE)

CUresult sim_primary(CUdevice device, struct CUctx_st **context)
{
    DEVICE(device);
    *context = primaries[device];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    SIM_READY();
    SIM_REFUSE(!context, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (primaries[device]) {
        primaries[device]->references++;
    } else {
        result = sim_context_make(device, primary_flags[device], &primaries[device]);
        if (!result) primaries[device]->primary = true;
    }
    *context = primaries[device];
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    DEVICE(device);
    pthread_mutex_lock(&mutex);
    struct CUctx_st *context = primaries[device];
    if (context && --context->references == 0) {
        primaries[device] = NULL;
        sim_context_destroy(context);
    }
    pthread_mutex_unlock(&mutex);
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    DEVICE(device);
    pthread_mutex_lock(&mutex);
    struct CUctx_st *context = primaries[device];
    primaries[device] = NULL;
    if (context) sim_context_destroy(context);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    DEVICE(device);
    SIM_REFUSE(flags & ~CU_CTX_FLAGS_MASK, CUDA_ERROR_INVALID_VALUE);
    primary_flags[device] = flags;
    if (primaries[device]) primaries[device]->flags = flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    DEVICE(device);
    if (flags) *flags = primary_flags[device];
    if (active) *active = primaries[device] != NULL;
    return CUDA_SUCCESS;
}
