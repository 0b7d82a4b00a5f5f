/* Measures how long the GPU takes to switch between two processes. Kernels record the GPU's own clock when they begin
 * and end. A scheduler's gate, linger and wake-ups add to this time, so no scheduler can switch faster. On a machine
 * with an NVIDIA GPU:
 *
 *   gcc -O2 -I/usr/local/cuda/include measurements/probes/context_switch.c -o /tmp/context_switch \
 *       -L/usr/local/cuda/lib64/stubs -lcuda -lm
 *   /tmp/context_switch turns 1000 50      two processes alternate, kernels of 50 us
 *   /tmp/context_switch alone 1000 50      one process alternates between its streams: the time without a switch
 *   /tmp/context_switch hp 400 1200 2400   requests of 1200 us, random gaps of 2400 us on average; run it beside:
 *   /tmp/context_switch be 4 50 16         kernels of 50 us for 4 s, at most 16 queued; both with or without the hook
 *
 * Output: one line for each kernel: its begin and end by the GPU's clock, and the time of the launch call, in ns. */
#include "spinning.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 400000
#define WARM_UP 10
#define DEPTH_MOST 1024

static const char source[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns,.param .u64 out){.reg .u64 %begin,%now,%end,%ns,%out;.reg .u32 %b,%t;"
    ".reg .pred %more,%other;ld.param.u64 %ns,[ns];ld.param.u64 %out,[out];mov.u64 %begin,%globaltimer;"
    "add.u64 %end,%begin,%ns;L:mov.u64 %now,%globaltimer;setp.lt.u64 %more,%now,%end;@%more bra L;mov.u32 %b,%ctaid.x;"
    "mov.u32 %t,%tid.x;or.b32 %b,%b,%t;setp.ne.u32 %other,%b,0;@%other bra E;st.global.u64 [%out],%begin;"
    "st.global.u64 [%out+8],%now;E:ret;}\n";

static CUstream streams[2];
static CUdeviceptr times; /* begin and end of each kernel */
static uint64_t *called;
static int launched;

static void start(void)
{
    load(source);
    for (int i = 0; i < 2; i++) must(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "stream");
    must(cuMemAlloc(&times, (size_t)MOST * 16), "memory");
    called = calloc(MOST, sizeof *called);
}

static void launch(double microseconds, CUstream stream)
{
    uint64_t ns = (uint64_t)(microseconds * 1000);
    CUdeviceptr out = times + (size_t)launched * 16;
    void *parameters[] = {&ns, &out};
    called[launched++] = now_ns();
    must(cuLaunchKernel(spin_kernel, 132, 1, 1, 256, 1, 1, 0, stream, parameters, NULL), "launch");
}

static void run(double microseconds, CUstream stream)
{
    launch(microseconds, stream);
    must(cuStreamSynchronize(stream), "synchronise");
}

static void print(const char *who)
{
    uint64_t *time = malloc((size_t)launched * 16);
    must(cuCtxSynchronize(), "synchronise");
    must(cuMemcpyDtoH(time, times, (size_t)launched * 16), "copy");
    for (int i = 0; i < launched; i++)
        printf("%s,%llu,%llu,%llu\n", who, (unsigned long long)time[2 * i], (unsigned long long)time[2 * i + 1],
               (unsigned long long)called[i]);
    free(time);
}

static void hp(int requests, double microseconds, double gap)
{
    srand48(7);
    for (int i = 0; i < WARM_UP; i++) run(microseconds, streams[0]);
    sleep(1);
    for (int i = 0; i < requests; i++) {
        uint64_t arrival = now_ns() + (uint64_t)(-gap * 1000 * log(1 - drand48()));
        while (now_ns() + 100000 < arrival) usleep(20);
        while (now_ns() < arrival) {}
        run(microseconds, streams[0]);
    }
    print("hp");
}

static void be(double seconds, double microseconds, int depth)
{
    CUevent done[DEPTH_MOST];
    if (depth > DEPTH_MOST) depth = DEPTH_MOST;
    for (int i = 0; i < depth; i++) must(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING), "event");
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    for (int i = 0; now_ns() < end && launched < MOST; i++) {
        if (i >= depth) must(cuEventSynchronize(done[i % depth]), "synchronise");
        launch(microseconds, streams[0]);
        must(cuEventRecord(done[i % depth], streams[0]), "record");
    }
    print("be");
}

static void time_sliced(int kernels, double microseconds, int processes)
{
    volatile int *turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int me = 0;
    *turn = -processes; /* negative: the number of processes that are not ready */
    pid_t child = processes == 2 ? fork() : 0;
    if (processes == 2 && child == 0) me = 1;
    start();
    run(microseconds, streams[0]);
    __atomic_fetch_add(turn, 1, __ATOMIC_SEQ_CST);
    while (*turn < 0) usleep(100);
    for (int i = 0; i < kernels; i++) {
        while (*turn % processes != me) {}
        run(microseconds, streams[i % 2]);
        __atomic_fetch_add(turn, 1, __ATOMIC_SEQ_CST);
    }
    print(me == 0 ? "first" : "second");
    if (child > 0) wait(NULL);
}

int main(int count, char **words)
{
    if (count == 4 && strcmp(words[1], "turns") == 0) time_sliced(atoi(words[2]), atof(words[3]), 2);
    else if (count == 4 && strcmp(words[1], "alone") == 0) time_sliced(atoi(words[2]), atof(words[3]), 1);
    else if (count == 5 && strcmp(words[1], "hp") == 0) start(), hp(atoi(words[2]), atof(words[3]), atof(words[4]));
    else if (count == 5 && strcmp(words[1], "be") == 0) start(), be(atof(words[2]), atof(words[3]), atoi(words[4]));
    else return fprintf(stderr, "usage: see the head of measurements/probes/context_switch.c\n"), 2;
    return 0;
}
