/* A CUDA program for tests of stream order. It reads a list of operations, issues them as fast as it can, and reports
 * the times of the operations that it can observe. It has no Orion code. tests/hook/ordered_program.py writes the lists
 * and knows what CUDA allows. The simulated GPU's trace shows when kernels ran: operation number i launches the kernel
 * ki, and a kernel named last runs at the end.
 *
 *   launch STREAM US SMS   a kernel
 *   moved STREAM US SMS    a kernel on a green context with half of the SMs, which events order as if on STREAM
 *   graph STREAM US SMS    a graph of two kernels, one after the other, made before the list starts
 *   copy STREAM BYTES      from the host; if BYTES < 0, to the host
 *   host STREAM            a host function; reports when it ran
 *   record STREAM EVENT    cuEventRecord
 *   wait STREAM EVENT      cuStreamWaitEvent
 *   sync STREAM            cuStreamSynchronize; reports when it returned, like the next three
 *   query STREAM           cuStreamQuery until the result is not CUDA_ERROR_NOT_READY
 *   esync EVENT            cuEventSynchronize
 *   ctxsync                cuCtxSynchronize
 *   go                     start the list; at the end answers "ok go BEGAN ENDED RESULT", then NUMBER BEGAN ENDED
 *                          for each observed operation; the times are CLOCK_MONOTONIC nanoseconds
 *
 * STREAM is 0 (legacy), 1 (non-blocking), 2 (non-blocking, high priority), 3 (blocking), 4 (the thread's default
 * stream). Events are numbered from 0 to 3. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define OPERATIONS 64
#define STREAMS 5
#define EVENTS 4
#define BUFFER (8u << 20)

struct operation {
    char what[12];
    long a, b, c;
    CUgraphExec graph;
    uint64_t began, ended; /* 0: not observed */
};

static struct operation list[OPERATIONS];
static unsigned count;
static CUfunction kernels[OPERATIONS + 1]; /* the last entry is the kernel "last" */
static CUstream streams[STREAMS];
static CUevent events[EVENTS];
static CUstream half; /* a green context's stream */
static CUevent join;
static CUdeviceptr device_buffer;
static void *host_buffer;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static CUresult load_kernels(void)
{
    static char image[OPERATIONS * 64] = "orion-sim 1\nkernel last duration_us=@0 sms=@1 params=8,4\n";
    CUmodule module;
    char name[16];
    for (unsigned i = 0; i < OPERATIONS; i++) sprintf(image + strlen(image), "kernel k%u duration_us=@0 sms=@1 params=8,4\n", i);
    CUresult result = cuModuleLoadData(&module, image);
    for (unsigned i = 0; i < OPERATIONS && result == CUDA_SUCCESS; i++) {
        sprintf(name, "k%u", i);
        result = cuModuleGetFunction(&kernels[i], module, name);
    }
    return result == CUDA_SUCCESS ? cuModuleGetFunction(&kernels[OPERATIONS], module, "last") : result;
}

static CUresult open_half(void)
{
    CUdevResource all, group;
    CUdevResourceDesc resources;
    CUgreenCtx green;
    CUresult result;
    unsigned groups = 1;
    if ((result = cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM)) ||
        (result = cuDevSmResourceSplitByCount(&group, &groups, &all, NULL, 0, all.sm.smCount / 2)) ||
        (result = cuDevResourceGenerateDesc(&resources, &group, 1)) ||
        (result = cuGreenCtxCreate(&green, resources, 0, CU_GREEN_CTX_DEFAULT_STREAM)) ||
        (result = cuEventCreate(&join, CU_EVENT_DISABLE_TIMING)))
        return result;
    return cuGreenCtxStreamCreate(&half, green, CU_STREAM_NON_BLOCKING, 0);
}

static CUresult initialise(void)
{
    CUcontext context;
    CUresult result;
    if ((result = cuInit(0)) || (result = cuDevicePrimaryCtxRetain(&context, 0)) || (result = cuCtxSetCurrent(context)) ||
        (result = load_kernels()) || (result = cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING)) ||
        (result = cuStreamCreateWithPriority(&streams[2], CU_STREAM_NON_BLOCKING, -5)) ||
        (result = cuStreamCreate(&streams[3], CU_STREAM_DEFAULT)) || (result = cuMemAlloc(&device_buffer, BUFFER)) ||
        (result = cuMemAllocHost(&host_buffer, BUFFER)))
        return result;
    streams[4] = CU_STREAM_PER_THREAD;
    for (unsigned i = 0; i < EVENTS && result == CUDA_SUCCESS; i++) result = cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING);
    return result;
}

/* Blocks of 1024 threads, two per SM: several waves on the SMs that the kernel uses, and more than the GPU can run at
 * once. So the hook may move the kernel. */
static CUresult launch(unsigned number, CUstream stream, uint64_t microseconds, uint32_t sms)
{
    void *parameters[] = {&microseconds, &sms};
    return cuLaunchKernel(kernels[number], 2 * sms, 140, 1, 1024, 1, 1, 0, stream, parameters, NULL);
}

static CUresult launch_moved(unsigned number, CUstream stream, uint64_t microseconds, uint32_t sms)
{
    CUresult result = half == NULL ? open_half() : CUDA_SUCCESS;
    if (result || (result = cuEventRecord(join, stream)) || (result = cuStreamWaitEvent(half, join, 0)) ||
        (result = launch(number, half, microseconds, sms)) || (result = cuEventRecord(join, half)))
        return result;
    return cuStreamWaitEvent(stream, join, 0);
}

static CUresult make_graph(unsigned number)
{
    struct operation *it = &list[number];
    CUgraph graph;
    CUresult result;
    if ((result = cuStreamBeginCapture(streams[1], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) ||
        (result = launch(number, streams[1], (uint64_t)it->b, (uint32_t)it->c)) ||
        (result = launch(number, streams[1], (uint64_t)it->b, (uint32_t)it->c)) ||
        (result = cuStreamEndCapture(streams[1], &graph)))
        return result;
    result = cuGraphInstantiate(&it->graph, graph, 0);
    cuGraphDestroy(graph);
    return result;
}

static void host_function(void *argument)
{
    struct operation *it = argument;
    it->began = now();
    it->ended = now();
}

static CUresult query(CUstream stream)
{
    CUresult result;
    while ((result = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {}
    return result;
}

static CUresult wait_for(struct operation *it)
{
    CUresult result;
    it->began = now();
    if (!strcmp(it->what, "sync")) result = cuStreamSynchronize(streams[it->a % STREAMS]);
    else if (!strcmp(it->what, "query")) result = query(streams[it->a % STREAMS]);
    else if (!strcmp(it->what, "esync")) result = cuEventSynchronize(events[it->a % EVENTS]);
    else if (!strcmp(it->what, "ctxsync")) result = cuCtxSynchronize();
    else result = CUDA_ERROR_INVALID_VALUE;
    it->ended = now();
    return result;
}

static CUresult issue(unsigned number)
{
    struct operation *it = &list[number];
    CUstream stream = streams[it->a % STREAMS];
    CUevent event = events[it->b & (EVENTS - 1)];
    if (!strcmp(it->what, "launch")) return launch(number, stream, (uint64_t)it->b, (uint32_t)it->c);
    if (!strcmp(it->what, "moved")) return launch_moved(number, stream, (uint64_t)it->b, (uint32_t)it->c);
    if (!strcmp(it->what, "graph")) return cuGraphLaunch(it->graph, stream);
    if (!strcmp(it->what, "host")) return cuLaunchHostFunc(stream, host_function, it);
    if (!strcmp(it->what, "record")) return cuEventRecord(event, stream);
    if (!strcmp(it->what, "wait")) return cuStreamWaitEvent(stream, event, 0);
    if (strcmp(it->what, "copy")) return wait_for(it);
    return it->b < 0 ? cuMemcpyDtoHAsync(host_buffer, device_buffer, (size_t)-it->b, stream)
                     : cuMemcpyHtoDAsync(device_buffer, host_buffer, (size_t)it->b, stream);
}

static void go(void)
{
    uint64_t began = now();
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) result = issue(i);
    CUresult ended = cuCtxSynchronize();
    if (ended == CUDA_SUCCESS) ended = launch(OPERATIONS, streams[1], 1, 1);
    if (ended == CUDA_SUCCESS) ended = cuCtxSynchronize();
    printf("ok go %llu %llu %d", (unsigned long long)began, (unsigned long long)now(), result ? result : ended);
    for (unsigned i = 0; i < count; i++) {
        if (list[i].ended) printf(" %u %llu %llu", i, (unsigned long long)list[i].began, (unsigned long long)list[i].ended);
        if (list[i].graph) cuGraphExecDestroy(list[i].graph);
    }
    printf("\n");
    fflush(stdout);
    count = 0;
}

int main(void)
{
    char line[128];
    CUresult result = initialise();
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (!strcmp(line, "go\n")) {
            if (result == CUDA_SUCCESS) go();
            else printf("ok go 0 0 %d\n", result), fflush(stdout);
        } else if (count < OPERATIONS) {
            struct operation *it = &list[count];
            *it = (struct operation){{0}, 0, 0, 0, NULL, 0, 0};
            sscanf(line, "%11s %ld %ld %ld", it->what, &it->a, &it->b, &it->c);
            if (result == CUDA_SUCCESS && !strcmp(it->what, "graph")) result = make_graph(count);
            count++;
        }
    }
    return 0;
}
