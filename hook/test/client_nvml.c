/* Asks NVML for the first GPU's memory in every way that programs use, and prints a line for each: WAY total used free.
 *
 * With an argument the program is a CUDA client first. Without one it calls NVML only. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "orion/nvml.h"

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned, orion_nvml_device *);
int nvmlDeviceGetMemoryInfo(orion_nvml_device, struct orion_nvml_memory *);

typedef int ask(orion_nvml_device, struct orion_nvml_memory *);
typedef void *look_up(void *, const char *);

static orion_nvml_device device;

static void must(int result)
{
    if (result != 0) exit(result < 120 ? result : 120);
}

static void say(const char *way, ask *asked)
{
    struct orion_nvml_memory memory = {0};
    if (asked == NULL) exit(121);
    must(asked(device, &memory));
    printf("%s\t%llu\t%llu\t%llu\n", way, memory.total, memory.used, memory.free);
}

static void use_gpu(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2");
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(driver, "cuMemAlloc_v2");
    must(init(0));
    must(create(&context, 0, 0));
    must(allocate(&context, 64 << 20));
}

int main(int count, char **arguments)
{
    const char *name = "nvmlDeviceGetMemoryInfo";
    (void)arguments;
    if (count > 1) use_gpu();
    must(nvmlInit_v2());
    must(nvmlDeviceGetHandleByIndex_v2(0, &device));
    void *library = dlopen(ORION_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    say("linked", nvmlDeviceGetMemoryInfo);
    say("handle", (ask *)dlsym(library, name));
    say("default", (ask *)dlsym(RTLD_DEFAULT, name));
    say("next", (ask *)dlsym(RTLD_NEXT, name));
    say("looked-up dlsym", (ask *)((look_up *)dlsym(RTLD_DEFAULT, "dlsym"))(library, name));
    return dlsym(library, "nvmlDeviceGetMemoryInfo_v9") != NULL;
}
