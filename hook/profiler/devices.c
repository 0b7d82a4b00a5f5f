#include "devices.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

const struct profiler_limit profiler_limits[PROFILER_LIMITS] = {
    {"sms", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"threads_per_sm", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"blocks_per_sm", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {"registers_per_sm", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"shared_per_sm", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {"reserved_shared_per_block", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
    {"warp", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {"minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
};

static struct {
    bool known;
    struct profiler_device device;
} devices[PROFILER_DEVICES];

static bool ask(uint32_t number, struct profiler_device *device)
{
    CUresult (*get)(CUdevice *, int), (*get_name)(char *, int, CUdevice);
    CUresult (*get_attribute)(int *, CUdevice_attribute, CUdevice);
    CUdevice handle;
    void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    if (driver == NULL) return false;
    *(void **)&get = dlsym(driver, "cuDeviceGet");
    *(void **)&get_name = dlsym(driver, "cuDeviceGetName");
    *(void **)&get_attribute = dlsym(driver, "cuDeviceGetAttribute");
    dlclose(driver);
    if (get == NULL || get_name == NULL || get_attribute == NULL) return false;
    if (get(&handle, (int)number) || get_name(device->model, sizeof device->model, handle)) return false;
    for (unsigned i = 0; i < PROFILER_LIMITS; i++)
        if (get_attribute(&device->limits[i], (CUdevice_attribute)profiler_limits[i].attribute, handle)) return false;
    return true;
}

void profiler_device_ask(uint32_t number)
{
    if (number >= PROFILER_DEVICES || devices[number].known) return;
    devices[number].known = ask(number, &devices[number].device);
}

const struct profiler_device *profiler_device(uint32_t number)
{
    return number < PROFILER_DEVICES && devices[number].known ? &devices[number].device : NULL;
}
