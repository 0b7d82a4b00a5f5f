/* hp: requests with pauses between them, and their times. */
#ifndef LONG_KERNELS_REQUESTS_H
#define LONG_KERNELS_REQUESTS_H

#include "beside.h"

#include <math.h>

#define REQUESTS_MOST 200
#define PAUSE_US 6000.0 /* on average, from a request's end to the next one */
#define KERNELS_MOST 32

enum early { PLAIN, EMPTY_FIRST, HELD }; /* what hp launches at a request's begin, beside its copy */
static const char *const early_name[] = {"nothing", "an empty kernel", "a kernel of one block as long as the copy"};

struct form {
    CUgraphExec exec;
    size_t copy; /* bytes that a request copies to the GPU before its graph */
    enum early early;
    uint64_t copy_us;
};

static double took[REQUESTS_MOST], first[REQUESTS_MOST], reacted[REQUESTS_MOST];
static volatile uint64_t *stamps; /* in pinned memory: begin and end of each kernel, the simulated GPU stores none */
static CUdeviceptr stamps_address, target;
static void *input;
static CUstream other_stream;

static int requests_of_run(void) { return simulated ? 5 : 100; }

static void prepare_requests(void)
{
    CUdeviceptr unused;
    stamps = pinned(32u * KERNELS_MOST, &stamps_address);
    input = pinned(64u << 20, &unused);
    must(cuMemAlloc(&target, 64u << 20), "memory");
    must(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING), "stream");
}

static void pause_between(double mean_us)
{
    double until = now_us() - mean_us * log(1 - drand48());
    while (now_us() + 150 < until) usleep(50);
    while (now_us() < until) {}
}

static void launch_early(const struct form *form)
{
    struct kernel kernel = {form->early == HELD ? form->copy_us : 0, 0, 0};
    void *parameters[3];
    call_of(&kernel, parameters, 1);
    must(cuLaunchKernel(spin_kernel, 1, 1, 1, 32, 1, 1, 0, other_stream, parameters, NULL), "launch");
}

/* Makes request `at`. *first: the time until a kernel of its graph has begun. */
static void make_request(const struct form *form, int at)
{
    stamps[0] = 0;
    double begun = now_us();
    put(HP_BUSY, 1);
    if (form->early != PLAIN) launch_early(form);
    if (form->copy) must(cuMemcpyHtoDAsync(target, input, form->copy, stream), "copy");
    must(cuGraphLaunch(form->exec, stream), "launch");
    while (!stamps[0] && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {}
    first[at] = now_us() - begun;
    must(cuStreamSynchronize(stream), "synchronise");
    took[at] = now_us() - begun;
    put(HP_BUSY, 0);
    reacted[at] = get(BE_REACTION_US);
}

static int print_list(char *text, size_t size, const char *name, const double *values, int count)
{
    int used = snprintf(text, size, ", \"%s\": [", name);
    for (int i = 0; i < count; i++) used += snprintf(text + used, size - (size_t)used, "%s%.0f", i ? ", " : "", values[i]);
    return used + snprintf(text + used, size - (size_t)used, "]");
}

static double median_of(const double *values, int count)
{
    static double sorted[REQUESTS_MOST];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    sort(sorted, count);
    return quantile(sorted, count, 0.5);
}

/* A run: requests beside be in this situation; prints a line that begins with `fields`. Returns the median time. */
static double run_requests(const struct form *form, struct situation beside, const char *fields)
{
    static char lists[8192];
    int count = requests_of_run(), used = 0;
    srand48(7);
    situate(beside);
    usleep(simulated ? 2000 : 50000);
    uint32_t done = get(BE_DONE);
    double begun = now_us(), spent = 0;
    for (int i = 0; i < count; i++) {
        pause_between(simulated ? 500 : PAUSE_US);
        make_request(form, i);
        spent += took[i];
    }
    double seconds = (now_us() - begun) / 1e6;
    uint32_t kernels = get(BE_DONE) - done, status = get(BE_REACTION_STATUS);
    used += print_list(lists, sizeof lists, "took_us", took, count);
    used += print_list(lists + used, sizeof lists - (size_t)used, "first_us", first, count);
    if (beside.reaction) print_list(lists + used, sizeof lists - (size_t)used, "reaction_us", reacted, count);
    emit("%s, \"be_us\": %u, \"gated\": %s, \"requests\": %d, \"seconds\": %.3f, \"mean_us\": %.0f, \"p50_us\": %.0f, \"first_p50_us\": %.0f, "
         "\"be_kernels\": %u, \"reaction_status\": %u%s",
         fields, beside.work ? beside.us : 0, beside.gated ? "true" : "false", count, seconds, spent / count, median_of(took, count),
         median_of(first, count), kernels, status, lists);
    return median_of(took, count);
}

static CUgraphExec graph_of_kernels(int kernels, int us)
{
    struct shape shape = {kernels, us, 1, 0, false, 0, stamps_address, 0};
    return exec_of(&shape);
}

#endif
