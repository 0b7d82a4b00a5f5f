/* A CUDA program that executes commands: one command per line of standard input, one answer per line of standard
 * output. It has no Orion code; tests run it with and without the hook. Answers: "ok NAME BEGAN ENDED RESULT [MORE...]".
 * The times are CLOCK_MONOTONIC nanoseconds around the command. RESULT is a CUDA result unless the list says otherwise.
 * STREAM is 0 (legacy), 1 or 2 (non-blocking), 3 (the thread's default stream). Kernels use every SM on the legacy
 * stream and fewer than half on other streams, so that kernels on two of these streams run at the same time.
 *
 *   init DEVICE            cuInit, primary context, module, streams; later commands use this device
 *   open DEVICE            cuInit and the primary context alone; -1: cuInit alone
 *   use DEVICE             later commands use this initialised device
 *   launch N US [STREAM [LIKE]]  N kernels of US microseconds, with the grid of kernels of LIKE microseconds
 *   cooperate N US STREAM [EX]   N cooperative launches of the kernel; EX: by cuLaunchKernelEx
 *   graphs N US K          N launches of a graph of K kernels of US on stream 1
 *   run N US [STREAM [LIKE]]     as `launch`, then cuStreamSynchronize
 *   sync [STREAM]          cuStreamSynchronize
 *   ctxsync                cuCtxSynchronize
 *   event [STREAM]         cuEventRecord, cuEventSynchronize
 *   follow STREAM OTHER    cuEventRecord on STREAM, cuStreamWaitEvent on OTHER
 *   hosts N [STREAM]       N host functions that do nothing
 *   query [STREAM]         cuStreamQuery until the result is not CUDA_ERROR_NOT_READY
 *   equery [STREAM]        cuEventRecord, cuEventQuery until the result is not CUDA_ERROR_NOT_READY
 *   kernels N              loads the kernel N more times
 *   code WAY               0 loads the kernel again; 1 the first launch of one that `kernels` has loaded, 100 us on stream 1;
 *                          2 cuCtxSetLimit for the stack; 3 loads it as a library, and launches it
 *   future [WAY]           looks up a function of a newer driver by cuGetProcAddress, or by dlsym if WAY is 1; calls it
 *   loop SECONDS US K      closed loop: K kernels of US, synchronise; RESULT: iterations; MORE: CPU seconds
 *   pausing SECONDS US P   closed loop: a kernel of US, synchronise, sleep for P us; RESULT: iterations
 *   stamps SECONDS US      closed loop of single kernels; RESULT: launches; MORE: start and synchronise of each
 *   flood SECONDS US       closed loop without any synchronise; RESULT: launches
 *   timings N US           N times: a kernel spins until the host has launched one of US behind it; then waits for both.
 *                          MORE: nanoseconds that each took
 *   serve N US GAP_US K    N requests every GAP_US, each K kernels of US and a synchronise; RESULT: N; MORE:
 *                          latency of each from its scheduled arrival, nanoseconds
 *   threads N SECONDS US   N threads, each launches and synchronises at random on its own stream; RESULT: launches
 *   streams N US           N times: a stream is created, launched on, destroyed
 *   crowd N                creates and keeps N streams, numbered from 4 on, each with one short kernel
 *   endings N US           N times: a thread launches on its default stream, records an event and ends; then stream 2 waits and launches
 *   reset                  cuDevicePrimaryCtxReset with work under way, then init again
 *   retain SECONDS US      keeps retaining and releasing the primary context while a thread launches; RESULT: launches
 *   context US [BYTES [WAY]]     creates another context, launches on it, allocates in it, destroys it
 *   green N US OTHER       makes a green context current and launches on its default stream; OTHER is 1: makes it
 *                          current to another thread, and launches on one of its streams; 2: launches there
 *   meet N US STREAM BLOCKS      N kernels of BLOCKS blocks that all wait for each other; two of them fit on an SM
 *   meetclusters, meetgraph      the same, in clusters of two blocks, or as one graph, which it waits for
 *   make KIND K US [BRANCHES]    makes a graph of K kernels of US; KIND and the other nodes: see graphs.h
 *   play N [STREAMS [CHANGE]]    N launches of it, in turn on STREAMS streams; STREAMS below 0: waits for each;
 *                          CHANGE: 1 the graph, and an update; 2, 3 the executable; 4 an update by another graph;
 *                          5 an update that is refused; 6 switches every second kernel off
 *   written                ctxsync; RESULT; MORE: a word that copies set, one that writes set, what the kernels wrote
 *   own                    RESULT: how often the driver has launched the program's executable
 *   unmake WHAT            destroys, while it may run, 1 the executable, 2 the graph, 3 both
 *   mute ON                graphs that are made later write nothing, so that nothing pauses between their kernels
 *   touch GIB              makes this much host memory resident
 *   moveroot               sets ORION_ROOT to a folder that does not exist
 *   alloc BYTES [WAY]      allocates memory by cuMemAlloc, or by WAY: see allocations.c
 *   pinlast VALUE          what a program does before a device pins the last allocation: sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
 *   copyin BYTES [WAY]     a blocking copy from pageable memory; WAY: 0 cuMemcpyHtoD, 1 cuMemcpy, 2 cuMemcpy2D;
 *                          MORE: CPU seconds of the calling thread. 3: cuMemcpyHtoD alone, 4: behind work that waits for its return
 *   keep BYTES [POOL]      the release threshold of a pool: 0 the device's default pool, 1 one that the program creates
 *   take BYTES [POOL]      allocates from the pool by cuMemAllocFromPoolAsync, or from the device's by cuMemAllocAsync
 *   give                   cuMemFreeAsync of what `take` allocated last and has not been freed
 *   trim BYTES [POOL]      cuMemPoolTrimTo
 *   held [POOL]            RESULT: bytes that the pool holds of the driver
 *   endpool                cuMemPoolDestroy of pool 1
 *   allocgraph BYTES [WAY]  makes a graph that allocates, sets and frees; WAY: 0 by nodes, 1 by a capture
 *   rungraph, upgraph      launches or uploads it, and waits
 *   graphsheld             RESULT: bytes that graphs hold of the driver
 *   info                   cuMemGetInfo; RESULT: total bytes
 *   inform DEVICE          asks all that needs no context of the device, but not its total memory
 *   unstopped CALL         0: makes what the others need; to 12: one of the calls that the driver does not stop (unstopped.c); 13: an exit
 *                          handler makes one; 14: launches behind a host function that 15 lets end, which first records an event
 *   fork SECONDS           forks a child that sleeps; RESULT: its process id
 *   forklaunch             forks a child that tries to launch; RESULT: the child's CUDA result
 *   spawn                  fork and exec of this program; the child uses the device; RESULT: its exit status
 *   exec                   exec of this program, in this process
 *   dlclose                dlopen of the driver, a look-up, dlclose
 *   closefds               closes every descriptor from 3 on
 *   usefds N               lowers the limit of descriptors to N, and opens files until none is free; RESULT: how many
 *   exit, _exit            ends the process, with or without exit handlers
 *   threadexit WAY         the same in another thread: 0 exit, 1 _exit
 *   atexit CALL            an exit handler calls 0 cuMemFree, 1 cuLaunchKernel, 2 cuStreamSynchronize, 3 cuMemAlloc, 4 cuMemcpyDtoH */
#include "scripted.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SHOWN 60000

static unsigned long long shown[SHOWN]; /* MORE */
static unsigned shown_count;
static double shown_cpu = -1;

uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void sleep_until(uint64_t when)
{
    struct timespec time = {.tv_sec = (time_t)(when / 1000000000u), .tv_nsec = (long)(when % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) {}
}

void show(uint64_t number)
{
    if (shown_count < SHOWN) shown[shown_count++] = number;
}
unsigned shown_so_far(void) { return shown_count; }
void show_cpu(double seconds) { shown_cpu = seconds; }

static const struct {
    const char *name;
    command *obey;
} commands[] = {
    {"open", open_only},
    {"init", initialise},
    {"use", use},
    {"launch", launches},
    {"cooperate", cooperate},
    {"graphs", graphs},
    {"run", run},
    {"sync", synchronise},
    {"ctxsync", synchronise_context},
    {"event", synchronise_event},
    {"follow", follow},
    {"hosts", host_functions},
    {"query", query},
    {"equery", query_event},
    {"kernels", load_kernels},
    {"code", call_for_code},
    {"future", future},
    {"loop", loop},
    {"pausing", pausing},
    {"stamps", stamps},
    {"flood", flood},
    {"timings", timings},
    {"serve", serve},
    {"threads", threads},
    {"handshake", handshake},
    {"streams", streams},
    {"crowd", crowd},
    {"endings", threads_that_end},
    {"reset", reset},
    {"retain", retain},
    {"context", another_context},
    {"green", in_green_context},
    {"meet", meet},
    {"meetclusters", meet_in_clusters},
    {"meetgraph", meet_in_graph},
    {"make", make_graph},
    {"play", play},
    {"written", written},
    {"own", own_launches},
    {"unmake", unmake},
    {"mute", mute},
    {"keep", pool_keeps},
    {"take", pool_takes},
    {"give", pool_gives},
    {"trim", pool_trims},
    {"held", pool_holds},
    {"endpool", pool_ends},
    {"allocgraph", graph_of_allocation},
    {"rungraph", graph_runs},
    {"upgraph", graph_uploads},
    {"graphsheld", graphs_hold},
    {"touch", touch},
    {"alloc", allocate},
    {"many", allocate_many},
    {"ismanaged", is_managed},
    {"sharelast", share_last},
    {"pinlast", pin_last},
    {"asklast", ask_last},
    {"freelast", free_last},
    {"unmap", unmap},
    {"copyin", copy_in},
    {"info", information},
    {"total", total_memory},
    {"inform", inform},
    {"churn", churn},
    {"room", room},
    {"unstopped", unstopped},
    {"moveroot", move_root},
    {"fork", forks},
    {"forklaunch", fork_and_launch},
    {"spawn", spawn},
    {"exec", replace},
    {"dlclose", open_and_close},
    {"closefds", close_descriptors},
    {"usefds", use_descriptors},
    {"exit", leave},
    {"_exit", leave_at_once},
    {"threadexit", exit_in_thread},
    {"atexit", at_exit},
};

static double obey(const char *name, const struct arguments *at)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(name, commands[i].name)) return commands[i].obey(at);
    return -1;
}

int main(void)
{
    char line[256], name[32];
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct arguments at = {0};
        if (sscanf(line, "%31s %lf %lf %lf %lf", name, &at.a, &at.b, &at.c, &at.d) < 1) continue;
        shown_count = 0;
        shown_cpu = -1;
        uint64_t began = now();
        double answer = obey(name, &at);
        printf("ok %s %llu %llu %.0f", name, (unsigned long long)began, (unsigned long long)now(), answer);
        if (shown_cpu >= 0) printf(" %.6f", shown_cpu);
        for (unsigned i = 0; i < shown_count; i++) printf(" %llu", shown[i]);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
