/* Commands that create, reset and destroy streams and contexts that have work. */
#include "scripted.h"

#include <pthread.h>

double streams(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++) {
        CUstream stream;
        if ((result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS) break;
        result = launch_on(used->timed, stream, (uint64_t)at->b);
        cuStreamDestroy(stream);
    }
    return result;
}

double crowd(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 4; i < 4 + (unsigned)at->a && i < STREAMS && result == CUDA_SUCCESS; i++)
        if ((result = cuStreamCreate(&used->streams[i], CU_STREAM_NON_BLOCKING)) == CUDA_SUCCESS) result = launch(1, i);
    return result;
}

static void *launch_and_end(void *microseconds)
{
    CUresult result = cuCtxSetCurrent(used->context);
    if (result == CUDA_SUCCESS) result = launch(*(uint64_t *)microseconds, 3);
    if (result == CUDA_SUCCESS) result = cuEventRecord(used->event, CU_STREAM_PER_THREAD);
    return (void *)(uintptr_t)result;
}

double threads_that_end(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t microseconds = (uint64_t)at->b;
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++) {
        pthread_t thread;
        void *of_thread;
        if (pthread_create(&thread, NULL, launch_and_end, &microseconds) != 0) return -1;
        pthread_join(thread, &of_thread);
        result = (CUresult)(uintptr_t)of_thread;
        if (result == CUDA_SUCCESS) result = cuStreamWaitEvent(used->streams[2], used->event, 0);
        if (result == CUDA_SUCCESS) result = launch(microseconds, 2);
    }
    return result;
}

double reset(const struct arguments *at)
{
    CUdevice device;
    (void)at;
    CUresult result = cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxReset(device);
    if (result != CUDA_SUCCESS) return result;
    const struct arguments same = {(double)device, 0, 0, 0};
    return initialise(&same);
}

struct launcher {
    uint64_t end, microseconds;
    long launches;
    CUresult result;
};

static void *keep_launching(void *argument)
{
    struct launcher *self = argument;
    self->result = cuCtxSetCurrent(used->context);
    for (; self->result == CUDA_SUCCESS && now() < self->end; self->launches++)
        if ((self->result = launch(self->microseconds, 1)) == CUDA_SUCCESS) self->result = cuStreamSynchronize(used->streams[1]);
    return NULL;
}

/* Imitates a library that has its own reference to the primary context. The program keeps another reference, so no
 * release destroys the context. */
double retain(const struct arguments *at)
{
    pthread_t thread;
    CUdevice device;
    CUcontext context;
    struct launcher launcher = {.end = now() + (uint64_t)(at->a * 1e9), .microseconds = (uint64_t)at->b};
    CUresult result = cuCtxGetDevice(&device);
    if (result != CUDA_SUCCESS || pthread_create(&thread, NULL, keep_launching, &launcher) != 0) return -1;
    do {
        if ((result = cuDevicePrimaryCtxRetain(&context, device)) == CUDA_SUCCESS) result = cuDevicePrimaryCtxRelease(device);
    } while (result == CUDA_SUCCESS && now() < launcher.end);
    pthread_join(thread, NULL);
    return result != CUDA_SUCCESS || launcher.result != CUDA_SUCCESS ? -1.0 - launcher.result : (double)launcher.launches;
}

double another_context(const struct arguments *at)
{
    CUdevice device;
    CUcontext context;
    CUfunction function;
    CUresult result;
    if ((result = cuCtxGetDevice(&device)) || (result = cuCtxCreate(&context, NULL, 0, device))) return result;
    if ((result = load(&function)) == CUDA_SUCCESS) result = launch_on(function, NULL, (uint64_t)at->a);
    const struct arguments wanted = {at->b, at->c, 0, 0};
    if (result == CUDA_SUCCESS && at->b != 0) result = (CUresult)allocate(&wanted);
    CUresult ended = cuCtxDestroy(context);
    cuCtxSetCurrent(used->context);
    return result != CUDA_SUCCESS ? result : ended;
}
