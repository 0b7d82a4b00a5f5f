/* Measures what moving a kernel to fewer SMs costs, and which work stays on these SMs: hook/src/be/partition.h depends
 * on both. On a machine with an NVIDIA GPU:
 *
 *   gcc -O2 -I/usr/local/cuda/include measurements/probes/partition.c -o /tmp/partition \
 *       -L/usr/local/cuda/lib64/stubs -lcuda && /tmp/partition */
#include "spinning.h"

#define LAUNCHES 2000
#define SPIN_US 20
#define SEEN_WORDS 8 /* one bit for each of up to 256 SMs */

/* A kernel: each block sets the bit of the SM that it runs on, and spins for ns nanoseconds. */
static const char source[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 seen,.param .u64 ns){.reg .u64 %now,%end,%ns,%seen,%at;.reg .u32 %sm,%word,%bit,%one,%old;"
    ".reg .pred %more;ld.param.u64 %seen,[seen];ld.param.u64 %ns,[ns];mov.u32 %sm,%smid;shr.u32 %word,%sm,5;and.b32 %bit,%sm,31;"
    "mov.u32 %one,1;shl.b32 %bit,%one,%bit;mul.wide.u32 %at,%word,4;add.u64 %at,%at,%seen;atom.global.or.b32 %old,[%at],%bit;"
    "mov.u64 %now,%globaltimer;add.u64 %end,%now,%ns;L:mov.u64 %now,%globaltimer;setp.lt.u64 %more,%now,%end;@%more bra L;ret;}\n";

static CUdeviceptr seen;

static void start(void)
{
    load(source);
    must(cuMemAlloc(&seen, 4 * SEEN_WORDS), "memory");
    must(cuMemsetD32(seen, 0, SEEN_WORDS), "memory");
}

static void spin(CUstream stream, unsigned blocks)
{
    uint64_t nanoseconds = SPIN_US * 1000;
    void *parameters[] = {&seen, &nanoseconds};
    must(cuLaunchKernel(spin_kernel, blocks, 1, 1, 256, 1, 1, 0, stream, parameters, NULL), "launch");
}

static int multiprocessors_used(void)
{
    uint32_t words[SEEN_WORDS];
    int count = 0;
    must(cuCtxSynchronize(), "synchronise");
    must(cuMemcpyDtoH(words, seen, sizeof words), "copy");
    must(cuMemsetD32(seen, 0, SEEN_WORDS), "memory");
    for (int i = 0; i < SEEN_WORDS; i++) count += __builtin_popcount(words[i]);
    return count;
}

static CUstream green_stream(unsigned wanted, CUdevResource *part)
{
    CUdevResource all, rest;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    unsigned parts = 1;
    must(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "resource");
    must(cuDevSmResourceSplitByCount(part, &parts, &all, &rest, 0, wanted), "split");
    must(cuDevResourceGenerateDesc(&description, part, 1), "description");
    must(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "green context");
    must(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), "green stream");
    return stream;
}

static CUgraphExec captured(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
    spin(stream, 1024);
    must(cuStreamEndCapture(stream, &graph), "capture");
    must(cuGraphInstantiate(&exec, graph, 0), "graph");
    return exec;
}

/* Makes a green context of at least `wanted` SMs, and prints how many SMs three kinds of work ran on: a kernel in the
 * green stream, a kernel in the plain stream, and a graph of the plain stream that was launched in the green stream. */
static CUstream who_keeps_to(unsigned wanted, CUstream plain)
{
    CUdevResource part;
    size_t free_before, free_after, total;
    must(cuMemGetInfo(&free_before, &total), "memory");
    double begun = now_us();
    CUstream green = green_stream(wanted, &part);
    double made = now_us() - begun;
    must(cuMemGetInfo(&free_after, &total), "memory");
    spin(green, 1024);
    int kernel = multiprocessors_used();
    spin(plain, 1024);
    int beside = multiprocessors_used();
    must(cuGraphLaunch(captured(plain), green), "graph");
    int graph = multiprocessors_used();
    printf("asked for %3u SMs, got %3u in %4.0f us and %zu MiB; ran on: a kernel %3d, one on the plain stream %3d, a graph %3d\n",
           wanted, part.sm.smCount, made, (free_before - free_after) >> 20, kernel, beside, graph);
    return green;
}

enum way { IN_THE_STREAM, FORK_AND_JOIN, ON_THE_GREEN_STREAM };

/* Prints what one launch costs if it stays in the stream `own`, or moves to the SMs of the stream `green`. */
static void cost(enum way way, const char *what, CUstream own, CUstream green)
{
    CUevent before, behind;
    must(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING), "event");
    must(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING), "event");
    must(cuCtxSynchronize(), "synchronise");
    double begun = now_us();
    for (int i = 0; i < LAUNCHES; i++) {
        if (way == FORK_AND_JOIN) cuEventRecord(before, own), cuStreamWaitEvent(green, before, 0);
        spin(way == IN_THE_STREAM ? own : green, 64);
        if (way == FORK_AND_JOIN) cuEventRecord(behind, green), cuStreamWaitEvent(own, behind, 0);
    }
    double launched = now_us();
    must(cuCtxSynchronize(), "synchronise");
    printf("  %-20s %6.2f us of CPU, %6.2f us in all, a launch\n", what, (launched - begun) / LAUNCHES, (now_us() - begun) / LAUNCHES);
}

int main(void)
{
    const unsigned wanted[] = {8, 16, 66, 72, 80, 96, 64};
    int mps = -1;
    CUstream plain, green = NULL;
    start();
    must(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING), "stream");
    cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
    printf("CU_DEVICE_ATTRIBUTE_MPS_ENABLED: %d\n", mps);
    for (unsigned i = 0; i < sizeof wanted / sizeof wanted[0]; i++) green = who_keeps_to(wanted[i], plain);
    printf("a kernel that spins for %d us, %d launches, moved to %u SMs:\n", SPIN_US, LAUNCHES, wanted[6]);
    for (int legacy = 0; legacy < 2; legacy++) {
        CUstream own = legacy ? CU_STREAM_LEGACY : plain;
        puts(legacy ? " from the legacy stream" : " from a stream of its own");
        cost(IN_THE_STREAM, "in the stream", own, green);
        cost(FORK_AND_JOIN, "fork, launch, join", own, green);
        cost(ON_THE_GREEN_STREAM, "on the green stream", own, green);
    }
    return 0;
}
