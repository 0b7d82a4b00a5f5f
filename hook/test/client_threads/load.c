/* Scenarios with many threads: threads that work at random, and a service beside training. */
#include "scenarios.h"
#include "threads.h"

#include <stdlib.h>
#include <unistd.h>

static uint64_t deadline;
static void at_random(void)
{
    unsigned seed = (unsigned)(uintptr_t)&seed >> 4;
    CUstream mine;
    CUevent mark;
    uint32_t word;
    CUdeviceptr memory;
    DONE(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    DONE(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
    DONE(cuMemAlloc(&memory, 64));
    while (now() < deadline) {
        CUstream stream = rand_r(&seed) % 2 ? NULL : mine;
        uint64_t microseconds = (unsigned)rand_r(&seed) % 80;
        uint32_t sms = 60;
        void *parameters[] = {&microseconds, &sms};
        DONE(cuLaunchKernel(timed, 132, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
        switch (rand_r(&seed) % 8) {
        case 0: DONE(cuStreamSynchronize(stream)); break;
        case 1: DONE(cuCtxSynchronize()); break;
        case 2:
            DONE(cuEventRecord(mark, stream));
            DONE(cuEventSynchronize(mark));
            break;
        case 3: DONE(cuMemcpyDtoH(&word, memory, 4)); break;
        default: break;
        }
    }
    DONE(cuCtxSynchronize());
    DONE(cuStreamDestroy(mine));
    DONE(cuMemFree(memory));
}
void many_threads_at_random(void)
{
    pthread_t threads[8];
    CHECK(start(4) == 0);
    CHECK(set_policy(ORION_SCHEDULER_ORION, 1300) == 0);
    deadline = now() + 700 * MS;
    for (int i = 0; i < 8; i++) threads[i] = in_thread(i % 5 - 1, at_random);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) CHECK(figures(i).launches > 0);
    CHECK(stop() == 0);
}

static void hp_serves(void)
{
    while (now() < deadline) {
        launch(NULL, 5);
        DONE(cuStreamSynchronize(NULL));
        usleep(8000); /* requests with gaps: the budget compares busy periods */
    }
}
static void be_trains(void)
{
    while (now() < deadline) launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
}
static void work_together(unsigned seconds)
{
    deadline = now() + seconds * 1000 * MS;
    pthread_t be = in_thread(BE, be_trains);
    all_of(HP, hp_serves);
    pthread_join(be, NULL);
}
void a_budget_lets_be_overlap(void)
{
    CHECK(start(2) == 0);
    work_together(1);
    CHECK(figures(BE).overlapped_launches == 0);
    CHECK(set_policy(ORION_SCHEDULER_ORION, 2000) == 0);
    for (int i = 0; i < 10 && figures(BE).overlapped_launches <= 20; i++) work_together(1); /* the hook must learn first */
    CHECK(figures(BE).overlapped_launches > 20);
}
