/* Several threads launch on one stream: a sample lasts from the start to the end of the launch that it times. */
#include "check.h"

#include "be/admission.h"
#include "be/chunks.h"
#include "be/state.h"
#include "core/core.h"
#include "fake_driver.h"
#include "learning/durations.h"
#include "streams/stream_records.h"
#include "system/system.h"

static unsigned timed_ends;
static CUresult CUDAAPI fake_record_in(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    timed_ends++;
    return CUDA_SUCCESS;
}
static CUresult answer = CUDA_ERROR_NOT_READY; /* of every query */
static uint32_t remaining = UINT32_MAX;        /* so many more */
static CUresult CUDAAPI fake_answer(CUevent event)
{
    (void)event;
    return remaining-- > 0 ? answer : CUDA_ERROR_NOT_READY;
}
static CUresult CUDAAPI fake_elapsed(float *milliseconds, CUevent start, CUevent end)
{
    (void)milliseconds, (void)start, (void)end;
    return answer;
}

static void know(uint64_t identity)
{
    struct orion_durations *durations = orion_durations(orion_the_process);
    orion_duration_claim(durations, identity);
    orion_duration_learn(durations, identity, 50 * ORION_MICROSECOND, ORION_SAMPLE_CLEAN);
}

/* A timed launch that the driver refuses took no time, but its kernel does. */
static void a_failed_launch_teaches_nothing(struct orion_stream_name stream)
{
    struct orion_work failed = {.stream = stream, .identity = 0x50001}, other = {.stream = stream, .identity = 0x60001};
    know(failed.identity);
    know(other.identity);
    orion_work_begin(&failed);
    const struct orion_chunks *chunks = &orion_be_stream_record(failed.stream_record)->chunks;
    uint64_t in_flight_ns = atomic_load(&orion_be(failed.stream_record->gpu)->in_flight_ns);
    CHECK(failed.flags & ORION_ADMITTED_TIMED);
    orion_work_begin(&other);
    CHECK(!(other.flags & ORION_ADMITTED_TIMED));
    orion_work_end(&other, CUDA_SUCCESS);
    uint32_t count = chunks->count;
    CHECK(chunks->open_ns > 0 && chunks->open.begin == ORION_CHUNK_BEGIN_TIMED);
    orion_work_end(&failed, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(!chunks->sampling);
    for (uint32_t i = 0; i < chunks->count; i++)
        CHECK(chunks->ring[(chunks->first + i) % ORION_CHUNKS].identity != failed.identity);
    CHECK(atomic_load(&orion_be(failed.stream_record->gpu)->in_flight_ns) == in_flight_ns); /* that of the other launch */
    CHECK(chunks->count + (chunks->open_ns > 0) == count + 1);
    CHECK(chunks->open_ns == 0 || chunks->open.begin == ORION_CHUNK_BEGIN_UNKNOWN);
}

/* Which launches had returned before the event of their chunk was recorded: those are complete with it, and no others. */
static void a_chunk_proves_its_work(struct orion_stream_name stream)
{
    struct orion_stream_record *stream_record = orion_stream_record_of(orion_the_process, stream);
    struct orion_work timed = {.stream = stream, .identity = 0x70001}, later = {.stream = stream, .identity = 0x80001},
                      not_returned = {.stream = stream, .identity = 0x90001};
    know(timed.identity), know(later.identity), know(not_returned.identity);
    orion_chunks_drop(stream_record);
    answer = CUDA_ERROR_NOT_READY; /* a launch after a pause asks */
    uint64_t before = atomic_load(&stream_record->returned);
    orion_work_begin(&timed);
    CHECK(timed.flags & ORION_ADMITTED_TIMED);
    orion_work_begin(&not_returned); /* of another thread */
    orion_work_end(&timed, CUDA_SUCCESS);
    orion_work_end(&not_returned, CUDA_SUCCESS);
    orion_work_begin(&later);
    CHECK(later.flags & ORION_ADMITTED_TIMED);
    orion_work_end(&later, CUDA_SUCCESS);
    CHECK(orion_be_stream_record(stream_record)->chunks.count == 2 && atomic_load(&stream_record->drained) < before);
    remaining = 1;
    answer = CUDA_SUCCESS;
    CHECK(orion_chunks_reap(orion_the_process, stream_record) == 1 && atomic_load(&stream_record->drained) == before + 1);
    remaining = UINT32_MAX;
    answer = CUDA_ERROR_ILLEGAL_ADDRESS; /* what is lost is not complete */
    CHECK(orion_chunks_reap(orion_the_process, stream_record) == 1 && atomic_load(&stream_record->drained) == before + 1);
}

int main(void)
{
    const struct orion_stream_name stream = {(CUstream)0x5000, false};
    const uint64_t first_identity = 0x10001, other_identity = 0x20001;
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_BE);
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    policy->copy[0].kind = ORION_POLICY_GATE;
    orion_driver.cuEventRecord = fake_record_in;
    orion_driver.cuEventQuery = fake_answer;
    orion_driver.cuEventElapsedTime_v2 = fake_elapsed;
    know(first_identity);
    know(other_identity);

    struct orion_work first = {.stream = stream, .identity = first_identity},
                      other = {.stream = stream, .identity = other_identity};
    orion_work_begin(&first);
    orion_work_begin(&other); /* another thread launches meanwhile */
    const struct orion_chunks *chunks = &orion_be_stream_record(first.stream_record)->chunks;
    CHECK(first.flags & ORION_ADMITTED_TIMED);
    CHECK(!(other.flags & ORION_ADMITTED_TIMED));
    CHECK(chunks->sampling);
    orion_work_end(&other, CUDA_SUCCESS);
    CHECK(chunks->sampling); /* the end of another launch must not end the sample */
    orion_work_end(&first, CUDA_SUCCESS);
    CHECK(!chunks->sampling);
    CHECK(chunks->count == 1 && chunks->ring[chunks->first].identity == first_identity);
    CHECK(timed_ends == 2);

    /* Only success and the loss of the context show that the work has ended. */
    static const CUresult unknown[] = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
    for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        answer = unknown[i];
        CHECK(orion_chunks_reap(orion_the_process, first.stream_record) == 0 && chunks->count == 1);
    }
    answer = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK(orion_chunks_reap(orion_the_process, first.stream_record) == 1 && chunks->count == 0);
    /* The ledger is taken when the timed launch returns, so its end is not recorded. Later launches are timed all the same. */
    struct orion_work lost = {.stream = stream, .identity = 0x30001}, later = {.stream = stream, .identity = 0x40001};
    know(lost.identity);
    know(later.identity);
    orion_work_begin(&lost);
    CHECK((lost.flags & ORION_ADMITTED_TIMED) && orion_ledger_try_lock(gpu));
    orion_work_end(&lost, CUDA_SUCCESS);
    orion_ledger_unlock(gpu);
    orion_work_begin(&later);
    CHECK(later.flags & ORION_ADMITTED_TIMED);
    orion_work_end(&later, CUDA_SUCCESS);
    a_failed_launch_teaches_nothing(stream);
    a_chunk_proves_its_work(stream);
    puts("chunks: ok");
    return 0;
}
