/* Implements gpu.h. */
#include "gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 1024
#define BLOCKS_PER_SM 2 /* two blocks of this size fill an SM */

/* clang-format off */
#define CALLS(CALL) \
    CALL(cuInit) CALL(cuGetErrorName) CALL(cuDeviceGet) CALL(cuDeviceGetName) CALL(cuDeviceGetUuid) \
    CALL(cuDeviceGetAttribute) CALL(cuDevicePrimaryCtxRetain) CALL(cuCtxSetCurrent) CALL(cuMemAlloc) \
    CALL(cuModuleLoadData) CALL(cuModuleGetFunction) CALL(cuStreamCreate) CALL(cuStreamSynchronize) \
    CALL(cuLaunchKernel) CALL(cuEventCreate) CALL(cuEventRecord) CALL(cuEventSynchronize)
/* clang-format on */

/* cuda.h renames functions to their newest versions by macros, so each pointer is declared and looked up by the renamed
 * name. */
#define POINTER(function) static __typeof__(function) *call_##function;
CALLS(POINTER)

/* Reads the GPU's clock repeatedly and adds up the time between two reads. An interval above 0.1 ms was another
 * context's time slice, and is not counted. So the kernel needs the GPU for the configured time, as a computing kernel
 * does. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 microseconds, .param .u32 sms)\n"
                          "{\n"
                          "    .reg .u64 %left, %before, %now, %passed;\n"
                          "    .reg .pred %mine, %more;\n"
                          "    ld.param.u64 %left, [microseconds];\n"
                          "    mul.lo.u64 %left, %left, 1000;\n"
                          "    mov.u64 %before, %globaltimer;\n"
                          "again:\n"
                          "    mov.u64 %now, %globaltimer;\n"
                          "    sub.u64 %passed, %now, %before;\n"
                          "    mov.u64 %before, %now;\n"
                          "    setp.lt.u64 %mine, %passed, 100000;\n"
                          "    @%mine sub.s64 %left, %left, %passed;\n"
                          "    setp.gt.s64 %more, %left, 0;\n"
                          "    @%more bra again;\n"
                          "    ret;\n"
                          "}\n";
static const char simulated[] = "orion-sim 1\nkernel spin duration_us=@0 sms=@1 params=8,4\n";

static CUfunction spin;
static CUstream stream;
static CUevent marks[2];
static unsigned sms_used;

static void end_with(const char *what, const char *why)
{
    printf("{\"event\":\"error\",\"call\":\"%s\",\"error\":\"%s\"}\n", what, why);
    exit(1);
}

static void check(CUresult result, const char *what)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS) return;
    call_cuGetErrorName(result, &name);
    end_with(what, name ? name : "unknown");
}
#define CHECK(function, ...) check(call_##function(__VA_ARGS__), #function)

static void load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) end_with("dlopen", "there is no libcuda.so.1: this container has no GPU");
#define TEXT(function) #function
#define LOOK_UP(function) \
    if (!(*(void **)&call_##function = dlsym(library, TEXT(function)))) end_with("dlsym", TEXT(function));
    CALLS(LOOK_UP)
}

static void write_uuid(const CUuuid *uuid, char text[41])
{
    int at = sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(text + at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid->bytes[i]);
}

struct gpu gpu_open(int number, size_t memory, int sms)
{
    struct gpu gpu = {.simulated = false};
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUdeviceptr never_used;
    CUuuid uuid;
    load_driver();
    CHECK(cuInit, 0);
    CHECK(cuDeviceGet, &device, number);
    CHECK(cuDeviceGetName, gpu.name, sizeof gpu.name, device);
    CHECK(cuDeviceGetUuid, &uuid, device);
    write_uuid(&uuid, gpu.uuid);
    CHECK(cuDeviceGetAttribute, &gpu.sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    sms_used = (unsigned)(sms > 0 && sms < gpu.sms ? sms : gpu.sms);
    CHECK(cuDevicePrimaryCtxRetain, &context, device);
    CHECK(cuCtxSetCurrent, context);
    if (call_cuModuleLoadData(&module, ptx) != CUDA_SUCCESS) {
        CHECK(cuModuleLoadData, &module, simulated);
        gpu.simulated = true;
    }
    CHECK(cuModuleGetFunction, &spin, module, "spin");
    CHECK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 2; i++) CHECK(cuEventCreate, &marks[i], CU_EVENT_DISABLE_TIMING);
    if (memory) CHECK(cuMemAlloc, &never_used, memory);
    return gpu;
}

void gpu_launch(uint64_t kernels, uint64_t microseconds)
{
    void *parameters[] = {&microseconds, &sms_used};
    for (uint64_t i = 0; i < kernels; i++)
        CHECK(cuLaunchKernel, spin, sms_used * BLOCKS_PER_SM, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

void gpu_wait(void) { CHECK(cuStreamSynchronize, stream); }

void gpu_mark(int number) { CHECK(cuEventRecord, marks[number], stream); }

void gpu_wait_mark(int number) { CHECK(cuEventSynchronize, marks[number]); }
