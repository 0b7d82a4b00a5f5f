/* Marks with threads that launch, a thread that looks, contexts that end, and a driver that fails at times. The test also runs under
 * the thread sanitizer. */
#include "marked_gpu.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 3u
#define ROUNDS 30000

static _Atomic uint32_t finished;

static void *launcher(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 2654435761u + 1;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        launch((unsigned)(random >> 40) % STREAMS, random >> 60 == 0);
        if (random >> 54 == 0) sched_yield();
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

/* The GPU: completes work in the order of each stream. Contexts end now and then. */
static void *gpu_thread(void *argument)
{
    struct orion_process *process = argument;
    for (uint64_t turn = 1; atomic_load(&finished) < THREADS; turn++) {
        uint64_t done = atomic_load(&completed[turn % STREAMS]);
        if (done < atomic_load(&given[turn % STREAMS])) atomic_store(&completed[turn % STREAMS], done + 1);
        if (turn % 512 != 0) continue;
        orion_forbid_touch(process);
        atomic_fetch_add(&process->context_epoch, 1);
        orion_marks_end(process, gpu, turn % 1024 ? NULL : FAKE_CONTEXT);
        orion_allow_touch(process);
    }
    return NULL;
}

static void *looker(void *argument)
{
    struct orion_process *process = argument;
    while (atomic_load(&finished) < THREADS) {
        orion_marks_look(process, gpu);
        for (unsigned i = 0; i < STREAMS; i++) {
            struct orion_stream_record *record = orion_stream_record_of(process, (struct orion_stream_name){stream_of(i), false});
            uint64_t drained = atomic_load(&record->drained);
            CHECK(drained <= atomic_load(&completed[i]));
        }
    }
    return NULL;
}

static void threads_and_failures_break_nothing(struct orion_process *process)
{
    pthread_t threads[THREADS], others[2];
    complete_all(process);
    for (unsigned i = 0; i < STREAMS; i++) launch(i, false);
    atomic_store(&failures, 1);
    pthread_create(&others[0], NULL, gpu_thread, process);
    pthread_create(&others[1], NULL, looker, process);
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, launcher, (void *)(i + 1));
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 2; i++) pthread_join(others[i], NULL);
    atomic_store(&failures, 0);
    complete_all(process);
    for (unsigned i = 0; i < ORION_MARKS; i++) CHECK(atomic_load(&orion_marks(process)->ring[0].mark[i].state) == ORION_MARK_FREE);
    CHECK(atomic_load(&recorded) > 100);
}

int main(void)
{
    begin();
    be_comes();
    threads_and_failures_break_nothing(orion_the_process);
    puts("mark_threads: ok");
    return 0;
}
