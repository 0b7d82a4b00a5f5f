/* hp's busy word is never clear (IDLE or LINGER) while work is outstanding. Threads launch and synchronise at random on
 * shared streams, and a watcher reads the word as a be client does. The test also runs under the thread sanitizer. */
#include "check.h"
#include "fake_driver.h"

#include <pthread.h>
#include <sched.h>

#include "core/core.h"
#include "hp/busy.h"
#include "system/system.h"

#define STREAMS 2
#define THREADS 4
#define ROUNDS 40000
#define PAUSE_EVERY 400

static struct orion_gpu *gpu;
static _Atomic uint64_t given[STREAMS], completed[STREAMS]; /* launches passed to the fake GPU, and completed */
static _Atomic uint32_t finished;
static _Atomic uint64_t clears; /* how often the watcher saw a clear word */
static pthread_barrier_t barrier;

static CUstream stream_of(unsigned i) { return (CUstream)(uintptr_t)(0x5000 + 0x100 * i); }

static void launch(unsigned i)
{
    struct orion_work work = {.stream = {stream_of(i), false}, .identity = 1};
    orion_work_begin(&work);
    CHECK(work.stream_record != NULL);
    atomic_fetch_add(&given[i], 1);
    orion_work_end(&work, CUDA_SUCCESS);
}

/* What a synchronise of the driver does: the first `upto` launches of the stream are complete when it returns. */
static void complete(unsigned i, uint64_t upto)
{
    uint64_t done = atomic_load(&completed[i]);
    while (done < upto && !atomic_compare_exchange_weak(&completed[i], &done, upto)) {}
}

static void synchronise(unsigned i, bool query)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = !query, .stream = {stream_of(i), false}};
    orion_proof_begin(&proof);
    complete(i, atomic_load(&given[i]));
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static void synchronise_context(void)
{
    struct orion_proof proof = {.scope = ORION_PROOF_CONTEXT, .blocks = true};
    orion_proof_begin(&proof);
    for (unsigned i = 0; i < STREAMS; i++) complete(i, atomic_load(&given[i]));
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static void record_and_wait(unsigned i, CUevent event)
{
    struct orion_recording recording = {.event = event, .stream = {stream_of(i), false}};
    orion_event_recording(&recording);
    uint64_t upto = atomic_load(&given[i]);
    orion_event_recorded(&recording, CUDA_SUCCESS);
    launch(i);
    struct orion_proof proof = {.scope = ORION_PROOF_EVENT, .blocks = true, .event = event};
    orion_proof_begin(&proof);
    complete(i, upto);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

/* The drain thread records an event and queries it. The event completes after all work that was passed before it. */
static uint64_t behind[STREAMS];
static CUresult CUDAAPI record_context(CUcontext context, CUevent event)
{
    (void)context, (void)event;
    for (unsigned i = 0; i < STREAMS; i++) behind[i] = atomic_load(&given[i]);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    (void)event;
    for (unsigned i = 0; i < STREAMS; i++) complete(i, behind[i]);
    return CUDA_SUCCESS;
}

/* From time to time all threads stop launching until the watcher sees a clear word: the word must clear once all work
 * is complete. */
static void pause_together(void)
{
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        uint64_t seen = atomic_load(&clears);
        synchronise_context();
        for (uint64_t until = orion_now() + 10 * ORION_SECOND; atomic_load(&clears) == seen;) {
            CHECK(orion_now() < until);
            sched_yield();
        }
    }
    pthread_barrier_wait(&barrier);
}

static void *worker(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument * 2654435761u + 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (round % PAUSE_EVERY == 0) pause_together();
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned what = (unsigned)(seed >> 60), i = (unsigned)(seed >> 40) % STREAMS;
        if (what < 6) launch(i);
        else if (what < 10) synchronise(i, what & 1);
        else if (what < 12) synchronise_context();
        else if (what < 14) record_and_wait(i, (CUevent)(uintptr_t)(0x9000 + (uintptr_t)argument * 16));
        else
            for (unsigned j = 0; j < (seed >> 50) % 64; j++) orion_pause();
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

/* A violation: the word is clear, but a launch that was passed before the watcher read the word is incomplete. The
 * watcher reads `completed` last, so it misses a launch that completes between the two reads. */
static void *watcher(void *argument)
{
    (void)argument;
    while (atomic_load(&finished) < THREADS) {
        uint64_t before[STREAMS];
        for (unsigned i = 0; i < STREAMS; i++) before[i] = atomic_load(&given[i]);
        uint32_t state = atomic_load(&gpu->busy->state);
        if (state != ORION_IDLE && state != ORION_LINGER) continue;
        for (unsigned i = 0; i < STREAMS; i++) CHECK(atomic_load(&completed[i]) >= before[i]);
        atomic_fetch_add(&clears, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS], watch;
    gpu = fake_gpu(ORION_ROLE_HP);
    orion_driver.cuCtxRecordEvent = record_context;
    orion_driver.cuEventQuery = query_event;
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_create(&watch, NULL, watcher, NULL);
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_join(watch, NULL);
    synchronise_context();
    uint32_t state = atomic_load(&gpu->busy->state);
    CHECK(state == ORION_LINGER || state == ORION_IDLE); /* the word is clear once all work is complete */
    CHECK(atomic_load(&gpu->busy->progress) > 0);
    printf("busy: %llu clear states seen, none with work outstanding\n", (unsigned long long)atomic_load(&clears));
    return 0;
}
