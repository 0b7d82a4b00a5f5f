/* For tests of be streams that end while work is queued in them: a driver of streams and events, of which the test says when they
 * are complete, and a clock that moves only as the hook reads it. */
#ifndef ORION_TEST_ENDING_STREAMS_H
#define ORION_TEST_ENDING_STREAMS_H

#include "check.h"

#include "be/state.h"
#include "be/window.h"
#include "core/core.h"
#include "core/lifetimes.h"
#include "fake_driver.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define US ORION_MICROSECOND
#define COST (100 * US)
#define EVENTS 20000u

/* The clock of this test. The linker takes these functions instead of those of system.c. */
static uint64_t now = 1000 * ORION_SECOND;
uint64_t orion_now(void) { return now += US; }
void orion_sleep_precisely(uint64_t nanoseconds) { now += nanoseconds; }
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared) { (void)word, (void)shared; }
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    (void)word, (void)value, (void)timeout_ns, (void)shared;
}

static struct orion_process *process;
static struct orion_gpu *gpu;
static CUstream captured; /* a stream that is being captured */
static CUstream gone;     /* a stream that has been destroyed */
static enum { NONE, PENDING, COMPLETE } events[EVENTS];
static uintptr_t made;
static unsigned recorded, queried, alive, destroyed; /* events, and streams */

static CUresult CUDAAPI make_event(CUevent *event, unsigned flags)
{
    (void)flags;
    CHECK(++made < EVENTS);
    *event = (CUevent)made;
    alive++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI destroy_event(CUevent event)
{
    CHECK(event != NULL && alive > 0);
    events[(uintptr_t)event] = NONE;
    alive--;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    CHECK(stream != captured && stream != gone);
    events[(uintptr_t)event] = PENDING;
    recorded++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    CHECK(events[(uintptr_t)event] != NONE);
    queried++;
    return events[(uintptr_t)event] == COMPLETE ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult CUDAAPI elapsed(float *milliseconds, CUevent start, CUevent end)
{
    CHECK(query_event(start) == CUDA_SUCCESS && query_event(end) == CUDA_SUCCESS);
    *milliseconds = 0;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = stream == captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI destroy_stream(CUstream stream)
{
    CHECK(stream != NULL);
    destroyed++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI primary_has_ended(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = 0;
    return CUDA_SUCCESS;
}

static inline void complete_all(void)
{
    for (uintptr_t i = 1; i <= made; i++)
        if (events[i] == PENDING) events[i] = COMPLETE;
}

static uint64_t in_flight(void) { return atomic_load(&orion_be(gpu)->in_flight_ns); }

static CUstream stream_of(uintptr_t i) { return (CUstream)((i + 1) << 12); }
static struct orion_stream_record *record_of(uintptr_t i)
{
    struct orion_stream_record *stream_record = orion_stream_record_of(process, (struct orion_stream_name){stream_of(i), false});
    CHECK(stream_record != NULL);
    return stream_record;
}

static struct orion_stream_record *launch_in(struct orion_stream_record *stream_record)
{
    atomic_fetch_add(&stream_record->begun, 1);
    CHECK(orion_window_enter(process, stream_record, COST, UINT64_MAX));
    atomic_fetch_add(&stream_record->returned, 1);
    orion_window_launched(process, stream_record, COST, orion_now(), 0);
    return stream_record;
}
static inline struct orion_stream_record *launch(uintptr_t stream, unsigned times)
{
    struct orion_stream_record *stream_record = record_of(stream);
    for (unsigned i = 0; i < times; i++) launch_in(stream_record);
    return stream_record;
}

static void prove(struct orion_proof proof)
{
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static bool is_free(const struct orion_stream_record *stream_record)
{
    return atomic_load(&stream_record->state) == ORION_STREAM_RECORD_ENDED &&
           atomic_load(&stream_record->drained) == atomic_load(&stream_record->begun);
}

static void begin(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    orion_driver.cuEventCreate = make_event;
    orion_driver.cuEventDestroy_v2 = destroy_event;
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuEventElapsedTime_v2 = elapsed;
    orion_driver.cuStreamIsCapturing = is_capturing;
    orion_driver.cuStreamDestroy_v2 = destroy_stream;
    orion_driver.cuDevicePrimaryCtxGetState = primary_has_ended;
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    ((struct orion_grant *)(uintptr_t)orion_gpu_grant(gpu))->window_share_ns = 500 * US;
}

#endif
