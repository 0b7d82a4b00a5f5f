/* The device that commands use: initialised, used for launches, and waited for in every way that programs use. */
#include "scripted.h"

#define DEVICES 4

static struct used_device devices[DEVICES];
struct used_device *used = devices;

const char timed_code[] = "orion-sim 1\nkernel timed duration_us=@0 sms=@1 params=8,4\n";

CUresult load_code(CUfunction *function, const char *code, const char *name)
{
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, code);
    return result != CUDA_SUCCESS ? result : cuModuleGetFunction(function, module, name);
}

CUresult load(CUfunction *function) { return load_code(function, timed_code, "timed"); }

static CUresult open_device(const struct arguments *at)
{
    CUdevice device;
    CUresult result;
    used = &devices[(unsigned)at->a % DEVICES];
    used->streams[3] = CU_STREAM_PER_THREAD;
    if ((result = cuInit(0)) || (result = cuDeviceGet(&device, (int)at->a)) ||
        (result = cuDevicePrimaryCtxRetain(&used->context, device)))
        return result;
    return cuCtxSetCurrent(used->context);
}

double open_only(const struct arguments *at) { return at->a < 0 ? cuInit(0) : open_device(at); }

double initialise(const struct arguments *at)
{
    CUresult result;
    if ((result = open_device(at)) || (result = load(&used->timed)) ||
        (result = cuEventCreate(&used->event, CU_EVENT_DISABLE_TIMING)) ||
        (result = cuStreamCreate(&used->streams[1], CU_STREAM_NON_BLOCKING)))
        return result;
    return cuStreamCreate(&used->streams[2], CU_STREAM_NON_BLOCKING);
}

double use(const struct arguments *at)
{
    used = &devices[(unsigned)at->a % DEVICES];
    return cuCtxSetCurrent(used->context);
}

/* As with real kernels, kernels of different lengths have different grids. This kernel has the grid of kernels of
 * `like` microseconds. */
static CUresult launch_as(CUfunction function, CUstream stream, uint64_t microseconds, uint64_t like)
{
    uint32_t sms = stream == NULL ? 132 : 60;
    void *parameters[] = {&microseconds, &sms};
    return cuLaunchKernel(function, 132, 1 + (unsigned)(like % 60000), 1, 256, 1, 1, 0, stream, parameters, NULL);
}
CUresult launch_on(CUfunction function, CUstream stream, uint64_t microseconds)
{
    return launch_as(function, stream, microseconds, microseconds);
}

CUstream stream_of(double number) { return used->streams[(unsigned)number % STREAMS]; }
CUresult launch(uint64_t microseconds, double stream) { return launch_on(used->timed, stream_of(stream), microseconds); }

double launches(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++)
        result = launch_as(used->timed, stream_of(at->c), (uint64_t)at->b, (uint64_t)(at->d > 0 ? at->d : at->b));
    return result;
}

/* Launches kernels whose blocks may wait for each other, by the cooperative call or by an attribute of the general
 * call. */
double cooperate(const struct arguments *at)
{
    uint64_t microseconds = (uint64_t)at->b;
    uint32_t sms = 60;
    void *parameters[] = {&microseconds, &sms};
    unsigned height = 1 + (unsigned)(microseconds % 60000);
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {132, height, 1, 256, 1, 1, 0, stream_of(at->c), &cooperative, 1};
    CUresult result = CUDA_SUCCESS;
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++)
        result = at->d > 0 ? cuLaunchKernelEx(&config, used->timed, parameters, NULL)
                           : cuLaunchCooperativeKernel(used->timed, 132, height, 1, 256, 1, 1, 0, config.hStream, parameters);
    return result;
}

/* Captures K kernels, and launches the graph N times. */
double graphs(const struct arguments *at)
{
    CUgraph graph;
    CUgraphExec executable;
    CUstream stream = used->streams[1];
    const struct arguments kernels = {at->c, at->b, 1, 0};
    CUresult result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (result == CUDA_SUCCESS) result = (CUresult)launches(&kernels);
    if (result == CUDA_SUCCESS) result = cuStreamEndCapture(stream, &graph);
    if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&executable, graph, 0);
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++) result = cuGraphLaunch(executable, stream);
    return result;
}

double synchronise(const struct arguments *at) { return cuStreamSynchronize(stream_of(at->a)); }
double run(const struct arguments *at)
{
    const struct arguments stream = {at->c, 0, 0, 0};
    double result = launches(at);
    return result != CUDA_SUCCESS ? result : synchronise(&stream);
}
double synchronise_context(const struct arguments *at)
{
    (void)at;
    return cuCtxSynchronize();
}

double synchronise_event(const struct arguments *at)
{
    CUresult result = cuEventRecord(used->event, stream_of(at->a));
    return result != CUDA_SUCCESS ? result : cuEventSynchronize(used->event);
}

double follow(const struct arguments *at)
{
    CUresult result = cuEventRecord(used->event, stream_of(at->a));
    return result != CUDA_SUCCESS ? result : cuStreamWaitEvent(stream_of(at->b), used->event, 0);
}

static void CUDA_CB nothing(void *unused) { (void)unused; }

double host_functions(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++) result = cuLaunchHostFunc(stream_of(at->b), nothing, NULL);
    return result;
}

double query(const struct arguments *at)
{
    CUresult result;
    while ((result = cuStreamQuery(stream_of(at->a))) == CUDA_ERROR_NOT_READY) sleep_until(now() + 20000);
    return result;
}

double query_event(const struct arguments *at)
{
    CUresult result = cuEventRecord(used->event, stream_of(at->a));
    while (result == CUDA_SUCCESS && (result = cuEventQuery(used->event)) == CUDA_ERROR_NOT_READY) {
        sleep_until(now() + 20000);
        result = CUDA_SUCCESS;
    }
    return result;
}
