/* The commands `kernels` and `code`: calls for which the driver loads code, or gives kernels more local memory. */
#include "scripted.h"

#define MOST 1000u

static CUfunction kernels[MOST];
static unsigned loaded, launched;

double load_kernels(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (long i = 0; i < (long)at->a && loaded < MOST && result == CUDA_SUCCESS; i++) result = load(&kernels[loaded++]);
    return result;
}

static CUresult kernel_of_library(CUkernel *kernel)
{
    CUlibrary library;
    CUresult result = cuLibraryLoadData(&library, timed_code, NULL, NULL, 0, NULL, NULL, 0);
    return result != CUDA_SUCCESS ? result : cuLibraryGetKernel(kernel, library, "timed");
}

static CUresult load_library(void)
{
    CUkernel kernel;
    CUfunction function;
    CUresult result = kernel_of_library(&kernel);
    if (result == CUDA_SUCCESS) result = cuKernelGetFunction(&function, kernel);
    return result != CUDA_SUCCESS ? result : launch_on(function, used->streams[1], 100);
}

/* A graph of one kernel that nothing has launched. */
static CUresult launch_graph(void)
{
    uint64_t microseconds = 100;
    uint32_t sms = 1;
    void *arguments[] = {&microseconds, &sms};
    CUDA_KERNEL_NODE_PARAMS kernel =
        {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments};
    CUgraph graph;
    CUgraphExec executable;
    CUgraphNode node;
    if (launched >= loaded) return CUDA_ERROR_NOT_FOUND;
    kernel.func = kernels[launched++];
    CUresult result = cuGraphCreate(&graph, 0);
    if (result == CUDA_SUCCESS) result = cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel);
    if (result == CUDA_SUCCESS) result = cuGraphInstantiateWithFlags(&executable, graph, 0);
    return result != CUDA_SUCCESS ? result : cuGraphLaunch(executable, used->streams[1]);
}

static CUresult unload_module(void)
{
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, timed_code);
    return result != CUDA_SUCCESS ? result : cuModuleUnload(module);
}

static CUresult unload_library(void)
{
    CUlibrary library;
    CUresult result = cuLibraryLoadData(&library, timed_code, NULL, NULL, 0, NULL, NULL, 0);
    return result != CUDA_SUCCESS ? result : cuLibraryUnload(library);
}

/* Looks the same kernel up each time, as libraries do. */
static CUresult look_up(void)
{
    static CUkernel kernel;
    CUfunction function;
    CUresult result = kernel != NULL ? CUDA_SUCCESS : kernel_of_library(&kernel);
    return result != CUDA_SUCCESS ? result : cuKernelGetFunction(&function, kernel);
}

double call_for_code(const struct arguments *at)
{
    CUfunction function;
    switch ((int)at->a) {
    case 0: return load(&function);
    case 1: return launched < loaded ? launch_on(kernels[launched++], used->streams[1], 100) : CUDA_ERROR_NOT_FOUND;
    case 2: return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096);
    case 3: return load_library();
    case 4: return launch_graph();
    case 5: return unload_module();
    case 6: return look_up();
    case 8: return unload_library();
    default: return launch_on(kernels[launched - 1], used->streams[1], 100);
    }
}
