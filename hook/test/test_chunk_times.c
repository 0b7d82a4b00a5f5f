/* For how long chunks of work have the GPU: from event to event, without what the stream did not do meanwhile. */
#include "check.h"

#include "be/chunk_times.h"
#include "be/chunks.h"
#include "be/state.h"
#include "be/turns.h"
#include "be/window.h"
#include "fake_driver.h"
#include "learning/durations.h"
#include "played_hp.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define US ORION_MICROSECOND
#define MS ORION_MILLISECOND
#define STREAMS 3u
#define EVENTS 4096u

/* When the work in each stream so far ends, and when each event was reached, in CLOCK_MONOTONIC. All events that were
 * recorded before `now` are complete. */
static uint64_t stream_ends[STREAMS], reached[EVENTS], now = 1000 * ORION_SECOND;
static uintptr_t events;
static unsigned recorded, destroyed;
static bool beside_hp; /* the launches run beside a busy hp */
static struct orion_gpu *gpu;
static struct orion_stream_record *stream_record[STREAMS];

/* The clock of this test. The linker takes these functions instead of those of system.c. */
uint64_t orion_now(void) { return now; }
void orion_sleep_precisely(uint64_t nanoseconds) { now += nanoseconds; }
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared) { (void)word, (void)shared; }
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    (void)word, (void)value, (void)timeout_ns, (void)shared;
}

static CUresult CUDAAPI make_event(CUevent *event, unsigned flags)
{
    CHECK(flags == CU_EVENT_DEFAULT && ++events < EVENTS);
    *event = (CUevent)events;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI destroy_event(CUevent event)
{
    CHECK(event != NULL);
    reached[(uintptr_t)event] = 0;
    destroyed++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    uint64_t *end = &stream_ends[((uintptr_t)stream >> 12) - 1];
    if (*end < now) *end = now;
    reached[(uintptr_t)event] = *end;
    recorded++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    CHECK(reached[(uintptr_t)event] != 0);
    return reached[(uintptr_t)event] <= now ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult CUDAAPI elapsed(float *milliseconds, CUevent start, CUevent end)
{
    CHECK(query_event(start) == CUDA_SUCCESS && query_event(end) == CUDA_SUCCESS);
    *milliseconds = (float)(((double)reached[(uintptr_t)end] - (double)reached[(uintptr_t)start]) / 1e6);
    return CUDA_SUCCESS;
}

static struct orion_chunks *chunks_of(unsigned i) { return &orion_be_stream_record(stream_record[i])->chunks; }

/* A launch of work that takes `takes`, and is expected to take `cost`. */
static void launch(unsigned stream, uint64_t takes, uint64_t cost)
{
    orion_chunks_launched(orion_the_process, stream_record[stream], cost, now, beside_hp);
    stream_ends[stream] = (stream_ends[stream] > now ? stream_ends[stream] : now) + takes;
}
static void close_chunk(unsigned stream) { orion_chunks_close(orion_the_process, stream_record[stream]); }

/* The stream waits until the valve opens at opens_ns; 0: it is open. */
static void put_wait(unsigned stream, uint64_t least_ns, uint64_t opens_ns)
{
    orion_chunks_before_wait(orion_the_process, stream_record[stream], least_ns);
    if (stream_ends[stream] < opens_ns) stream_ends[stream] = opens_ns;
    orion_chunks_behind_wait(stream_record[stream], opens_ns != 0);
}

/* The time passes until `at`; returns the GPU time that has become known. */
static uint64_t until(uint64_t at)
{
    uint64_t before = atomic_load(&gpu->record->gpu_ns);
    CHECK(at >= now);
    now = at;
    for (unsigned i = 0; i < STREAMS; i++) orion_chunks_reap(orion_the_process, stream_record[i]);
    return atomic_load(&gpu->record->gpu_ns) - before;
}

static bool is_about(uint64_t found, uint64_t expected)
{
    bool is = found + 20 * US > expected && found < expected + 20 * US;
    if (!is) fprintf(stderr, "%.3f ms instead of %.3f ms\n", (double)found / 1e6, (double)expected / 1e6);
    return is;
}

/* A loop of launches has one event for each chunk; durations may differ from what was expected. */
static void work_without_a_break(void)
{
    uint64_t began = now;
    unsigned before = recorded;
    for (unsigned i = 0; i < 10; i++) launch(0, 300 * US, 400 * US), close_chunk(0);
    CHECK(recorded == before + 10);
    CHECK(is_about(until(began + 3 * MS), 3 * MS));
    CHECK(until(began + 4 * MS) == 0);
}

/* The slot's turn ended then, and the next one begins at resumes_ns; 0: not yet. */
static void take_turn(uint64_t ended_ns, uint64_t resumes_ns)
{
    atomic_store(&orion_be(gpu)->turn_ended_ns, ended_ns);
    atomic_store(&orion_be(gpu)->resumed_ns, resumes_ns);
}

static uint64_t ran_on(uint64_t at)
{
    uint64_t before = atomic_load(&gpu->record->ran_on_ns);
    until(at);
    return atomic_load(&gpu->record->ran_on_ns) - before;
}

static void work_after_a_turn(void)
{
    uint64_t began = now;
    launch(0, 4 * MS, 4 * MS), close_chunk(0);
    take_turn(began + 3 * MS, 0);
    CHECK(is_about(ran_on(began + 10 * MS), MS));
    /* The GPU alternated with the next slot: the work took 6 ms, and 4 without that. */
    began = now;
    launch(0, 6 * MS, 4 * MS), close_chunk(0);
    take_turn(began + 3 * MS, 0);
    CHECK(is_about(ran_on(began + 10 * MS), MS));
    /* It began when the turn was over, and runs on into the next turn. */
    began = now;
    take_turn(began - MS, began + 3 * MS);
    launch(0, 4 * MS, 4 * MS), close_chunk(0);
    CHECK(is_about(ran_on(began + 10 * MS), 3 * MS));
    /* Work of the next turn does not count. */
    began = now;
    take_turn(began - 2 * MS, began - MS);
    launch(0, 4 * MS, 4 * MS), close_chunk(0);
    CHECK(ran_on(began + 10 * MS) == 0);
    /* Nor does it while hp closes the valve for a moment, or after the turn has become longer. */
    began = now;
    launch(0, 5 * MS, 5 * MS), close_chunk(0);
    orion_turns_opened(gpu, began + 2 * MS);
    CHECK(ran_on(began + 10 * MS) == 0);
    began = now;
    launch(0, 5 * MS, 5 * MS), close_chunk(0);
    take_turn(began + 3 * MS, began - MS);
    orion_turns_opened(gpu, began + 2 * MS);
    CHECK(ran_on(began + 10 * MS) == 0);
    take_turn(0, 0);
}

static void an_idle_stream(void)
{
    uint64_t began = now;
    launch(0, MS, MS), close_chunk(0);
    CHECK(is_about(until(began + 5 * MS), MS));
    launch(0, 2 * MS, MS), close_chunk(0);
    CHECK(is_about(until(began + 10 * MS), 2 * MS));
    launch(0, 100 * US, 100 * US); /* no event is behind it when the program launches again */
    now = began + 15 * MS;
    launch(0, 300 * US, 300 * US), close_chunk(0);
    CHECK(is_about(until(began + 20 * MS), 400 * US));
}

static void waits_at_the_valve(void)
{
    uint64_t began = now;
    launch(0, MS, MS);
    put_wait(0, MS, began + 6 * MS);
    launch(0, 2 * MS, 3 * MS), close_chunk(0);
    CHECK(is_about(until(began + 10 * MS), 3 * MS));
    /* The valve was open when the wait was put there: no event is behind it, and the expected time counts if it closed. */
    began = now;
    unsigned before = recorded;
    for (unsigned i = 0; i < 8; i++) launch(0, MS, MS), put_wait(0, MS, 0);
    CHECK(recorded == before + 8);
    stream_ends[0] += 5 * MS; /* it closed for so long */
    atomic_fetch_add(&orion_be(gpu)->valve.epoch, 1);
    launch(0, 2 * MS, 2 * MS), close_chunk(0);
    CHECK(is_about(until(began + 16 * MS), 10 * MS));
    /* A wait in a chunk that is too short to end: the expected time counts if the valve was closed. */
    began = now;
    launch(0, MS, MS);
    put_wait(0, 2 * MS, began + 6 * MS);
    launch(0, MS, MS), close_chunk(0);
    atomic_fetch_add(&orion_be(gpu)->valve.epoch, 1);
    CHECK(is_about(until(began + 10 * MS), 2 * MS));
}

static void streams_overlap(void)
{
    uint64_t began = now;
    launch(0, 4 * MS, MS), close_chunk(0);
    launch(1, 2 * MS, MS), close_chunk(1);
    CHECK(is_about(until(began + 3 * MS), 2 * MS));
    launch(1, 3 * MS, MS), close_chunk(1);
    CHECK(is_about(until(began + 5 * MS), 2 * MS));
    CHECK(is_about(until(began + 10 * MS), 2 * MS));
}

/* On a part of the SMs work takes longer; it counts as long as it would have taken on all of them. */
static void work_beside_hp(void)
{
    uint64_t began = now;
    beside_hp = true;
    for (unsigned i = 0; i < 4; i++) launch(0, 2 * MS, MS), close_chunk(0);
    CHECK(is_about(until(began + 9 * MS), 4 * MS));
    began = now;
    launch(0, 2 * MS, MS);
    beside_hp = false;
    launch(0, 3 * MS, 3 * MS), close_chunk(0); /* in the same chunk */
    CHECK(is_about(until(began + 6 * MS), 4 * MS));
    launch(0, 2 * MS, MS), close_chunk(0);
    CHECK(is_about(until(began + 9 * MS), 2 * MS));
}

/* Work that runs on while the valve closes alternates with the work of others. */
static void the_end_of_a_turn(void)
{
    uint64_t began = now;
    launch(0, 12 * MS, 10 * MS), close_chunk(0);
    atomic_store(&orion_be(gpu)->valve.closed_ns, began + 8 * MS);
    CHECK(is_about(until(began + 20 * MS), 10 * MS));
    atomic_store(&orion_be(gpu)->valve.closed_ns, 0);
}

static void streams_and_contexts_end(void)
{
    uint64_t began = now, before = atomic_load(&gpu->record->gpu_ns);
    unsigned gone = destroyed;
    launch(1, MS, MS), close_chunk(1);
    launch(1, 5 * MS, 3 * MS);
    now = began + 2 * MS;
    orion_chunks_reap(orion_the_process, stream_record[1]);
    orion_chunks_expect(stream_record[1], now); /* as when its stream is destroyed */
    orion_chunks_forget(stream_record[1], true);
    CHECK(is_about(atomic_load(&gpu->record->gpu_ns) - before, 2 * MS) && destroyed > gone);
    CHECK(chunks_of(1)->count == 0 && chunks_of(1)->open_ns == 0);
    gone = destroyed;
    orion_chunks_forget(stream_record[0], false);
    CHECK(destroyed == gone); /* the context's end destroys its events */
    orion_gpu_clock_forget(&orion_be(gpu)->clock, NULL, false);
    stream_ends[0] = stream_ends[1] = 0;
    now += MS;
    began = now;
    launch(0, MS, MS), close_chunk(0);
    CHECK(is_about(until(began + MS), MS));
}

/* A launch that is timed, of an identity. */
static void launch_sample(uint64_t identity, uint64_t takes, uint64_t cost)
{
    CHECK(orion_chunks_sample(stream_record[0], identity));
    launch(0, takes, cost);
    CHECK(orion_chunks_sampled(stream_record[0]));
}

static struct orion_kernel_facts known_of(uint64_t identity)
{
    struct orion_kernel_facts facts;
    orion_kernel_facts(orion_durations(orion_the_process), identity, &facts);
    return facts;
}

/* hp was busy until `at`, when the time has come to that. */
static void hp_drains(uint64_t at)
{
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    hp_joins(gpu);
    until(at);
    atomic_store(&page->drained_ns, at);
}

/* Behind a queue, each launch is long before its work, and hp may always have been busy between them. */
static void samples_beside_hp(void)
{
    const uint64_t identity = 0xa0001, longer = 0xb0001;
    uint64_t began = now;
    launch(0, 1 * MS, MS), close_chunk(0); /* a time that the GPU's clock knows */
    until(now + MS);
    began = now;
    for (unsigned i = 0; i < 3; i++) launch_sample(identity, 4 * MS, MS);
    hp_drains(began + 2 * MS);
    until(began + 5 * MS);
    CHECK(known_of(identity).samples == 0 && is_about(known_of(identity).expected_ns, 4 * MS)); /* at most */
    until(began + 8 * MS + MS / 2);
    CHECK(known_of(identity).samples == 1 && is_about(known_of(identity).expected_ns, 4 * MS));
    until(began + 12 * MS);
    began = now;
    for (unsigned i = 0; i < 3; i++) {
        launch_sample(longer, (12 - i) * MS, MS);
        hp_drains(now + (12 - i) * MS / 2);
        until(began + (12 - i) * MS);
        began = now;
    }
    CHECK(known_of(longer).samples == 0 && is_about(known_of(longer).expected_ns, 10 * MS)); /* the least one */
    atomic_store(&gpu->hp_count, 0);
}

/* Some launches of one identity take longer than others, behind a queue, each beside an hp that is busy at its begin. */
static void samples_of_varying_work(void)
{
    const uint64_t identity = 0xc0001, first_clean = 0xd0001;
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    for (unsigned i = 0; i < 12; i++) {
        uint64_t takes = i % 2 == 0 ? 2 * MS : 10 * MS;
        launch(0, 3 * MS, MS), close_chunk(0); /* in front of it */
        uint64_t began = now;
        launch_sample(identity, takes, MS);
        hp_drains(began + 3 * MS + MS / 2);
        until(began + 3 * MS + takes);
        uint64_t expected = known_of(identity).expected_ns;
        CHECK(known_of(identity).samples == 0 && (i < 3 ? is_about(expected, 2 * MS) : expected > 8 * MS && expected < 11 * MS));
    }
    /* Only short ones find hp idle. */
    for (unsigned i = 0; i < 12; i++) {
        uint64_t takes = i % 3 != 2 ? 2 * MS : 10 * MS;
        launch(0, 3 * MS, MS), close_chunk(0);
        uint64_t began = now;
        launch_sample(first_clean, takes, MS);
        if (takes == 10 * MS) hp_drains(began + 3 * MS + MS / 2);
        until(began + 3 * MS + takes);
        uint64_t expected = known_of(first_clean).expected_ns;
        CHECK(i < 5 ? is_about(expected, 2 * MS) : expected > 8 * MS && expected < 11 * MS);
        CHECK(known_of(first_clean).samples > 0);
        until(now + 5 * MS);
    }
    /* hp is busy still, so nothing shows how long the kernel took. */
    uint64_t before = known_of(first_clean).expected_ns;
    launch(0, 3 * MS, MS), close_chunk(0);
    launch_sample(first_clean, 40 * MS, MS);
    atomic_store(&page->state, ORION_BUSY);
    until(now + 43 * MS);
    atomic_store(&page->state, ORION_IDLE);
    CHECK(known_of(first_clean).expected_ns == before);
    /* Another stream had SMs meanwhile. */
    orion_be(gpu)->stream_records_at_work = 2;
    uint64_t began = now;
    launch(0, 3 * MS, MS), close_chunk(0);
    launch_sample(first_clean, 40 * MS, MS);
    hp_drains(began + 3 * MS + MS / 2);
    until(began + 43 * MS);
    CHECK(known_of(first_clean).expected_ns <= before);
    orion_be(gpu)->stream_records_at_work = 0;
    atomic_store(&gpu->hp_count, 0);
}

/* The ring is full: the rest of the work is one chunk. */
static void more_chunks_than_the_ring_has(void)
{
    uint64_t began = now;
    for (unsigned i = 0; i < 3 * ORION_CHUNKS; i++) launch(2, MS, MS), put_wait(2, MS, 0);
    CHECK(chunks_of(2)->count == ORION_CHUNKS && chunks_of(2)->open_ns == 2 * ORION_CHUNKS * MS);
    CHECK(is_about(until(began + ORION_CHUNKS * MS), ORION_CHUNKS * MS));
    close_chunk(2);
    CHECK(is_about(until(began + 3 * ORION_CHUNKS * MS), 2 * ORION_CHUNKS * MS));
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    orion_driver.cuEventCreate = make_event;
    orion_driver.cuEventDestroy_v2 = destroy_event;
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuEventElapsedTime_v2 = elapsed;
    for (uintptr_t i = 0; i < STREAMS; i++) {
        stream_record[i] = orion_stream_record_of(orion_the_process, (struct orion_stream_name){(CUstream)((i + 1) << 12), false});
        CHECK(stream_record[i] != NULL);
    }
    void (*const tests[])(void) = {work_without_a_break, an_idle_stream,    waits_at_the_valve,       streams_overlap,
                                   work_beside_hp,       the_end_of_a_turn, streams_and_contexts_end, more_chunks_than_the_ring_has,
                                   work_after_a_turn,    samples_beside_hp, samples_of_varying_work};
    for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++) {
        now += MS;
        tests[i]();
    }
    puts("chunk_times: ok");
    return 0;
}
