/* For tests of streams that the driver orders. The test begins and ends work itself; no thread of the hook looks at it. */
#ifndef ORION_TEST_ORDERED_STREAMS_H
#define ORION_TEST_ORDERED_STREAMS_H

#include "simulated_process.h"

#include "be/chunks.h"
#include "be/driver_order.h"
#include "be/window.h"
#include "core/core.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define MOST_HELD 1000u

static CUstream blocking, other, non_blocking, source, middle; /* the last three are non-blocking */

static inline struct orion_stream_record *record_of(CUstream stream)
{
    struct orion_stream_record *stream_record = orion_stream_record_of(process, (struct orion_stream_name){stream, false});
    CHECK(stream_record != NULL);
    return stream_record;
}

/* A launch that stays in flight. Returns whether it is held. */
static inline bool launch(CUstream stream)
{
    bool held = orion_driver_order_matters(process, record_of(stream));
    atomic_fetch_add(&record_of(stream)->begun, 1);
    orion_driver_order_begun(record_of(stream));
    atomic_fetch_add(&record_of(stream)->returned, 1);
    return held;
}

static inline void complete(CUstream stream)
{
    orion_stream_record_prove(record_of(stream), atomic_load(&record_of(stream)->begun));
}

/* Completes all work, and launches until nothing is held. */
static inline unsigned settle(void)
{
    unsigned held = 0;
    complete(NULL), complete(blocking), complete(other), complete(CU_STREAM_PER_THREAD), complete(source), complete(middle);
    while (launch(non_blocking)) CHECK(++held < MOST_HELD);
    return held;
}

/* What a wrapper calls for an event, a host function, a write of a word, memory of a pool. */
static inline void operate(CUstream stream) { orion_operation_begin((struct orion_stream_name){stream, false}); }

static inline void record(CUevent event, CUstream stream)
{
    struct orion_recording recording = {.event = event, .stream = {stream, false}};
    orion_event_recording(&recording);
    orion_event_recorded(&recording, CUDA_SUCCESS);
}

/* The stream waits for the work so far of another one. */
static inline void await(CUstream stream, CUstream awaited)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    record(event, awaited);
    orion_event_awaited(event, (struct orion_stream_name){stream, false});
    orion_event_ending(event);
    MUST(cuEventDestroy(event));
}

static inline void each_behind_the_other(void (*test)(CUstream first, CUstream second), CUstream stream)
{
    test(NULL, stream);
    test(stream, NULL);
}

static inline void begin_streams(void)
{
    begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&non_blocking, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&source, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&middle, CU_STREAM_NON_BLOCKING));
}

#endif
