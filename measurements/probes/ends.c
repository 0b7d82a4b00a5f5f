/* Asks the driver what the hook relies on where streams, contexts and captures end: hook/src/be/ends.h,
 * hook/src/streams/capture_origins.h and hook/src/be/pinned_page.c. Each line of output is an answer. On a machine with an
 * NVIDIA GPU:
 *
 *   gcc -O2 -I/usr/local/cuda/include measurements/probes/ends.c -o /tmp/ends -L/usr/local/cuda/lib64/stubs -lcuda && /tmp/ends
 *
 * `/tmp/ends requests` makes requests of 4 ms, and `/tmp/ends short-streams` creates a stream, launches in it and destroys it, again
 * and again. Under the hook they show what hp loses beside streams that live shortly. */
#include "blocking.h"

#include <stdbool.h>
#include <string.h>

#define WORK_US 20000
#define REQUESTS 300
#define KERNELS 30 /* in each short stream */
#define SECONDS 8

static CUcontext context;

static const char *name_of(CUresult result)
{
    const char *name = NULL;
    return cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name : "unknown";
}

static CUstream stream_of(unsigned flags)
{
    CUstream stream;
    must(cuStreamCreate(&stream, flags), "stream");
    return stream;
}

static CUevent event_of(unsigned flags)
{
    CUevent event;
    must(cuEventCreate(&event, flags), "event");
    return event;
}

static double wait_for(CUevent event, CUresult *result)
{
    double begun = now_us();
    while ((*result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) usleep(100);
    return (now_us() - begun) * 1e-3;
}

/* -- Streams that are destroyed with work ----------------------------------------------------------------------------- */

static void stream_with_work(bool blocked)
{
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    CUevent begin = event_of(CU_EVENT_DEFAULT), end = event_of(CU_EVENT_DEFAULT);
    CUresult result;
    float took = -1;
    *word = blocked;
    await_word(stream);
    must(cuEventRecord(begin, stream), "record");
    spin(stream, WORK_US, 1);
    must(cuEventRecord(end, stream), "record");
    double begun = now_us();
    CUresult destroyed = cuStreamDestroy(stream);
    double destroying = now_us() - begun;
    CUresult at_once = cuEventQuery(end);
    usleep(blocked ? 2 * WORK_US : 0);
    CUresult later = cuEventQuery(end);
    *word = 0;
    double waited = wait_for(end, &result);
    CUresult elapsed = cuEventElapsedTime(&took, begin, end);
    printf("a stream with work of %d ms%s: destroyed %s in %.3f ms; its last event %s at once, %s later, %s %.1f ms after that;"
           " time between events %s %.2f ms\n", WORK_US / 1000, blocked ? " behind a closed word" : "", name_of(destroyed),
           destroying * 1e-3, name_of(at_once), name_of(later), name_of(result), waited, name_of(elapsed), (double)took);
    cuEventDestroy(begin);
    cuEventDestroy(end);
}

static void handle_comes_again(void)
{
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING);
    spin(first, WORK_US, 1);
    must(cuStreamDestroy(first), "destroy");
    CUstream second = stream_of(CU_STREAM_NON_BLOCKING);
    printf("a stream created while a destroyed one works: %s handle\n", first == second ? "the same" : "another");
    must(cuStreamDestroy(second), "destroy");
    must(cuCtxSynchronize(), "synchronise");
}

/* -- Captures --------------------------------------------------------------------------------------------------------- */

static const char *status_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cuStreamIsCapturing(stream, &status);
    if (result != CUDA_SUCCESS) return name_of(result);
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "active" : status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? "invalidated" : "none";
}

/* Whether calls that captures forbid are possible: so no capture of this thread is open. */
static const char *forbidden_call(void)
{
    CUdeviceptr memory;
    CUresult result = cuMemAlloc(&memory, MIB);
    if (result == CUDA_SUCCESS) cuMemFree(memory);
    return name_of(result);
}

static CUstream capturing(void)
{
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "capture");
    spin(stream, 1, 1);
    return stream;
}

static void origin_is_destroyed(void)
{
    CUstream origin = capturing();
    CUresult destroyed = cuStreamDestroy(origin);
    printf("a capture's origin: destroyed %s; then cuMemAlloc %s\n", name_of(destroyed), forbidden_call());
}

static void joined_is_destroyed(void)
{
    CUstream origin = capturing(), joined = stream_of(CU_STREAM_NON_BLOCKING);
    CUevent event = event_of(CU_EVENT_DISABLE_TIMING);
    CUgraph graph = NULL;
    must(cuEventRecord(event, origin), "record");
    must(cuStreamWaitEvent(joined, event, 0), "wait");
    spin(joined, 1, 1);
    CUresult destroyed = cuStreamDestroy(joined);
    const char *status = status_of(origin);
    printf("a stream that joined a capture: destroyed %s; the origin's capture is %s", name_of(destroyed), status);
    printf(", and ends with %s", name_of(cuStreamEndCapture(origin, &graph)));
    printf("; then cuMemAlloc %s\n", forbidden_call());
}

static void page_is_pinned(CUstreamCaptureMode mode, const char *how)
{
    CUstream origin = capturing();
    CUgraph graph = NULL;
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(cuThreadExchangeStreamCaptureMode(&mode), "mode");
    CUresult pinned = cuMemHostRegister(memory, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    must(cuThreadExchangeStreamCaptureMode(&mode), "mode");
    const char *status = status_of(origin);
    printf("a page pinned in %s mode during a capture: %s; the capture is %s", how, name_of(pinned), status);
    printf(", and ends with %s\n", name_of(cuStreamEndCapture(origin, &graph)));
}

static void event_in_relaxed_mode(void)
{
    CUstream origin = capturing(), stream = stream_of(CU_STREAM_NON_BLOCKING);
    CUevent event = event_of(CU_EVENT_DISABLE_TIMING);
    CUgraph graph = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    must(cuEventRecord(event, stream), "record");
    must(cuThreadExchangeStreamCaptureMode(&mode), "mode");
    CUresult recorded = cuEventRecord(event, stream), queried = cuEventQuery(event);
    must(cuThreadExchangeStreamCaptureMode(&mode), "mode");
    const char *status = status_of(origin);
    printf("an event of another stream in relaxed mode during a capture: record %s, query %s; the capture is %s", name_of(recorded),
           name_of(queried), status);
    printf(", and ends with %s\n", name_of(cuStreamEndCapture(origin, &graph)));
}

static void context_ends(bool primary)
{
    CUcontext own = NULL, popped;
    if (!primary) must(cuCtxCreate(&own, NULL, 0, device), "context"), load(source);
    if (!primary) must(cuCtxSetCurrent(own), "context");
    CUmodule module;
    must(cuModuleLoadData(&module, source), "module");
    must(cuModuleGetFunction(&spin_kernel, module, "spin"), "kernel");
    CUstream origin = capturing();
    CUresult result = primary ? cuDevicePrimaryCtxReset(device) : cuCtxDestroy(own);
    if (!primary) cuCtxPopCurrent(&popped);
    must(cuCtxSetCurrent(context), "context");
    if (result != CUDA_SUCCESS) {
        printf("%s with an open capture: %s", primary ? "a reset" : "the end of a context", name_of(result));
        CUgraph graph = NULL;
        if (!primary) cuCtxSetCurrent(own);
        printf("; the capture is %s", status_of(origin));
        printf(", and ends with %s\n", name_of(cuStreamEndCapture(origin, &graph)));
        return;
    }
    printf("%s with an open capture: %s; then cuMemAlloc %s\n", primary ? "a reset" : "the end of a context", name_of(result), forbidden_call());
}

/* -- Pools ------------------------------------------------------------------------------------------------------------ */

static cuuint64_t held_by(CUmemoryPool pool, CUresult *result)
{
    cuuint64_t held = 0;
    *result = cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
    return held;
}

static void pools(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemoryPool pool, usual;
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory;
    CUresult asked;
    must(cuMemPoolCreate(&pool, &properties), "pool");
    must(cuMemAllocFromPoolAsync(&memory, 8 * MIB, pool, stream), "memory");
    must(cuStreamSynchronize(stream), "synchronise");
    CUresult destroyed = cuMemPoolDestroy(pool);
    cuuint64_t held = held_by(pool, &asked);
    printf("a pool with an allocation: destroyed %s; then it holds %llu MiB (%s)", name_of(destroyed), (unsigned long long)held >> 20, name_of(asked));
    printf(", its memory is freed with %s\n", name_of(cuMemFreeAsync(memory, stream)));
    must(cuStreamSynchronize(stream), "synchronise");
    must(cuCtxSetCurrent(NULL), "no context");
    must(cuDeviceGetDefaultMemPool(&usual, device), "default pool");
    held = held_by(usual, &asked);
    printf("the default pool without a current context: it holds %llu MiB (%s)\n", (unsigned long long)held >> 20, name_of(asked));
    must(cuCtxSetCurrent(context), "context");
}

/* -- hp and be, under the hook ---------------------------------------------------------------------------------------- */

static int requests(void)
{
    static double took[REQUESTS];
    make_requests(stream_of(CU_STREAM_NON_BLOCKING), took, REQUESTS, 8000);
    printf("{\"p50_us\": %.0f, \"p95_us\": %.0f, \"p99_us\": %.0f, \"max_us\": %.0f}\n", took[REQUESTS / 2], took[REQUESTS * 95 / 100],
           took[REQUESTS * 99 / 100], took[REQUESTS - 1]);
    return 0;
}

static int short_streams(void)
{
    uint64_t streams = 0;
    for (double until = now_us() + SECONDS * 1e6; now_us() < until; streams++) {
        CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
        for (int kernel = 0; kernel < KERNELS; kernel++) spin(stream, 50, 132);
        must(cuStreamDestroy(stream), "destroy");
        if (streams % 64 == 63) must(cuCtxSynchronize(), "synchronise"); /* as a program that looks at its results */
    }
    printf("{\"streams_per_s\": %.0f}\n", (double)streams / SECONDS);
    return 0;
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load(source);
    if (count > 1) return strcmp(arguments[1], "requests") == 0 ? requests() : short_streams();
    must(cuCtxGetCurrent(&context), "context");
    map_word();
    for (int blocked = 0; blocked < 2; blocked++) stream_with_work(blocked);
    handle_comes_again();
    origin_is_destroyed();
    joined_is_destroyed();
    page_is_pinned(CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
    page_is_pinned(CU_STREAM_CAPTURE_MODE_GLOBAL, "global");
    event_in_relaxed_mode();
    pools();
    context_ends(false);
    context_ends(true);
    return 0;
}
