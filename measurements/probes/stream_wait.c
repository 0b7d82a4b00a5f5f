/* Measures what it costs a stream to wait on a word in memory, and what a blocked wait costs another process:
 * hook/src/be/valve.h depends on both. On a machine with an NVIDIA GPU:
 *
 *   gcc -O2 -I/usr/local/cuda/include measurements/probes/stream_wait.c -o /tmp/stream_wait \
 *       -L/usr/local/cuda/lib64/stubs -lcuda && /tmp/stream_wait */
#include "spinning.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNELS 500
#define REQUESTS 60

static const char source[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns){.reg .u64 %now,%end,%ns;.reg .pred %more;ld.param.u64 %ns,[ns];"
    "mov.u64 %now,%globaltimer;add.u64 %end,%now,%ns;L:mov.u64 %now,%globaltimer;setp.lt.u64 %more,%now,%end;"
    "@%more bra L;ret;}\n";

static CUstream stream;
static volatile uint32_t *word; /* 0: open, so a wait on the word ends */
static CUdeviceptr address;

static void start(void)
{
    load(source);
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
}

static void spin(uint64_t microseconds, unsigned blocks)
{
    uint64_t nanoseconds = microseconds * 1000;
    void *parameters[] = {&nanoseconds};
    must(cuLaunchKernel(spin_kernel, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, NULL), "launch");
}

static void await_word(void) { must(cuStreamWaitValue32(stream, address, 0, CU_STREAM_WAIT_VALUE_EQ), "wait"); }

static double kernels(int with_waits, double *cpu)
{
    double begun = now_us();
    for (int i = 0; i < KERNELS; i++) {
        if (with_waits) await_word();
        spin(20, 132);
    }
    *cpu = now_us() - begun;
    must(cuStreamSynchronize(stream), "synchronise");
    return now_us() - begun;
}

static void cost_of_an_open_wait(void)
{
    double cpu, cpu_with, without, with;
    kernels(1, &cpu);
    for (int round = 0; round < 5; round++) {
        without = kernels(0, &cpu);
        with = kernels(1, &cpu_with);
        printf("open wait: %.2f us of the stream, %.2f us of CPU\n", (with - without) / KERNELS, (cpu_with - cpu) / KERNELS);
    }
}

static void from_open_to_done(unsigned blocked_us)
{
    CUevent event;
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
    printf("blocked for %u us, then from opening to a 1 us kernel's end, us:", blocked_us);
    for (int i = 0; i < 8; i++) {
        *word = 1;
        await_word();
        spin(1, 1);
        must(cuEventRecord(event, stream), "record");
        usleep(blocked_us);
        double begun = now_us();
        *word = 0;
        while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {}
        printf(" %.1f", now_us() - begun);
    }
    printf("\n");
}

/* The word is closed 2 ms after the start of a kernel of 5 ms. The kernel behind the wait must not run. */
static void is_in_order(void)
{
    *word = 0;
    spin(5000, 1);
    await_word();
    spin(1, 1);
    usleep(2000);
    *word = 1;
    usleep(20000);
    printf("a wait behind a running kernel, closed meanwhile: %s\n", cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "holds" : "DOES NOT HOLD");
    *word = 0;
    must(cuStreamSynchronize(stream), "synchronise");
}

static int by_size(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static void requests(const char *beside)
{
    double took[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        double begun = now_us();
        for (int k = 0; k < 20; k++) spin(200, 132);
        must(cuStreamSynchronize(stream), "synchronise");
        took[i] = now_us() - begun;
        usleep(3000);
    }
    qsort(took, REQUESTS, sizeof took[0], by_size);
    printf("a request of 4.0 ms beside %s: p50 %.0f p95 %.0f max %.0f us\n", beside, took[REQUESTS / 2], took[REQUESTS * 95 / 100], took[REQUESTS - 1]);
    fflush(stdout);
}

/* -- A request beside a process whose streams are blocked ------------------------------------------------------------- */

/* `waits` streams wait on the word, and `events` streams wait for an event of the first of them. If `behind_word`, they first
 * wait on a second word, which the first stream writes after the event. */
struct blocked {
    const char *name;
    int waits, events, behind_word;
};
static const struct blocked cases[] = {
    {"an idle process", 0, 0, 0},
    {"a process with a stream blocked in a wait, and 50 kernels behind it", 1, 0, 0},
    {"a process with 4 streams blocked in waits", 4, 0, 0},
    {"a process with a stream blocked in a wait, and one that waits for its event", 1, 1, 0},
    {"a process with a stream blocked in a wait, and 3 that wait for its event", 1, 3, 0},
    {"a process with a stream blocked in a wait, and one that waits for its event behind a word", 1, 1, 1},
    {"a process with a stream blocked in a wait, and 3 that wait for its event behind a word", 1, 3, 1},
};
#define CASES (int)(sizeof cases / sizeof cases[0])

static void block(const struct blocked *how)
{
    static CUstream streams[8];
    CUevent event;
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
    word[0] = 1;
    word[1] = 0;
    for (int i = 0; i < how->waits + how->events; i++) {
        if (streams[i] == NULL) must(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "stream");
        stream = streams[i];
        if (i >= how->waits && how->behind_word) must(cuStreamWaitValue32(stream, address + 4, 1, CU_STREAM_WAIT_VALUE_EQ), "wait");
        if (i < how->waits) await_word();
        else must(cuStreamWaitEvent(stream, event, 0), "wait for the event");
        for (int k = 0; k < 50; k++) spin(100, 132);
        if (i > 0) continue;
        must(cuEventRecord(event, stream), "record");
        must(cuStreamWriteValue32(stream, address + 4, 1, CU_STREAM_WRITE_VALUE_DEFAULT), "write");
    }
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    volatile int *turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fork() == 0) { /* a second process with its own context */
        start();
        for (int i = 0; i < CASES; i++) {
            while (*turn != 2 * i + 1) usleep(100);
            requests(cases[i].name);
            *turn = 2 * i + 2;
        }
        _exit(0);
    }
    start();
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(cuMemHostRegister((void *)(uintptr_t)word, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP), "register");
    must(cuMemHostGetDevicePointer(&address, (void *)(uintptr_t)word, 0), "address");
    cost_of_an_open_wait();
    from_open_to_done(200);
    from_open_to_done(5000);
    from_open_to_done(50000);
    is_in_order();
    for (int i = 0; i < CASES; i++) {
        block(&cases[i]);
        *turn = 2 * i + 1;
        while (*turn != 2 * i + 2) usleep(100);
        *word = 0;
        must(cuCtxSynchronize(), "synchronise");
    }
    wait(NULL);
    return 0;
}
