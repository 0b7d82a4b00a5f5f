/* A be process beside a busy hp whose window has room for one kernel, but not for two, and whose driver completes work when a test
 * says so. */
#ifndef WINDOW_OF_ONE_H
#define WINDOW_OF_ONE_H

#include "check.h"

#include "be/admission.h"
#include "be/state.h"
#include "be/valve.h"
#include "be/window.h"
#include "be/work.h"
#include "fake_driver.h"
#include "learning/durations.h"
#include "streams/stream_records.h"

#define WINDOW_NS (400 * ORION_MICROSECOND)
#define KERNEL_NS (300 * ORION_MICROSECOND)
#define IDENTITY 0x1234u

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_stream_record *stream_record;
static _Atomic unsigned waits;   /* of the valve */
static _Atomic bool is_complete; /* the work in flight */

static CUresult CUDAAPI fake_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    atomic_fetch_add(&waits, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    (void)event;
    return atomic_load(&is_complete) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* watched: whether the valve's watcher is on time, as the valve's states say. There is no watcher, and no thread that retires work. */
static void begin_with_window(uint32_t watched)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    fake_pinned_memory();
    orion_driver.cuStreamWaitValue32_v2 = fake_wait;
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->hp_clients, 1);
    *(struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu) =
        (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = WINDOW_NS};
    ((struct orion_grant *)(uintptr_t)orion_gpu_grant(gpu))->window_share_ns = WINDOW_NS;
    stream_record = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x100, false});
    CHECK(stream_record != NULL);
    for (unsigned i = 0; i < 40; i++) orion_duration_learn(orion_durations(process), IDENTITY, KERNEL_NS, ORION_SAMPLE_CLEAN);
    orion_be(gpu)->valve.watched = watched;
    CHECK(orion_pinned_page_pin(process, stream_record, &orion_be(gpu)->valve.page, &orion_be(gpu)->valve.refused));
}

#endif
