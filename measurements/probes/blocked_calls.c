/* Which calls of the driver keep a process's context on the GPU while a stream of the process is blocked in a wait?
 *
 * The hook stops a be process by such waits (hook/src/be/valve.h), and a blocked wait alone costs another process nothing
 * (stream_wait.c). But the program goes on, and calls the driver meanwhile. For each call: a thread makes it while a stream
 * is blocked in a wait with a kernel behind it, and another process makes requests of 4 ms. On a machine with an NVIDIA GPU:
 *
 *   gcc -O2 -I/usr/local/cuda/include measurements/probes/blocked_calls.c -o /tmp/blocked_calls \
 *       -L/usr/local/cuda/lib64/stubs -lcuda -lpthread && /tmp/blocked_calls
 *
 * A line for each call: its name, whether it returned before the stream went on, and the other process's requests. */
#include "blocking.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

#define REQUESTS 30

static const char with_data[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 data[1048576] = {1};\n"
    ".visible .entry empty(){ret;}\n";
static const char with_local_memory[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry locals(.param .u64 p){.local .align 4 .b8 room[65536];.reg .u64 %at,%p;.reg .u32 %x;ld.param.u64 %p,[p];"
    "mov.u64 %at,room;add.u64 %at,%at,%p;cvt.u32.u64 %x,%p;st.local.u32 [%at],%x;ret;}\n";

static CUstream blocked, other;
static CUdeviceptr memory, other_memory;
static void *pinned, *pageable;
static void *small_code, *large_code;
static CUfunction locals;
static CUmodule loaded;
static CUgraph graph;
static CUgraphExec instantiated;
static CUevent event;
static CUcontext context;
static CUmemGenericAllocationHandle handle;
static CUdeviceptr range;

static void *compiled(const char *text)
{
    CUlinkState state;
    void *code, *copy;
    size_t bytes;
    must(cuLinkCreate(0, NULL, NULL, &state), "link");
    must(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text) + 1, "source", 0, NULL, NULL), "link");
    must(cuLinkComplete(state, &code, &bytes), "link");
    copy = malloc(bytes);
    memcpy(copy, code, bytes);
    must(cuLinkDestroy(state), "link");
    return copy;
}

/* -- The calls ------------------------------------------------------------------------------------------------------- */

static CUresult load_code(void *code, const char *kernel)
{
    CUfunction function;
    must(cuModuleLoadData(&loaded, code), "module");
    must(cuModuleGetFunction(&function, loaded, kernel), "kernel");
    return cuFuncLoad(function);
}
static void nothing(void) { usleep(1000); }
static void load_small(void) { must(load_code(small_code, "spin"), "load"); }
static void load_large(void) { must(load_code(large_code, "empty"), "load"); }
static CUkernel kernel_of_library(void *code, const char *name)
{
    CUlibrary library;
    CUkernel kernel;
    must(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0), "library");
    must(cuLibraryGetKernel(&kernel, library, name), "kernel");
    return kernel;
}
static void load_library(void)
{
    CUkernel kernel = kernel_of_library(large_code, "empty");
    CUfunction function;
    must(cuKernelGetFunction(&function, kernel), "function");
    must(cuFuncLoad(function), "load");
}
static void unload(void) { must(cuModuleUnload(loaded), "unload"); }
static void allocate(void) { must(cuMemAlloc(&other_memory, 64 * MIB), "allocate"); }
static void release(void) { must(cuMemFree(other_memory), "free"); }
static void allocate_host(void) { must(cuMemAllocHost(&pinned, 4 * MIB), "allocate"); }
static void release_host(void) { must(cuMemFreeHost(pinned), "free"); }
static void enrol(void) { must(cuMemHostRegister(pageable, 4 * MIB, 0), "register"); }
static void dismiss(void) { must(cuMemHostUnregister(pageable), "unregister"); }
static void allocate_in_stream(void) { must(cuMemAllocAsync(&other_memory, 64 * MIB, other), "allocate"); }
static void release_in_stream(void) { must(cuMemFreeAsync(other_memory, other), "free"); }
static void trim(void)
{
    CUmemoryPool pool;
    must(cuDeviceGetDefaultMemPool(&pool, device), "pool");
    must(cuMemPoolTrimTo(pool, 0), "trim");
}
static CUmemAllocationProp property(void)
{
    CUmemAllocationProp of = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    of.location.id = device;
    return of;
}
static void map(void)
{
    CUmemAllocationProp of = property();
    CUmemAccessDesc access = {.location = of.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    must(cuMemAddressReserve(&range, 64 * MIB, 0, 0, 0), "reserve");
    must(cuMemCreate(&handle, 64 * MIB, &of, 0), "create");
    must(cuMemMap(range, 64 * MIB, 0, handle, 0), "map");
    must(cuMemSetAccess(range, 64 * MIB, &access, 1), "access");
}
static void unmap(void)
{
    must(cuMemUnmap(range, 64 * MIB), "unmap");
    must(cuMemRelease(handle), "release");
    must(cuMemAddressFree(range, 64 * MIB), "free");
}
static void make_stream(void)
{
    CUstream stream;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    must(cuStreamDestroy(stream), "stream");
}
static void make_event(void)
{
    CUevent made;
    must(cuEventCreate(&made, 0), "event");
    must(cuEventDestroy(made), "event");
}
static void synchronise_stream(void) { must(cuStreamSynchronize(blocked), "synchronise"); }
static void synchronise_event(void) { must(cuEventSynchronize(event), "synchronise"); }
static void synchronise_context(void) { must(cuCtxSynchronize(), "synchronise"); }
static void copy_in(void) { must(cuMemcpyHtoD(memory, pageable, 4096), "copy"); }
static void copy_in_large(void) { must(cuMemcpyHtoD(memory, pageable, MIB), "copy"); }
static void copy_in_other(void) { must(cuMemcpyHtoDAsync(memory, pageable, MIB, other), "copy"); }
static void copy_in_blocked(void) { must(cuMemcpyHtoDAsync(memory, pageable, MIB, blocked), "copy"); }
static void copy_out(void) { must(cuMemcpyDtoH(pageable, memory, 4096), "copy"); }
static void copy_out_blocked(void) { must(cuMemcpyDtoHAsync(pageable, memory, MIB, blocked), "copy"); }
static void set(void) { must(cuMemsetD8(memory, 0, 4096), "memset"); }
static void instantiate(void) { must(cuGraphInstantiate(&instantiated, graph, 0), "instantiate"); }
static void upload(void) { must(cuGraphUpload(instantiated, other), "upload"); }
static void destroy_graph(void) { must(cuGraphExecDestroy(instantiated), "destroy"); }
/* A graph of a kernel that nothing has launched: which of the four calls loads its code? */
static CUmodule fresh;
static CUfunction fresh_kernel;
static CUgraph fresh_graph;
static CUgraphExec fresh_executable;
static void say_loaded(void)
{
    CUfunctionLoadingState state;
    must(cuFuncIsLoaded(&state, fresh_kernel), "loaded");
    printf("  the kernel is %s\n", state == CU_FUNCTION_LOADING_STATE_LOADED ? "loaded" : "not loaded");
}
static void look_up(void)
{
    must(cuModuleGetFunction(&fresh_kernel, fresh, "empty"), "kernel");
    say_loaded();
}
static void add_kernel(void)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = fresh_kernel, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1};
    must(cuGraphCreate(&fresh_graph, 0), "graph");
    must(cuGraphAddKernelNode(&node, fresh_graph, NULL, 0, &kernel), "node");
    say_loaded();
}
static void instantiate_fresh(void)
{
    must(cuGraphInstantiate(&fresh_executable, fresh_graph, 0), "instantiate");
    say_loaded();
}
static void launch_fresh(void)
{
    must(cuGraphLaunch(fresh_executable, other), "launch");
    say_loaded();
}
/* The state of a CUkernel, which is not a CUfunction. */
static void ask_kernel(void)
{
    CUkernel kernel = kernel_of_library(small_code, "spin");
    CUfunctionLoadingState state;
    printf("  cuFuncIsLoaded of a CUkernel returns %d\n", cuFuncIsLoaded(&state, (CUfunction)(void *)kernel));
}
static void launch_locals(void)
{
    uint64_t zero = 0;
    void *parameters[] = {&zero};
    must(cuLaunchKernel(locals, 1, 1, 1, 32, 1, 1, 0, blocked, parameters, NULL), "launch");
}
static void set_stack(void) { must(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192), "limit"); }
static void set_heap(void) { must(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4 * MIB), "limit"); }
static void ask_memory(void)
{
    size_t left, total;
    must(cuMemGetInfo(&left, &total), "memory");
}

static const struct {
    const char *name;
    void (*call)(void);
} cases[] = {
    {"nothing", nothing},
    {"cuModuleLoadData, a small kernel", load_small},
    {"cuModuleUnload", unload},
    {"cuModuleLoadData, 1 MiB", load_large},
    {"cuModuleUnload, 1 MiB", unload},
    {"cuLibraryLoadData, 1 MiB", load_library},
    {"cuMemAlloc", allocate},
    {"cuMemFree", release},
    {"cuMemAllocHost", allocate_host},
    {"cuMemFreeHost", release_host},
    {"cuMemHostRegister", enrol},
    {"cuMemHostUnregister", dismiss},
    {"cuMemAllocAsync", allocate_in_stream},
    {"cuMemFreeAsync", release_in_stream},
    {"cuMemPoolTrimTo", trim},
    {"cuMemMap", map},
    {"cuMemUnmap", unmap},
    {"cuStreamCreate, cuStreamDestroy", make_stream},
    {"cuEventCreate, cuEventDestroy", make_event},
    {"cuStreamSynchronize", synchronise_stream},
    {"cuEventSynchronize", synchronise_event},
    {"cuCtxSynchronize", synchronise_context},
    {"cuMemcpyHtoD, 4 KiB", copy_in},
    {"cuMemcpyHtoD, 1 MiB", copy_in_large},
    {"cuMemcpyHtoDAsync, pageable, another stream", copy_in_other},
    {"cuMemcpyHtoDAsync, pageable, the blocked stream", copy_in_blocked},
    {"cuMemcpyDtoH, 4 KiB", copy_out},
    {"cuMemcpyDtoHAsync, pageable, the blocked stream", copy_out_blocked},
    {"cuMemsetD8", set},
    {"cuGraphInstantiate", instantiate},
    {"cuGraphUpload", upload},
    {"cuGraphExecDestroy", destroy_graph},
    {"cuModuleGetFunction", look_up},
    {"cuGraphAddKernelNode, a new kernel", add_kernel},
    {"cuGraphInstantiate, a new kernel", instantiate_fresh},
    {"cuGraphLaunch, a new kernel, another stream", launch_fresh},
    {"cuLibraryLoadData, cuFuncIsLoaded", ask_kernel},
    {"cuLaunchKernel, more local memory", launch_locals},
    {"cuCtxSetLimit, stack", set_stack},
    {"cuCtxSetLimit, printf", set_heap},
    {"cuMemGetInfo", ask_memory},
};
#define CASES (int)(sizeof cases / sizeof cases[0])

/* -- The two processes ----------------------------------------------------------------------------------------------- */

struct shared {
    _Atomic int turn;
    double p50, p90;
};

static void requests(struct shared *shared)
{
    double took[REQUESTS];
    make_requests(other, took, REQUESTS, 2000);
    shared->p50 = took[REQUESTS / 2];
    shared->p90 = took[REQUESTS * 9 / 10];
}

static void serve(struct shared *shared)
{
    load(source);
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), "stream");
    for (int i = 0; i < CASES; i++) {
        while (shared->turn != 2 * i + 1) usleep(100);
        requests(shared);
        shared->turn = 2 * i + 2;
    }
    _exit(0);
}

static _Atomic int returned;

static void *make_call(void *which)
{
    must(cuCtxSetCurrent(context), "context");
    cases[(intptr_t)which].call();
    returned = 1;
    return NULL;
}

static void measure(int number, struct shared *shared)
{
    pthread_t thread;
    double begun;
    *word = 1;
    returned = 0;
    await_word(blocked);
    spin(blocked, 100, 132);
    must(cuEventRecord(event, blocked), "record");
    usleep(2000);
    pthread_create(&thread, NULL, make_call, (void *)(intptr_t)number);
    begun = now_us();
    while (!returned && now_us() - begun < 20e3) usleep(100);
    shared->turn = 2 * number + 1;
    while (shared->turn != 2 * number + 2) usleep(100);
    const char *how = returned ? "returned" : "is blocked";
    *word = 0;
    pthread_join(thread, NULL);
    must(cuCtxSynchronize(), "synchronise");
    printf("%-50s %-11s p50 %.0f p90 %.0f us\n", cases[number].name, how, shared->p50, shared->p90);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fork() == 0) serve(shared);
    load(source);
    must(cuCtxGetCurrent(&context), "context");
    must(cuStreamCreate(&blocked, CU_STREAM_NON_BLOCKING), "stream");
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), "stream");
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
    must(cuMemAlloc(&memory, MIB), "memory");
    pageable = aligned_alloc(4096, 4 * MIB);
    memset(pageable, 1, 4 * MIB);
    small_code = compiled(source);
    large_code = compiled(with_data);
    CUmodule module;
    must(cuModuleLoadData(&fresh, large_code), "module");
    must(cuModuleLoadData(&module, with_local_memory), "module");
    must(cuModuleGetFunction(&locals, module, "locals"), "kernel");
    must(cuGraphCreate(&graph, 0), "graph");
    for (int i = 0; i < 20; i++) {
        CUgraphNode node;
        uint64_t nanoseconds = 1000;
        void *parameters[] = {&nanoseconds};
        CUDA_KERNEL_NODE_PARAMS kernel = {.func = spin_kernel, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters};
        must(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel), "node");
    }
    map_word();
    for (int i = 0; i < CASES; i++) measure(i, shared);
    wait(NULL);
    return 0;
}
