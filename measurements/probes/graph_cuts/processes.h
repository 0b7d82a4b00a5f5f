/* B: what a graph that is blocked in one process costs another process. The section starts processes before it uses
 * CUDA. */
#ifndef GRAPH_CUTS_PROCESSES_H
#define GRAPH_CUTS_PROCESSES_H

#include "base.h"

#include <math.h>

#define REQUESTS_MOST 2000
#define ARRIVALS_PER_S 80.0
#define ROUNDS 3

enum situation { IDLE, BLOCKED_IN_GRAPH, BLOCKED_IN_STREAM, RUNNING, LEAVE, SITUATIONS };
static const char *const situation_name[SITUATIONS] = {"an idle process", "a process blocked in a graph", "a process blocked in a stream",
                                                       "a process that runs cut graphs", ""};

/* Words of the page besides word 0. A process that has done what its command says copies the command to its answer. */
enum { OTHER_COMMAND = 16, OTHER_ANSWER, REQUEST_COMMAND, REQUEST_ANSWER, REQUEST_NUMBER, READY };

static struct shape cut_shape(void) { return (struct shape){200, 20, 1, 16, false, page_address, 0, CU_STREAM_WAIT_VALUE_EQ}; }

static void run_until_next(CUgraphExec exec, uint32_t command)
{
    CUevent ends[2];
    for (int i = 0; i < 2; i++) must(cuEventCreate(&ends[i], CU_EVENT_DISABLE_TIMING), "event");
    for (int i = 0; get(OTHER_COMMAND) == command; i++) {
        must(cuEventSynchronize(ends[i % 2]), "synchronise");
        must(cuGraphLaunch(exec, stream), "launch");
        must(cuEventRecord(ends[i % 2], stream), "record");
    }
}

/* The process beside: does what the command says. A command is a number, and its lowest 4 bits are the situation. */
static void be_beside(void)
{
    start();
    struct shape cut = cut_shape(), plain = cut;
    plain.cuts = 0;
    CUgraphExec with_cuts = exec_of(&cut), without = exec_of(&plain);
    must(cuGraphLaunch(with_cuts, stream), "launch");
    must(cuStreamSynchronize(stream), "synchronise");
    __atomic_fetch_add(&page[READY], 1, __ATOMIC_SEQ_CST);
    for (uint32_t command = 0;;) {
        await(OTHER_ANSWER, command);
        while (get(OTHER_COMMAND) == command) usleep(200);
        command = get(OTHER_COMMAND);
        set_word(0); /* what the last command blocked goes on */
        must(cuStreamSynchronize(stream), "synchronise");
        enum situation now = (enum situation)(command & 15);
        if (now == BLOCKED_IN_GRAPH || now == BLOCKED_IN_STREAM) set_word(1);
        if (now == BLOCKED_IN_STREAM) must(cuStreamWaitValue32(stream, page_address, 0, CU_STREAM_WAIT_VALUE_EQ), "wait");
        for (int i = 0; i < 4 && (now == BLOCKED_IN_GRAPH || now == BLOCKED_IN_STREAM); i++)
            must(cuGraphLaunch(now == BLOCKED_IN_GRAPH ? with_cuts : without, stream), "launch");
        usleep(20000); /* the kernels before the first cut have run */
        put(OTHER_ANSWER, command);
        if (now == RUNNING) run_until_next(with_cuts, command);
        if (now == LEAVE) _exit(0);
    }
}

/* Requests of 3 ms that arrive at random, for some seconds; prints their latencies. */
static void requests(CUgraphExec exec, uint32_t turn, const char *beside, double seconds)
{
    static double took[REQUESTS_MOST];
    double begun = now_us(), arrival = begun, sum = 0;
    int count = 0;
    while (count < REQUESTS_MOST) {
        arrival += -1e6 / ARRIVALS_PER_S * log(1 - drand48());
        if (arrival > begun + seconds * 1e6) break;
        while (now_us() + 150 < arrival) usleep(50);
        while (now_us() < arrival) {}
        must(cuGraphLaunch(exec, stream), "launch");
        must(cuStreamSynchronize(stream), "synchronise");
        took[count++] = now_us() - arrival;
    }
    for (int i = 0; i < count; i++) sum += took[i];
    sort(took, count);
    emit("\"turn\": %u, \"beside\": \"%s\", \"requests\": %d, \"p50_us\": %.0f, \"p90_us\": %.0f, \"p99_us\": %.0f, \"most_us\": %.0f, \"mean_us\": %.0f", turn, beside,
         count, quantile(took, count, 0.5), quantile(took, count, 0.9), quantile(took, count, 0.99), quantile(took, count, 1), count ? sum / count : 0);
}

/* The process whose latency counts. Each round has the same arrivals. */
static void be_requested(void)
{
    start();
    struct shape shape = {60, 48, 1, 0, false, 0, 0, 0};
    CUgraphExec exec = exec_of(&shape);
    must(cuGraphLaunch(exec, stream), "launch");
    must(cuStreamSynchronize(stream), "synchronise");
    __atomic_fetch_add(&page[READY], 1, __ATOMIC_SEQ_CST);
    for (uint32_t command = 0;;) {
        while (get(REQUEST_COMMAND) == command) usleep(200);
        command = get(REQUEST_COMMAND);
        enum situation now = (enum situation)(command & 15);
        if (now == LEAVE) _exit(0);
        srand48(7);
        requests(exec, command >> 4, situation_name[now], simulated ? 0.5 : 3.0);
        put(REQUEST_ANSWER, command);
    }
}

static void tell(int command_at, int answer_at, uint32_t command)
{
    put(command_at, command);
    await(answer_at, command);
}

static void time_slices(void)
{
    clear_page();
    pid_t beside = start_process(be_beside), requested = start_process(be_requested);
    await(READY, 2);
    uint32_t number = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (enum situation now = IDLE; now <= RUNNING; now++) {
            progress("round %d, beside %s", round, situation_name[now]);
            uint32_t command = ++number * 16 + now;
            tell(OTHER_COMMAND, OTHER_ANSWER, command);
            tell(REQUEST_COMMAND, REQUEST_ANSWER, command);
        }
    put(OTHER_COMMAND, ++number * 16 + LEAVE);
    put(REQUEST_COMMAND, number * 16 + LEAVE);
    waitpid(beside, NULL, 0);
    waitpid(requested, NULL, 0);
}

#endif
