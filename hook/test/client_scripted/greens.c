/* Work in a green context of the program, which can be current to one thread at a time. */
#include "scripted.h"

#include <pthread.h>
#include <semaphore.h>

#define SMS 32

static CUcontext green;     /* the green context's handle as a context */
static CUstream its_stream; /* a stream of it */

static CUresult make(void)
{
    CUdevice device;
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx made;
    CUresult result;
    unsigned groups = 1;
    if ((result = cuCtxGetDevice(&device)) || (result = cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM)) ||
        (result = cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, SMS)) ||
        (result = cuDevResourceGenerateDesc(&description, &part, 1)) ||
        (result = cuGreenCtxCreate(&made, description, device, CU_GREEN_CTX_DEFAULT_STREAM)) ||
        (result = cuGreenCtxStreamCreate(&its_stream, made, CU_STREAM_NON_BLOCKING, 0)))
        return result;
    return cuCtxFromGreenCtx(&green, made);
}

static sem_t is_held;
static CUresult held;

/* Makes the green context current to this thread, which then stays. */
static void *hold(void *unused)
{
    (void)unused;
    held = cuCtxSetCurrent(green);
    sem_post(&is_held);
    for (;;) sleep_until(now() + 1000000000u);
    return NULL;
}

static CUresult hold_in_another_thread(void)
{
    static pthread_t thread;
    if (sem_init(&is_held, 0, 0) || pthread_create(&thread, NULL, hold, NULL)) return CUDA_ERROR_UNKNOWN;
    while (sem_wait(&is_held)) {}
    return held;
}

double in_green_context(const struct arguments *at)
{
    CUresult result = green == NULL ? make() : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && at->c == 0) result = cuCtxSetCurrent(green);
    if (result == CUDA_SUCCESS && at->c == 1) result = hold_in_another_thread();
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++)
        result = launch_on(used->timed, at->c == 0 ? NULL : its_stream, (uint64_t)at->b);
    return result;
}
