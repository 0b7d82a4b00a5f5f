/* C: the clock of hp's kernels beside work that draws much power, and beside the same work on fewer SMs. */
#ifndef LONG_KERNELS_CLOCKS_H
#define LONG_KERNELS_CLOCKS_H

#include "slices.h"

#define TICKS 10
#define TICK_CYCLES 400000 /* about 0.2 ms */
#define SLOWER 1.02        /* the criterion: with less than this, power is not what slows hp down */

struct tick { uint64_t begin, end, cycles; };
static CUdeviceptr ticks;
static struct tick tick[REQUESTS_MOST][TICKS];

static CUgraphExec graph_of_ticks(void)
{
    CUgraph graph;
    CUgraphNode last = NULL;
    must(cuMemAlloc(&ticks, sizeof tick[0]), "memory");
    must(cuGraphCreate(&graph, 0), "graph");
    for (int i = 0; i < TICKS; i++) {
        uint64_t cycles = TICK_CYCLES, out = ticks + (unsigned)i * sizeof(struct tick), us = 200;
        void *parameters[] = {&cycles, &out, &us};
        CUgraphNode node;
        CUDA_KERNEL_NODE_PARAMS call = {.func = tick_kernel, .gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1, .blockDimX = THREADS,
                                        .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters};
        must(cuGraphAddKernelNode(&node, graph, &last, last ? 1 : 0, &call), "kernel node");
        last = node;
    }
    return instantiate(graph);
}

static double mhz_of(const struct tick *one)
{
    return one->end > one->begin ? (double)one->cycles * 1e3 / (double)(one->end - one->begin) : 0;
}

/* The requests of a run. Returns the median time that a request's kernels took together. */
static double run_ticks(CUgraphExec exec, const char *fields)
{
    static char lists[8192];
    double work[REQUESTS_MOST], of_kernel[TICKS], one[REQUESTS_MOST];
    int count = requests_of_run(), used = 0;
    usleep(simulated ? 2000 : 1000000); /* the GPU gets as warm as it will be */
    uint32_t done = get(BE_DONE);
    double begun = now_us();
    srand48(7);
    for (int i = 0; i < count; i++) {
        pause_between(simulated ? 500 : PAUSE_US);
        double began = now_us();
        put(HP_BUSY, 1);
        must(cuGraphLaunch(exec, stream), "launch");
        must(cuStreamSynchronize(stream), "synchronise");
        took[i] = now_us() - began;
        put(HP_BUSY, 0);
        must(cuMemcpyDtoH(tick[i], ticks, sizeof tick[0]), "copy");
        work[i] = 0;
        for (int k = 0; k < TICKS; k++) work[i] += (double)(tick[i][k].end - tick[i][k].begin) / 1e3;
    }
    double seconds = (now_us() - begun) / 1e6;
    for (int k = 0; k < TICKS; k++) {
        for (int i = 0; i < count; i++) one[i] = mhz_of(&tick[i][k]);
        of_kernel[k] = median_of(one, count);
    }
    used += print_list(lists, sizeof lists, "took_us", took, count);
    used += print_list(lists + used, sizeof lists - (size_t)used, "work_us", work, count);
    print_list(lists + used, sizeof lists - (size_t)used, "mhz_of_kernel", of_kernel, TICKS);
    emit("%s, \"requests\": %d, \"seconds\": %.3f, \"p50_us\": %.0f, \"work_p50_us\": %.0f, \"be_kernels\": %u%s", fields, count, seconds,
         median_of(took, count), median_of(work, count), get(BE_DONE) - done, lists);
    return median_of(work, count);
}

static double beside_load(CUgraphExec exec, int round, struct situation beside)
{
    char fields[160];
    snprintf(fields, sizeof fields, "\"round\": %d, \"be\": \"%s\", \"be_us\": %u, \"gated\": %s, \"sms\": %u", round,
             beside.work == MULTIPLYING ? "tensor cores" : beside.work ? "spinning" : "nothing", beside.us, beside.gated ? "true" : "false",
             beside.sms);
    progress("%s", fields);
    situate(beside);
    return run_ticks(exec, fields);
}

/* Runs a program beside hp, such as GEMM of a library, that prints a line when it is ready. It knows no gate. */
static void beside_program(CUgraphExec exec, const char *program)
{
    int ends[2];
    char line[256] = "";
    if (!program || pipe(ends)) return;
    situate((struct situation){.work = NOTHING});
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execl("/bin/sh", "sh", "-c", program, NULL);
        _exit(127);
    }
    close(ends[1]);
    progress("waits for %s", program);
    ssize_t got = read(ends[0], line, sizeof line - 1);
    if (got > 0) run_ticks(exec, "\"round\": 0, \"be\": \"the given program\", \"be_us\": 0, \"gated\": false, \"sms\": 0");
    else emit("\"what\": \"the given program did not start\"");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
}

static void clocks(void)
{
    static const uint32_t fewer[] = {112, 96, 64};
    const struct situation nothing = {.work = NOTHING}, gated = {MULTIPLYING, 1600, 1, 0, NO_REACTION, 0};
    pid_t be = start_be();
    load_heavy();
    CUgraphExec exec = graph_of_ticks();
    double worst = 0;
    for (int round = 0; round < 2; round++) {
        double alone = beside_load(exec, round, nothing);
        beside_load(exec, round, (struct situation){SPINNING, 1600, 1, 0, NO_REACTION, 0});
        beside_load(exec, round, (struct situation){MULTIPLYING, 1600, 0, 0, NO_REACTION, 0});
        double beside = beside_load(exec, round, gated), slower = alone > 0 ? beside / alone : 0;
        worst = slower > worst ? slower : worst;
    }
    emit("\"what\": \"criterion\", \"work_beside_gated_load\": %.4f, \"goes_on\": %s", worst, worst >= SLOWER ? "true" : "false");
    for (int i = 0; i < 3 && (worst >= SLOWER || simulated); i++) {
        struct situation part = gated;
        part.sms = fewer[i];
        beside_load(exec, 0, part);
    }
    beside_program(exec, getenv("LONG_KERNELS_PROGRAM"));
    end_be(be);
}

#endif
