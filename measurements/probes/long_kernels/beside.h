/* be: a process beside the measured one that keeps the GPU busy with long kernels. */
#ifndef LONG_KERNELS_BESIDE_H
#define LONG_KERNELS_BESIDE_H

#include "groups.h"
#include "heavy.h"

#include <pthread.h>

/* Words of the page. A new BE_RUN starts the situation in the words behind it; be answers with BE_STARTED. */
enum { HP_BUSY = 1, BE_DONE, BE_READY, BE_RUN, BE_STARTED, BE_SITUATION = 16, BE_REACTION_US = 32, BE_REACTION_STATUS };
enum work { NOTHING, SPINNING, MULTIPLYING, LEAVING };
enum reaction { NO_REACTION, PREEMPTS, STOPS }; /* what be does to its own groups when hp becomes busy */

struct situation {
    uint32_t work, us; /* us: the duration of a kernel */
    uint32_t gated;    /* be launches one kernel at a time, and none while hp is busy */
    uint32_t slice_us; /* 0: CUDA's */
    uint32_t reaction;
    uint32_t sms;      /* 0: all */
};
#define SITUATION_WORDS (sizeof(struct situation) / sizeof(uint32_t))

static uint32_t run_number; /* in hp */

/* A thread of be: acts on be's groups when hp becomes busy, and again when hp is idle. */
static void *react(void *unused)
{
    (void)unused;
    for (bool handled = false, stopped = false;;) {
        uint32_t reaction = get(BE_SITUATION + 4);
        bool wanted = get(HP_BUSY) && reaction != NO_REACTION;
        if (wanted == handled) {
            if (reaction == NO_REACTION) usleep(100);
            continue;
        }
        double begun = now_us();
        uint32_t status = !wanted ? (stopped ? schedule(true) : 0) : reaction == STOPS ? schedule(false) : preempt();
        if (wanted) put(BE_REACTION_US, (uint32_t)(now_us() - begun));
        if (status) put(BE_REACTION_STATUS, status);
        stopped = wanted && reaction == STOPS;
        handled = wanted;
    }
    return NULL;
}

static void launch_for(const struct situation *now)
{
    if (now->work == MULTIPLYING) {
        multiply(now->us, now->sms);
        return;
    }
    struct kernel kernel = {now->us, 0, 0};
    void *parameters[3];
    call_of(&kernel, parameters, BLOCKS);
    must(cuLaunchKernel(spin_kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL), "launch");
}

/* Ungated, two kernels are queued, so the GPU always has one. */
static void keep_busy(const struct situation *now, uint32_t run)
{
    CUevent ends[2];
    uint32_t depth = now->gated ? 1 : 2, launched = 0;
    CUstream used = stream_of(now->work == MULTIPLYING ? now->sms : 0);
    for (int i = 0; i < 2; i++) must(cuEventCreate(&ends[i], CU_EVENT_DISABLE_TIMING), "event");
    for (uint32_t i = 0; get(BE_RUN) == run; i++) {
        if (i >= depth) {
            must(cuEventSynchronize(ends[i % depth]), "synchronise");
            __atomic_fetch_add(&page[BE_DONE], 1, __ATOMIC_SEQ_CST);
        }
        while (now->gated && get(HP_BUSY) && get(BE_RUN) == run) usleep(2);
        launch_for(now);
        must(cuEventRecord(ends[launched++ % depth], used), "record");
    }
    must(cuStreamSynchronize(used), "synchronise");
    for (int i = 0; i < 2; i++) must(cuEventDestroy(ends[i]), "event");
}

static void be_process(void)
{
    pthread_t thread;
    start();
    prepare_heavy();
    uint64_t usual_us = usual_slice_us();
    print_groups("be");
    if (pthread_create(&thread, NULL, react, NULL)) exit(1);
    put(BE_READY, 1);
    for (uint32_t run = 0;;) {
        while (get(BE_RUN) == run) usleep(100);
        run = get(BE_RUN);
        struct situation now;
        for (size_t i = 0; i < SITUATION_WORDS; i++) ((uint32_t *)&now)[i] = get(BE_SITUATION + (int)i);
        if (now.work == LEAVING) _exit(0);
        uint32_t status = set_slice(now.slice_us ? now.slice_us : usual_us);
        if (status) emit("\"what\": \"be's slice\", \"slice_us\": %u, \"status\": %u", now.slice_us, status);
        put(BE_STARTED, run);
        if (now.work != NOTHING) keep_busy(&now, run);
    }
}

/* -- What hp calls --------------------------------------------------------------------------------------------------- */

static void situate(struct situation wanted)
{
    for (size_t i = 0; i < SITUATION_WORDS; i++) put(BE_SITUATION + (int)i, ((uint32_t *)&wanted)[i]);
    put(BE_REACTION_STATUS, 0);
    put(BE_RUN, ++run_number);
    if (wanted.work != LEAVING) await(BE_STARTED, run_number);
}

/* Starts be, and CUDA in this process. */
static pid_t start_be(void)
{
    clear_page();
    run_number = 0;
    pid_t be = start_process(be_process);
    await(BE_READY, 1);
    start();
    return be;
}

static void end_be(pid_t be)
{
    situate((struct situation){.work = LEAVING});
    waitpid(be, NULL, 0);
}

#endif
