/* What every probe needs: the first GPU, a kernel `spin` on it, and a clock. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static CUdevice device;
static CUfunction spin_kernel;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline double now_us(void) { return (double)now_ns() * 1e-3; }

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

/* Loads the kernel `spin` of a module in PTX on the first GPU. */
static void load(const char *source)
{
    CUcontext context;
    CUmodule module;
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device), "context");
    must(cuCtxSetCurrent(context), "context");
    must(cuModuleLoadData(&module, source), "module");
    must(cuModuleGetFunction(&spin_kernel, module, "spin"), "kernel");
}
