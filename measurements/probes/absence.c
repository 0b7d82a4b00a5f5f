/* Which calls of the driver wait, answer, fail or crash while their process has left the GPU's memory (hook/src/process/absence.h).
 * Each call has a process of its own, which checkpoints itself, makes the call in another thread, and comes back. On a machine with an
 * NVIDIA GPU, without Orion; it takes about two minutes:
 *
 *   gcc -O1 -w -I/usr/local/cuda/include measurements/probes/absence.c -o /tmp/absence -L/usr/local/cuda/lib64/stubs -lcuda
 *   /tmp/absence
 *
 * A line of output has the call, how it ended while the process was away, and its result once the process was back. */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT_ONCE 6
#define SECONDS 30     /* for one process */
#define AWAY_STEPS 60  /* of 10 ms: a call that has not ended then waits */
#define BACK_STEPS 300 /* of 10 ms */

static const char code[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry stores(.param .u64 place) { .reg .u64 a; .reg .u32 b; ld.param.u64 a, [place]; mov.u32 b, 7; st.global.u32 [a], b; ret; }\n";

static struct {
    CUdevice device;
    CUcontext context, other_context;
    CUstream stream, other_stream;
    CUevent event, timed, timed_later, blocking_event, new_event;
    CUmodule module;
    CUfunction function;
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr memory, of_pool, range;
    CUmemoryPool pool, other_pool;
    CUmemPoolProps pool_kind;
    CUmemAllocationProp physical_kind;
    CUmemGenericAllocationHandle physical;
    CUmemAccessDesc access;
    CUDA_ARRAY_DESCRIPTOR array_kind;
    CUarray array;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUgraph graph, empty_graph;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS node_kind;
    CUgraphExec executable;
    CUlaunchConfig launch;
    void *arguments[1], *host, *pages, *registered;
} made;

static void CUDA_CB called(void *unused) { (void)unused; }
static void CUDA_CB called_back(CUstream stream, CUresult status, void *unused) { (void)stream, (void)status, (void)unused; }

static const char *const names[] = {
#define CALL(name, expression) #name,
#include "absence_calls.h"
#undef CALL
};

static atomic_int may_call, has_ended, may_end;
static int chosen;
static CUresult result;

static pthread_t thread_with_stream; /* it has used its default stream */

static void *use_stream_of_thread(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(made.context);
    cuStreamSynchronize(CU_STREAM_PER_THREAD);
    while (!atomic_load(&may_end)) usleep(1000);
    return NULL;
}

static CUresult end_thread(void)
{
    atomic_store(&may_end, 1);
    pthread_join(thread_with_stream, NULL);
    return CUDA_SUCCESS;
}

static void *call(void *unused)
{
    (void)unused;
    static char answer[1 << 16] __attribute__((aligned(64)));
    void *out = answer;
    cuCtxSetCurrent(made.context);
    while (!atomic_load(&may_call)) usleep(1000);
    int number = 0;
#define CALL(name, expression) \
    if (chosen == number++) result = expression;
#include "absence_calls.h"
#undef CALL
    atomic_store(&has_ended, 1);
    return NULL;
}

static int failures;
static void must(CUresult answer)
{
    if (answer != CUDA_SUCCESS) failures++;
}

static void make_memory(void)
{
    made.physical_kind = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, made.device}};
    made.pool_kind = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = made.physical_kind.location};
    made.access = (CUmemAccessDesc){made.physical_kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    made.array_kind = (CUDA_ARRAY_DESCRIPTOR){64, 64, CU_AD_FORMAT_FLOAT, 1};
    must(cuMemAlloc(&made.memory, 1 << 20));
    must(cuMemAllocAsync(&made.of_pool, 1 << 20, made.stream));
    must(cuDeviceGetDefaultMemPool(&made.pool, made.device));
    must(cuMemPoolCreate(&made.other_pool, &made.pool_kind));
    must(cuMemHostAlloc(&made.host, 1 << 16, 0));
    static char pages[2 << 16] __attribute__((aligned(1 << 16)));
    made.pages = pages, made.registered = pages + (1 << 16);
    must(cuMemHostRegister(made.registered, 4096, 0));
    must(cuMemCreate(&made.physical, 2 << 20, &made.physical_kind, 0));
    must(cuMemAddressReserve(&made.range, 4 << 20, 0, 0, 0));
    must(cuMemMap(made.range, 2 << 20, 0, made.physical, 0));
    must(cuMemSetAccess(made.range, 2 << 20, &made.access, 1));
    must(cuArrayCreate(&made.array, &made.array_kind));
    made.resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = made.array};
}

static void make_code(void)
{
    must(cuModuleLoadData(&made.module, code));
    must(cuModuleGetFunction(&made.function, made.module, "stores"));
    must(cuLibraryLoadData(&made.library, code, NULL, NULL, 0, NULL, NULL, 0));
    must(cuLibraryGetKernel(&made.kernel, made.library, "stores"));
    made.arguments[0] = &made.memory;
    made.launch = (CUlaunchConfig){1, 1, 1, 1, 1, 1, 0, made.stream, NULL, 0};
    made.node_kind = (CUDA_KERNEL_NODE_PARAMS){made.function, 1, 1, 1, 1, 1, 1, 0, made.arguments, NULL};
    must(cuGraphCreate(&made.graph, 0));
    must(cuGraphCreate(&made.empty_graph, 0));
    must(cuGraphAddKernelNode(&made.node, made.graph, NULL, 0, &made.node_kind));
    must(cuGraphInstantiateWithFlags(&made.executable, made.graph, 0));
}

static void make(void)
{
    must(cuInit(0));
    must(cuDeviceGet(&made.device, 0));
    must(cuDevicePrimaryCtxRetain(&made.context, made.device));
    must(cuCtxCreate(&made.other_context, NULL, 0, made.device));
    must(cuCtxSetCurrent(made.context));
    must(cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&made.other_stream, CU_STREAM_NON_BLOCKING));
    must(cuEventCreate(&made.event, CU_EVENT_DISABLE_TIMING));
    must(cuEventCreate(&made.timed, CU_EVENT_DEFAULT));
    must(cuEventCreate(&made.timed_later, CU_EVENT_DEFAULT));
    must(cuEventCreate(&made.blocking_event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    must(cuEventCreate(&made.new_event, CU_EVENT_DISABLE_TIMING));
    make_memory();
    make_code();
    must(cuEventRecord(made.timed, made.stream));
    must(cuLaunchKernel(made.function, 1, 1, 1, 1, 1, 1, 0, made.stream, made.arguments, NULL));
    must(cuGraphLaunch(made.executable, made.stream));
    must(cuEventRecord(made.timed_later, made.stream));
    must(cuEventRecord(made.event, made.stream));
    must(cuEventRecord(made.blocking_event, made.stream));
    must(cuCtxSynchronize());
}

static int ends_within(int steps)
{
    for (; steps > 0 && !atomic_load(&has_ended); steps--) usleep(10000);
    return atomic_load(&has_ended);
}

static void try_one(int number)
{
    pthread_t thread;
    CUcheckpointLockArgs most = {.timeoutMs = 5000};
    chosen = number;
    alarm(SECONDS);
    make();
    pthread_create(&thread, NULL, call, NULL);
    pthread_create(&thread_with_stream, NULL, use_stream_of_thread, NULL);
    usleep(20000);
    must(cuCheckpointProcessLock(getpid(), &most));
    must(cuCheckpointProcessCheckpoint(getpid(), NULL));
    atomic_store(&may_call, 1);
    int away = ends_within(AWAY_STEPS);
    CUresult answer = result;
    must(cuCheckpointProcessRestore(getpid(), NULL));
    must(cuCheckpointProcessUnlock(getpid(), NULL));
    int back = ends_within(BACK_STEPS);
    if (away) printf("%-34s answers %d", names[number], answer);
    else printf("%-34s waits, then %s %d", names[number], back ? "answers" : "WAITS ON", result);
    printf(failures ? ", after %d calls that failed\n" : "\n", failures);
    fflush(stdout);
    _exit(0);
}

int main(void)
{
    enum { CALLS = sizeof names / sizeof *names };
    pid_t processes[CALLS];
    int begun = 0, ended = 0;
    while (ended < CALLS) {
        if (begun < CALLS && begun - ended < AT_ONCE) {
            if ((processes[begun] = fork()) == 0) try_one(begun);
            begun++;
            continue;
        }
        int status;
        pid_t process = wait(&status);
        ended++;
        for (int i = 0; i < begun; i++)
            if (processes[i] == process && WIFSIGNALED(status)) printf("%-34s ends the process: signal %d\n", names[i], WTERMSIG(status));
        fflush(stdout);
    }
    return 0;
}
