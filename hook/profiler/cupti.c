#include "cupti.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *subscriber;

static void called(void *data, uint32_t domain, uint32_t function, const void *parameters)
{
    (void)data, (void)domain, (void)function, (void)parameters; /* no callback is ever enabled */
}

static bool resolve(struct cupti *cupti, void *library)
{
    const struct {
        void *to;
        const char *name;
    } functions[] = {
        {&cupti->subscribe, "cuptiSubscribe"},
        {&cupti->register_callbacks, "cuptiActivityRegisterCallbacks"},
        {&cupti->enable, "cuptiActivityEnable"},
        {&cupti->flush_all, "cuptiActivityFlushAll"},
        {&cupti->next_record, "cuptiActivityGetNextRecord"},
        {&cupti->dropped_records, "cuptiActivityGetNumDroppedRecords"},
        {&cupti->result_text, "cuptiGetResultString"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(library, functions[i].name);
        if (address == NULL) return false;
        memcpy(functions[i].to, &address, sizeof address);
    }
    return true;
}

/* Subscribes to CUPTI. CUPTI refuses a second subscriber, so only one tool at a time can use it. */
static bool begin(struct cupti *cupti, void *library, const char *path, char *why, size_t size)
{
    const char *text = "an unknown error";
    if (!resolve(cupti, library)) {
        snprintf(why, size, "%s is not a CUPTI of CUDA 12 or later", path);
        return false;
    }
    uint32_t result = cupti->subscribe(&subscriber, called, NULL);
    if (result == CUPTI_OK) return true;
    cupti->result_text(result, &text);
    if (result == CUPTI_ANOTHER_SUBSCRIBER)
        snprintf(why, size,
                 "another profiler (torch.profiler, Nsight) traces this process, and CUPTI serves only one; stop the other");
    else snprintf(why, size, "CUPTI (%s) refuses to start: %s (%u)", path, text, result);
    return false;
}

static bool try_path(struct cupti *cupti, const char *path, int flags, char *why, size_t size, bool *found)
{
    if (*found || path[0] == '\0') return false; /* dlopen takes an empty path for the program itself */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    if (library == NULL) return false;
    *found = true; /* the search ends: two CUPTIs in one process would be worse than none */
    return begin(cupti, library, path, why, size);
}

bool cupti_open(struct cupti *cupti, const char *candidates, char *why, size_t size)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12"};
    static const char *const folders[] = {"/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"};
    char path[1024];
    bool found = false;
    snprintf(why, size, "libcupti.so.13 or .12 not found: install nvidia-cuda-cupti in the program's environment");
    for (size_t i = 0; i < 2; i++)
        if (try_path(cupti, names[i], RTLD_NOLOAD, why, size, &found)) return true;
    while (candidates != NULL && *candidates != '\0') {
        size_t length = strcspn(candidates, ":");
        snprintf(path, sizeof path, "%.*s", (int)length, candidates);
        if (try_path(cupti, path, 0, why, size, &found)) return true;
        candidates += length + (candidates[length] == ':');
    }
    for (size_t i = 0; i < 2; i++)
        if (try_path(cupti, names[i], 0, why, size, &found)) return true;
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i / 2], names[i % 2]);
        if (try_path(cupti, path, 0, why, size, &found)) return true;
    }
    return false;
}

const struct cupti_kernel *cupti_next_kernel(const struct cupti *cupti, uint8_t *buffer, size_t valid, struct cupti_record **at)
{
    while (cupti->next_record(buffer, valid, at) == CUPTI_OK)
        if ((*at)->kind == CUPTI_KIND_CONCURRENT_KERNEL) return (const struct cupti_kernel *)*at;
    return NULL;
}
