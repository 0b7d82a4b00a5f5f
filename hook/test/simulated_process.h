/* A process on the simulated GPU whose hook is managed, without an agent: for tests of graphs, which need a driver that
 * keeps them. The test alone writes the GPU's pages, and no thread of the hook reads them. */
#ifndef ORION_TEST_SIMULATED_PROCESS_H
#define ORION_TEST_SIMULATED_PROCESS_H

#include <dlfcn.h>

#include "check.h"
#include "fake_driver.h"
#include "interposition/resolve.h"

#define MUST(call) CHECK((call) == CUDA_SUCCESS)

static struct orion_process *process;
static struct orion_gpu *gpu;

static void *find(void *where, const char *name) { return orion_real_dlsym()(where, name); }

/* Makes the primary context of the first GPU current, as a be client, and loads a text image into it. */
static CUmodule begin_process(const char *image)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    orion_driver_fill(find, dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    gpu = fake_gpu_of(device, ORION_ROLE_BE); /* before the context, which would make a GPU with a thread */
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, image));
    process = orion_process_started();
    atomic_store(&process->managed, 1);
    return module;
}

/* The same as an hp client. Returns a kernel of 20 us. */
static inline CUfunction begin_hp_process(void)
{
    static struct orion_policy_page policy;
    static struct orion_grant_page grant;
    CUfunction function;
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=20\n");
    gpu->policy = &policy;
    gpu->grant = &grant;
    atomic_store(&gpu->role, ORION_ROLE_HP);
    MUST(cuModuleGetFunction(&function, module, "one"));
    return function;
}

/* Only the test says how long work takes. An idle hp client, which has been busy during all work, makes samples worthless. */
static inline void learn_nothing(void)
{
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    atomic_store(&page->drained_ns, UINT64_MAX);
    atomic_store(&gpu->hp_count, 1);
}

#endif
