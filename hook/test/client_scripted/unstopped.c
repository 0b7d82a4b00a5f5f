#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "scripted.h"

static struct {
    CUevent begin, end;
    CUmodule module;
    CUmemoryPool pool;
    CUdeviceptr memory;
    pthread_t thread; /* it has used its own default stream */
    sem_t has_used, may_end;
} made;

static void *use_own_stream(void *context)
{
    cuCtxSetCurrent(context);
    cuStreamSynchronize(CU_STREAM_PER_THREAD);
    sem_post(&made.has_used);
    sem_wait(&made.may_end);
    return NULL;
}

static CUresult start_thread(void)
{
    CUcontext context;
    CUresult result = cuCtxGetCurrent(&context);
    if (result != CUDA_SUCCESS) return result;
    sem_init(&made.has_used, 0, 0), sem_init(&made.may_end, 0, 0);
    if (pthread_create(&made.thread, NULL, use_own_stream, context) != 0) return CUDA_ERROR_UNKNOWN;
    sem_wait(&made.has_used);
    return CUDA_SUCCESS;
}

static CUresult end_thread(void)
{
    sem_post(&made.may_end);
    pthread_join(made.thread, NULL);
    return CUDA_SUCCESS;
}

static bool unloads_at_exit;
static void unload_at_exit(void)
{
    if (unloads_at_exit) cuModuleUnload(made.module);
}
/* Before cuInit, as the CUDA runtime registers its own: so it runs behind the hook's. */
__attribute__((constructor)) static void register_handler(void) { atexit(unload_at_exit); }

static sem_t may_go_on;
static void CUDA_CB wait_for_host(void *unused) { (void)unused, sem_wait(&may_go_on); }
static CUresult launch_behind_host_function(void)
{
    sem_init(&may_go_on, 0, 0);
    CUresult result = cuLaunchHostFunc(used->streams[1], wait_for_host, NULL);
    return result == CUDA_SUCCESS ? (CUresult)launches(&(struct arguments){.a = 1, .b = 100, .c = 1}) : result;
}
static CUresult record_and_release(void)
{
    CUresult result = cuEventRecord(made.end, used->streams[2]);
    sem_post(&may_go_on);
    return result;
}

static CUresult make(void)
{
    CUmemPoolProps kind = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUresult result = cuEventCreate(&made.begin, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) result = cuEventCreate(&made.end, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) result = cuEventRecord(made.begin, NULL);
    if (result == CUDA_SUCCESS) result = cuEventRecord(made.end, NULL);
    if (result == CUDA_SUCCESS) result = cuModuleLoadData(&made.module, timed_code);
    if (result == CUDA_SUCCESS) result = cuMemPoolCreate(&made.pool, &kind);
    if (result == CUDA_SUCCESS) result = start_thread();
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

double unstopped(const struct arguments *at)
{
    float milliseconds;
    size_t free_bytes, total;
    switch ((int)at->a) {
    case 0: return make();
    case 1: return cuStreamQuery(NULL);
    case 2: return cuEventQuery(made.end);
    case 3: return cuStreamSynchronize(NULL);
    case 4: return cuEventSynchronize(made.end);
    case 5: return cuCtxSynchronize();
    case 6: return cuEventElapsedTime(&milliseconds, made.begin, made.end);
    case 7: return cuMemAllocAsync(&made.memory, 1 << 16, NULL);
    case 8: return cuMemAllocFromPoolAsync(&made.memory, 1 << 16, made.pool, NULL);
    case 9: return cuMemPoolDestroy(made.pool);
    case 10: return cuModuleUnload(made.module);
    case 11: return end_thread();
    case 13: unloads_at_exit = true; return CUDA_SUCCESS;
    case 14: return launch_behind_host_function();
    case 15: return record_and_release();
    default: return cuMemGetInfo(&free_bytes, &total);
    }
}
