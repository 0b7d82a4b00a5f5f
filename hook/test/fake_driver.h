/* A driver of a few functions for tests of the core alone: one device, one context, and numbers as streams. The test
 * itself decides what has completed. Tests that need real streams, events and time use the simulated GPU. */
#ifndef ORION_TEST_FAKE_DRIVER_H
#define ORION_TEST_FAKE_DRIVER_H

#include "core/joining.h"
#include "core/lifetimes.h"
#include "generated/driver.h"
#include "process/gpu.h"
#include "process/process.h"

#define FAKE_CONTEXT ((CUcontext)0x1000)

static CUresult CUDAAPI fake_get_current(CUcontext *context)
{
    *context = FAKE_CONTEXT;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_stream_context(CUstream stream, CUcontext *context)
{
    (void)stream;
    return fake_get_current(context);
}
static CUresult CUDAAPI fake_get_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_uuid(CUuuid *uuid, CUdevice device)
{
    for (int i = 0; i < 16; i++) uuid->bytes[i] = (char)(i + device);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)0x10;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_event_destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_event_query(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_record(CUcontext context, CUevent event)
{
    (void)context, (void)event;
    return CUDA_SUCCESS;
}
/* A test that lets marks be made (hp/marks.h) has its own events. */
static CUresult CUDAAPI fake_event_record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_ERROR_NOT_SUPPORTED;
}
static CUresult CUDAAPI fake_exchange(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

static inline CUresult CUDAAPI fake_register(void *memory, size_t bytes, unsigned flags)
{
    (void)memory, (void)bytes, (void)flags;
    return CUDA_SUCCESS;
}
static inline CUresult CUDAAPI fake_pointer(CUdeviceptr *address, void *memory, unsigned flags)
{
    (void)flags;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}
/* Pins nothing: the GPU's address of memory is the CPU's. Only for tests that call it. */
static inline void fake_pinned_memory(void)
{
    orion_driver.cuMemHostRegister_v2 = fake_register;
    orion_driver.cuMemHostGetDevicePointer_v2 = fake_pointer;
}

/* The primary context is active, and is the current one. */
static inline CUresult CUDAAPI fake_primary_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0, *active = 1;
    return CUDA_SUCCESS;
}
static inline CUresult CUDAAPI fake_primary_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    return fake_get_current(context);
}
static inline CUresult CUDAAPI fake_primary_release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}
static inline void fake_primary(void)
{
    orion_driver.cuDevicePrimaryCtxGetState = fake_primary_state;
    orion_driver.cuDevicePrimaryCtxRetain = fake_primary_retain;
    orion_driver.cuDevicePrimaryCtxRelease_v2 = fake_primary_release;
}

/* This process's state of a GPU with the given role, as if the process had joined. It has no thread of the hook: the test
 * alone writes its pages, which a thread would read. */
static inline struct orion_gpu *fake_gpu_of(CUdevice device, enum orion_role role)
{
    struct orion_process *process = orion_process_started();
    bool made, has_thread = false;
    struct orion_gpu *gpu = orion_gpu_make(process, device, has_thread, &made);
    atomic_store(&process->owner, orion_owner_by_device);
    atomic_store(&process->thread_ended, orion_thread_stream_ended);
    atomic_store(&gpu->join, ORION_JOIN_UNMANAGED);
    atomic_store(&gpu->role, role);
    return gpu;
}

static inline struct orion_gpu *fake_gpu(enum orion_role role)
{
    orion_driver.cuCtxGetCurrent = fake_get_current;
    orion_driver.cuStreamGetCtx = fake_stream_context;
    orion_driver.cuCtxGetDevice = fake_get_device;
    orion_driver.cuDeviceGetUuid_v2 = fake_uuid;
    orion_driver.cuCtxPushCurrent_v2 = fake_push;
    orion_driver.cuCtxPopCurrent_v2 = fake_get_current;
    orion_driver.cuEventCreate = fake_event_create;
    orion_driver.cuEventDestroy_v2 = fake_event_destroy;
    orion_driver.cuEventQuery = fake_event_query;
    orion_driver.cuEventRecord = fake_event_record;
    orion_driver.cuCtxRecordEvent = fake_record;
    orion_driver.cuThreadExchangeStreamCaptureMode = fake_exchange;
    struct orion_gpu *gpu = fake_gpu_of(0, role);
    atomic_fetch_add(&orion_process_started()->managed, 1);
    return gpu;
}

#endif
