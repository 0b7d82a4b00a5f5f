/* Driver initialisation: cuInit, versions, and the checks at the start of every call. */
#include <pthread.h>
#include <string.h>

#include "client.h"
#include "effect.h"
#include "queue.h"
#include "sim.h"
#include "trace.h"

SIM_EXPORT const char orion_sim_driver[] = "orion-sim 1"; /* distinguishes this library from the real driver */

__thread bool sim_per_thread_default;
_Atomic bool sim_forked;
static _Atomic bool initialised;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void in_child(void) { atomic_store(&sim_forked, atomic_load(&initialised)); }

CUresult sim_ready(void)
{
    if (!atomic_load_explicit(&initialised, memory_order_acquire) || atomic_load_explicit(&sim_forked, memory_order_relaxed))
        return CUDA_ERROR_NOT_INITIALIZED;
    return sim_in_host_function() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned flags)
{
    SIM_CALL();
    static bool watching;
    SIM_REFUSE(flags, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(atomic_load(&sim_forked), CUDA_ERROR_NOT_INITIALIZED);
    pthread_mutex_lock(&mutex);
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load(&initialised)) {
        sim_trace_choose();
        if (!sim_open()) /* no machine: the same error as without a loaded driver */
            result = CUDA_ERROR_NO_DEVICE;
        else if (!sim_handles_open()) result = CUDA_ERROR_UNKNOWN;
        else sim_choose_devices();
        if (!result && sim_device_count() == 0) result = CUDA_ERROR_NO_DEVICE;
        if (!watching) watching = pthread_atfork(NULL, NULL, in_child) == 0;
        if (!result) sim_choose_waiting();
        if (!result) atomic_store(&initialised, true);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    SIM_REFUSE(!version, CUDA_ERROR_INVALID_VALUE);
    *version = SIM_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *identifier)
{
    (void)identifier;
    if (table) *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

__attribute__((destructor)) static void finish(void)
{
    if (atomic_load(&initialised) && !atomic_load(&sim_forked)) sim_trace_drain();
}

SIM_EXPORT CUresult CUDAAPI cuProfilerInitialize(const char *config, const char *output, int mode)
{
    (void)config, (void)output, (void)mode;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult CUDAAPI cuProfilerStart(void) { return sim_ready(); }
SIM_EXPORT CUresult CUDAAPI cuProfilerStop(void) { return sim_ready(); }
