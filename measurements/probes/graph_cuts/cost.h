/* A: what open waits cost inside a graph. C: how fast a word opens and closes a graph. D: the same for several
 * executables with waits of the stream between them. */
#ifndef GRAPH_CUTS_COST_H
#define GRAPH_CUTS_COST_H

#include "base.h"

#define TURNS 5
#define OPENINGS 12
#define QUIET_US 3000.0 /* so long without progress: the graph has stopped */

static int launches_for(const struct shape *shape)
{
    double one = (double)shape->kernels / shape->branches * (shape->us + 2);
    int count = (int)(20000 / one);
    return count < 2 ? 2 : count > 40 ? 40 : count;
}

static void compare(const struct shape *cut, const char *memory)
{
    struct shape plain = *cut;
    plain.cuts = 0;
    CUgraphExec without = exec_of(&plain), with = exec_of(cut);
    double added[TURNS], base[TURNS], cpu_added[TURNS], cpu, cpu_with;
    int count = launches_for(cut);
    timed(with, 1, &cpu);
    timed(without, 1, &cpu);
    for (int turn = 0; turn < TURNS; turn++) {
        base[turn] = timed(without, count, &cpu);
        added[turn] = timed(with, count, &cpu_with) - base[turn];
        cpu_added[turn] = cpu_with - cpu;
    }
    sort(added, TURNS), sort(base, TURNS), sort(cpu_added, TURNS);
    int waits = cut->cuts * (cut->joined ? 1 : cut->branches);
    emit("\"kernels\": %d, \"us\": %d, \"branches\": %d, \"joined\": %s, \"cuts\": %d, \"waits\": %d, \"memory\": \"%s\", "
         "\"flags\": %u, \"graph_us\": %.2f, \"added_us\": %.2f, \"added_us_least\": %.2f, \"added_us_most\": %.2f, "
         "\"us_for_each_cut\": %.3f, \"launch_cpu_added_us\": %.2f",
         cut->kernels, cut->us, cut->branches, cut->joined ? "true" : "false", cut->cuts, waits, memory, cut->flags,
         base[TURNS / 2], added[TURNS / 2], added[0], added[TURNS - 1], added[TURNS / 2] / cut->cuts, cpu_added[TURNS / 2]);
    must(cuGraphExecDestroy(with), "destroy");
    must(cuGraphExecDestroy(without), "destroy");
}

static void cost_of_open_waits(void)
{
    static const int kernels[] = {50, 200, 1000}, durations[] = {5, 20, 150};
    CUdeviceptr on_device, pinned_word;
    must(cuMemAlloc(&on_device, 64), "memory");
    must(cuMemsetD32(on_device, 0, 16), "memory");
    pinned(4096, &pinned_word);
    struct { CUdeviceptr word; const char *name; } memories[] = {
        {page_address, "file mapping"}, {pinned_word, "pinned"}, {on_device, "device"}};
    for (int n = 0; n < 3; n++)
        for (int d = 0; d < 3; d++)
            for (int form = 0; form < 3; form++) /* a chain; 4 branches with a wait in each; 4 branches, joined */
                for (int c = 0; c < 4; c++) {
                    struct shape cut = {kernels[n], durations[d], form ? 4 : 1, 0, form == 2, page_address, 0, CU_STREAM_WAIT_VALUE_EQ};
                    const int cuts[] = {1, 4, 16, kernels[n] / 4};
                    cut.cuts = cuts[c] / (form && c == 3 ? 4 : 1);
                    if (cut.cuts >= cut.kernels / cut.branches || (kernels[n] == 1000 && durations[d] == 150 && (form || c % 3 == 2)))
                        continue;
                    progress("%d kernels of %d us, %d branches, %d cuts", cut.kernels, cut.us, cut.branches, cut.cuts);
                    for (int m = 0; m < (kernels[n] == 200 && !form ? 3 : 1); m++) {
                        cut.word = memories[m].word;
                        compare(&cut, memories[m].name);
                    }
                }
    static const unsigned flags[] = {CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WAIT_VALUE_EQ, CU_STREAM_WAIT_VALUE_NOR};
    for (int f = 0; f < 3; f++) {
        struct shape cut = {200, 20, 1, 16, false, page_address, 0, flags[f]};
        compare(&cut, "file mapping");
    }
}

/* -- C: opening and closing ------------------------------------------------------------------------------------------ */

static volatile uint64_t *stamps; /* begin and end of each kernel, in pinned memory */
static CUdeviceptr stamps_address;

static void clear_stamps(int kernels) { memset((void *)(uintptr_t)stamps, 0, 16u * (unsigned)kernels); }

/* Returns when kernel `at` has begun. The simulated GPU stores nothing, so the end of all work counts there. */
static double begin_of(int at)
{
    while (!stamps[2 * at] && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {}
    return now_us();
}

static void print_delays(const char *what, const char *way, int us, int blocked_us, double *delays, int count)
{
    sort(delays, count);
    emit("\"what\": \"%s\", \"way\": \"%s\", \"us\": %d, \"blocked_us\": %d, \"p50_us\": %.1f, \"least_us\": %.1f, \"most_us\": %.1f",
         what, way, us, blocked_us, quantile(delays, count, 0.5), delays[0], delays[count - 1]);
}

/* From the store that opens the word to the begin of the kernel behind the wait, as a CPU sees it. The wait is a node in
 * the middle of the graph, or a wait of the stream before the graph. */
static void opening(int blocked_us, bool in_graph)
{
    double delays[OPENINGS];
    struct shape shape = {in_graph ? 8 : 4, 20, 1, in_graph ? 1 : 0, false, page_address, stamps_address, CU_STREAM_WAIT_VALUE_EQ};
    int behind = in_graph ? 4 : 0;
    CUgraphExec exec = exec_of(&shape);
    for (int i = 0; i < OPENINGS; i++) {
        clear_stamps(shape.kernels);
        set_word(1);
        if (!in_graph) must(cuStreamWaitValue32(stream, page_address, 0, CU_STREAM_WAIT_VALUE_EQ), "wait");
        must(cuGraphLaunch(exec, stream), "launch");
        usleep((unsigned)blocked_us);
        if (stamps[2 * behind]) emit("\"what\": \"a kernel ran behind a closed word\"");
        double opened = now_us();
        set_word(0);
        delays[i] = begin_of(behind) - opened;
        must(cuStreamSynchronize(stream), "synchronise");
    }
    print_delays("opening", in_graph ? "node in the graph" : "wait of the stream", shape.us, blocked_us, delays, OPENINGS);
    must(cuGraphExecDestroy(exec), "destroy");
}

/* Closes the word in the middle of a graph. Returns the time from then to the last end of a kernel; *ran: kernels that
 * began after the store. */
static double closing_once(CUgraphExec exec, int kernels, double after_us, int *ran)
{
    clear_stamps(kernels);
    set_word(0);
    must(cuGraphLaunch(exec, stream), "launch");
    double begun = now_us(), closed = 0, changed = 0;
    int at = 0, at_closing = 0;
    for (;;) {
        double now = now_us();
        while (at < kernels && stamps[2 * at + 1]) at++, changed = now;
        if (!closed && now - begun > after_us) {
            set_word(1);
            closed = changed = now_us();
            at_closing = at;
        }
        if (closed && now - changed > QUIET_US) break;
    }
    *ran = at - at_closing;
    bool done = at == kernels;
    set_word(0);
    must(cuStreamSynchronize(stream), "synchronise");
    return done && !simulated ? -1 : changed - closed;
}

static void closing(int us, int every)
{
    double delays[OPENINGS];
    int count = 0, ran = 0, most_ran = 0, kernels = 400;
    struct shape shape = {kernels, us, 1, kernels / every - 1, false, page_address, stamps_address, CU_STREAM_WAIT_VALUE_EQ};
    CUgraphExec exec = exec_of(&shape);
    for (int i = 0; i < OPENINGS; i++) {
        double delay = closing_once(exec, kernels, kernels * us * (0.2 + 0.05 * i), &ran);
        if (delay >= 0) delays[count++] = delay;
        if (ran > most_ran) most_ran = ran;
    }
    char way[64];
    snprintf(way, sizeof way, "a cut every %d kernels, at most %d more ran", every, most_ran);
    if (count) print_delays("closing", way, us, 0, delays, count);
    must(cuGraphExecDestroy(exec), "destroy");
}

static void opening_and_closing(void)
{
    stamps = pinned(16u * NODES_MOST, &stamps_address);
    static const int blocked[] = {200, 5000, 50000}, durations[] = {5, 20, 150};
    for (int b = 0; b < 3; b++) {
        progress("opening after %d us", blocked[b]);
        opening(blocked[b], true);
        opening(blocked[b], false);
    }
    for (int d = 0; d < 3; d++) {
        progress("closing, kernels of %d us", durations[d]);
        closing(durations[d], 4);
        closing(durations[d], 16);
    }
}

/* -- D: several executables ------------------------------------------------------------------------------------------ */

/* One launch of all pieces; returns the GPU's microseconds, *cpu those of the calls. */
static double timed_pieces(CUgraphExec *pieces, int count, bool waits, int repeats, double *cpu)
{
    static CUevent begin, end;
    float milliseconds;
    if (!begin) must(cuEventCreate(&begin, 0), "event"), must(cuEventCreate(&end, 0), "event");
    must(cuEventRecord(begin, stream), "record");
    double begun = now_us();
    for (int i = 0; i < repeats; i++)
        for (int p = 0; p < count; p++) {
            if (waits && p) must(cuStreamWaitValue32(stream, page_address, 0, CU_STREAM_WAIT_VALUE_EQ), "wait");
            must(cuGraphLaunch(pieces[p], stream), "launch");
        }
    *cpu = (now_us() - begun) / repeats;
    must(cuEventRecord(end, stream), "record");
    must(cuEventSynchronize(end), "synchronise");
    must(cuEventElapsedTime(&milliseconds, begin, end), "elapsed");
    return milliseconds * 1000.0 / repeats;
}

static void in_pieces(int kernels, int us, int count)
{
    CUgraphExec *pieces = calloc((size_t)count, sizeof *pieces);
    struct shape whole = {kernels, us, 1, 0, false, 0, 0, 0}, part = whole;
    double gpu[3][TURNS], calls[3][TURNS];
    int launched = 0; /* kernels of all pieces: as many as the whole graph has */
    CUgraphExec one = exec_of(&whole);
    double begun = now_us();
    for (int p = 0; p < count; p++, launched += part.kernels) {
        part.kernels = kernels * (p + 1) / count - kernels * p / count;
        pieces[p] = exec_of(&part);
    }
    double made = now_us() - begun, cpu;
    timed_pieces(pieces, count, true, 1, &cpu);
    timed(one, 1, &cpu);
    int repeats = launches_for(&whole);
    for (int turn = 0; turn < TURNS; turn++) {
        gpu[0][turn] = timed(one, repeats, &calls[0][turn]);
        gpu[1][turn] = timed_pieces(pieces, count, false, repeats, &calls[1][turn]);
        gpu[2][turn] = timed_pieces(pieces, count, true, repeats, &calls[2][turn]);
    }
    for (int i = 0; i < 3; i++) sort(gpu[i], TURNS), sort(calls[i], TURNS);
    emit("\"kernels\": %d, \"kernels_in_pieces\": %d, \"us\": %d, \"pieces\": %d, \"made_us\": %.0f, \"whole_us\": %.2f, \"pieces_us\": %.2f, "
         "\"pieces_with_waits_us\": %.2f, \"whole_cpu_us\": %.2f, \"pieces_cpu_us\": %.2f, \"pieces_with_waits_cpu_us\": %.2f, "
         "\"gpu_us_for_each_cut\": %.3f, \"cpu_us_for_each_cut\": %.3f",
         kernels, launched, us, count, made, gpu[0][TURNS / 2], gpu[1][TURNS / 2], gpu[2][TURNS / 2], calls[0][TURNS / 2], calls[1][TURNS / 2],
         calls[2][TURNS / 2], (gpu[2][TURNS / 2] - gpu[0][TURNS / 2]) / (count > 1 ? count - 1 : 1),
         (calls[2][TURNS / 2] - calls[0][TURNS / 2]) / (count > 1 ? count - 1 : 1));
    for (int p = 0; p < count; p++) must(cuGraphExecDestroy(pieces[p]), "destroy");
    must(cuGraphExecDestroy(one), "destroy");
    free(pieces);
}

static void several_executables(void)
{
    static const int counts[] = {1, 2, 5, 17, 50}, durations[] = {5, 20, 150};
    for (int d = 0; d < (simulated ? 1 : 3); d++)
        for (int c = 0; c < 5; c++) {
            progress("kernels of %d us in %d pieces", durations[d], counts[c]);
            in_pieces(200, durations[d], counts[c]);
        }
    in_pieces(1000, 20, 63);
}

#endif
