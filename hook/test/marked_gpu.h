/* For tests of marks: a GPU of hp whose streams complete when the test says so, with a driver whose events fail at times if the test
 * wants that. */
#ifndef ORION_TEST_MARKED_GPU_H
#define ORION_TEST_MARKED_GPU_H

#include "check.h"
#include "fake_driver.h"

#include "core/core.h"
#include "hp/marks.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define STREAMS 3u
#define EVENTS 200000u

static struct orion_gpu *gpu;
static _Atomic uint64_t given[STREAMS], completed[STREAMS];
static _Atomic uint32_t made, recorded, failures;
static _Atomic bool capturing;
static struct {
    _Atomic bool alive;
    _Atomic uint32_t stream;
    _Atomic uint64_t behind; /* the event is complete when so many launches of the stream are */
} events[EVENTS];

static CUstream stream_of(unsigned i) { return (CUstream)(uintptr_t)(0x5000 + 0x100 * i); }
static bool fails(void) { return failures > 0 && atomic_fetch_add(&failures, 1) % 61 == 0; }
static uint32_t number_of(CUevent event)
{
    uint32_t number = (uint32_t)(uintptr_t)event;
    CHECK(number > 0 && number < EVENTS && atomic_load(&events[number].alive));
    return number;
}

static CUresult CUDAAPI create_event(CUevent *event, unsigned flags)
{
    CHECK(flags == CU_EVENT_DISABLE_TIMING);
    if (fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t number = atomic_fetch_add(&made, 1) + 1;
    CHECK(number < EVENTS);
    atomic_store(&events[number].alive, true);
    *event = (CUevent)(uintptr_t)number;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI destroy_event(CUevent event)
{
    atomic_store(&events[number_of(event)].alive, false);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    uint32_t number = number_of(event), i = ((uint32_t)(uintptr_t)stream - 0x5000) / 0x100;
    CHECK(!atomic_load(&capturing));
    if (fails()) return CUDA_ERROR_INVALID_HANDLE;
    atomic_store(&events[number].stream, i);
    atomic_store(&events[number].behind, atomic_load(&given[i]));
    atomic_fetch_add(&recorded, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    uint32_t number = number_of(event), i = atomic_load(&events[number].stream);
    if (fails()) return CUDA_ERROR_ILLEGAL_ADDRESS;
    return atomic_load(&completed[i]) >= atomic_load(&events[number].behind) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static struct orion_stream_record *launch(unsigned i, bool graph)
{
    struct orion_work work = {.stream = {stream_of(i), false}, .identity = 1, .launch = {.graph = graph ? &work : NULL}};
    orion_work_begin(&work);
    CHECK(work.stream_record != NULL);
    atomic_fetch_add(&given[i], 1);
    orion_work_end(&work, CUDA_SUCCESS);
    return work.stream_record;
}

static void complete_all(struct orion_process *process)
{
    for (unsigned i = 0; i < STREAMS; i++) atomic_store(&completed[i], atomic_load(&given[i]));
    while (orion_marks_look(process, gpu) > 0) {}
    for (unsigned i = 0; i < STREAMS; i++) {
        struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .stream = {stream_of(i), false}};
        orion_proof_begin(&proof);
        orion_proof_end(&proof, CUDA_SUCCESS);
    }
}

static CUresult CUDAAPI no_capture(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static void begin(void)
{
    gpu = fake_gpu(ORION_ROLE_HP);
    orion_driver.cuEventCreate = create_event;
    orion_driver.cuEventDestroy_v2 = destroy_event;
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuStreamIsCapturing = no_capture;
}

static void be_comes(void) { atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->be_clients, 1); }

#endif
