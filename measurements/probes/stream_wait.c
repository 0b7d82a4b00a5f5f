/* Measures what it costs a stream to wait on a word in memory, and what a blocked wait costs another process:
 * hook/src/be/valve.h depends on both. On a machine with an NVIDIA GPU:
 *
 *   gcc -O2 -I/usr/local/cuda/include measurements/probes/stream_wait.c -o /tmp/stream_wait \
 *       -L/usr/local/cuda/lib64/stubs -lcuda && /tmp/stream_wait */
#include "blocking.h"

#include <sys/wait.h>

#define KERNELS 500
#define REQUESTS 60

static CUstream stream;

static void start(void)
{
    load(source);
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
}

static double kernels(int with_waits, double *cpu)
{
    double begun = now_us();
    for (int i = 0; i < KERNELS; i++) {
        if (with_waits) await_word(stream);
        spin(stream, 20, 132);
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
        await_word(stream);
        spin(stream, 1, 1);
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
    spin(stream, 5000, 1);
    await_word(stream);
    spin(stream, 1, 1);
    usleep(2000);
    *word = 1;
    usleep(20000);
    printf("a wait behind a running kernel, closed meanwhile: %s\n", cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "holds" : "DOES NOT HOLD");
    *word = 0;
    must(cuStreamSynchronize(stream), "synchronise");
}

static void requests(const char *beside)
{
    double took[REQUESTS];
    make_requests(stream, took, REQUESTS, 3000);
    printf("a request of 4.0 ms beside %s: p50 %.0f p95 %.0f max %.0f us\n", beside, took[REQUESTS / 2], took[REQUESTS * 95 / 100], took[REQUESTS - 1]);
    fflush(stdout);
}

/* -- A request beside a process whose streams are blocked ------------------------------------------------------------- */

/* `waits` streams wait on the word, and `events` streams wait for an event of the first of them. If `behind_word`, they first
 * wait on a second word, which the first stream writes after the event. `behind` says what is behind each wait, a letter for
 * each (see `put`); NULL: 50 kernels. */
struct blocked {
    const char *name;
    int waits, events, behind_word;
    const char *behind;
};
static const struct blocked cases[] = {
    {"an idle process", 0, 0, 0},
    {"a process with a stream blocked in a wait, and 50 kernels behind it", 1, 0, 0},
    {"a process with 4 streams blocked in waits", 4, 0, 0},
    {"a process with a stream blocked in a wait, and one that waits for its event", 1, 1, 0},
    {"a process with a stream blocked in a wait, and 3 that wait for its event", 1, 3, 0},
    {"a process with a stream blocked in a wait, and one that waits for its event behind a word", 1, 1, 1},
    {"a process with a stream blocked in a wait, and 3 that wait for its event behind a word", 1, 3, 1},
    {"a process with a stream blocked in a wait, and nothing behind it", 1, 0, 0, ""},
    {"a process with a stream blocked in a wait, and an event behind it", 1, 0, 0, "e"},
    {"a process with a stream blocked in a wait, and a memset of 4 bytes behind it", 1, 0, 0, "s"},
    {"a process with a stream blocked in a wait, and a memset of one word behind it", 1, 0, 0, "w"},
    {"a process with a stream blocked in a wait, and a memset of 1 MiB behind it", 1, 0, 0, "S"},
    {"a process with a stream blocked in a wait, and a 2D memset behind it", 1, 0, 0, "2"},
    {"a process with a stream blocked in a wait, a memset and a kernel behind it", 1, 0, 0, "sk"},
    {"a process with a stream blocked in a wait, a kernel and a memset behind it", 1, 0, 0, "ks"},
    {"a process with a stream blocked in a wait, a kernel, a memset and a kernel behind it", 1, 0, 0, "ksk"},
    {"a process with a stream blocked in a wait, a memset and an event behind it", 1, 0, 0, "se"},
    {"a process with a stream blocked in a wait, and a copy of 4 bytes in the GPU behind it", 1, 0, 0, "c"},
    {"a process with a stream blocked in a wait, and a copy of 1 MiB in the GPU behind it", 1, 0, 0, "C"},
    {"a process with a stream blocked in a wait, and a copy of 4 bytes to the GPU behind it", 1, 0, 0, "h"},
    {"a process with a stream blocked in a wait, and a copy of 1 MiB to the GPU behind it", 1, 0, 0, "H"},
    {"a process with a stream blocked in a wait, a copy of 1 MiB to the GPU and a kernel behind it", 1, 0, 0, "Hk"},
    {"a process with a stream blocked in a wait, a copy of 4 bytes to the GPU and a kernel behind it", 1, 0, 0, "hk"},
    {"a process with a stream blocked in a wait, and a copy of 4 bytes from the GPU behind it", 1, 0, 0, "d"},
    {"a process with a stream blocked in a wait, and a copy of 1 MiB from the GPU behind it", 1, 0, 0, "D"},
    {"a process with a stream blocked in a wait, a copy of 4 bytes from the GPU and a kernel behind it", 1, 0, 0, "dk"},
    {"a process with a stream blocked in a wait, a kernel, a copy of 1 MiB from the GPU and a kernel behind it", 1, 0, 0, "kDk"},
    {"a process with a stream blocked in a wait, and a write of a word behind it", 1, 0, 0, "v"},
    {"a process with a stream blocked in two waits, and a memset behind them", 1, 0, 0, "as"},
    {"a process with a stream blocked in a wait, a write of a word and a memset behind it", 1, 0, 0, "vs"},
};
#define CASES (int)(sizeof cases / sizeof cases[0])

static CUdeviceptr memory, other;
static void *host;
static CUevent behind;

static void prepare(void)
{
    must(cuMemAlloc(&memory, MIB), "memory");
    must(cuMemAlloc(&other, MIB), "memory");
    must(cuMemAllocHost(&host, MIB), "host memory");
    must(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING), "event");
}

static void put(char letter)
{
    switch (letter) {
    case 'k': spin(stream, 100, 132); break;
    case 'a': await_word(stream); break;
    case 'e': must(cuEventRecord(behind, stream), "record"); break;
    case 'v': must(cuStreamWriteValue32(stream, word_address + 8, 1, CU_STREAM_WRITE_VALUE_DEFAULT), "write"); break;
    case 's': must(cuMemsetD8Async(memory, 0, 4, stream), "memset"); break;
    case 'w': must(cuMemsetD32Async(memory, 0, 1, stream), "memset"); break;
    case 'S': must(cuMemsetD8Async(memory, 0, MIB, stream), "memset"); break;
    case '2': must(cuMemsetD2D8Async(memory, 1024, 0, 16, 16, stream), "memset"); break;
    case 'c': must(cuMemcpyDtoDAsync(other, memory, 4, stream), "copy"); break;
    case 'C': must(cuMemcpyDtoDAsync(other, memory, MIB, stream), "copy"); break;
    case 'h': must(cuMemcpyHtoDAsync(memory, host, 4, stream), "copy"); break;
    case 'H': must(cuMemcpyHtoDAsync(memory, host, MIB, stream), "copy"); break;
    case 'd': must(cuMemcpyDtoHAsync(host, memory, 4, stream), "copy"); break;
    case 'D': must(cuMemcpyDtoHAsync(host, memory, MIB, stream), "copy"); break;
    }
}

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
        if (i >= how->waits && how->behind_word) must(cuStreamWaitValue32(stream, word_address + 4, 1, CU_STREAM_WAIT_VALUE_EQ), "wait");
        if (i < how->waits) await_word(stream);
        else must(cuStreamWaitEvent(stream, event, 0), "wait for the event");
        for (int k = 0; how->behind == NULL && k < 50; k++) spin(stream, 100, 132);
        for (const char *letter = how->behind; letter != NULL && *letter != 0; letter++) put(*letter);
        if (i > 0 || how->behind != NULL) continue;
        must(cuEventRecord(event, stream), "record");
        must(cuStreamWriteValue32(stream, word_address + 4, 1, CU_STREAM_WRITE_VALUE_DEFAULT), "write");
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
    map_word();
    cost_of_an_open_wait();
    from_open_to_done(200);
    from_open_to_done(5000);
    from_open_to_done(50000);
    is_in_order();
    prepare();
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
