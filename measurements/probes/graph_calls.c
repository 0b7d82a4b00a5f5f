/* Counts the driver calls of a program that concern graphs, for graph_programs.py. The CUDA driver loads this library
 * into the program (CUDA_INJECTION64_PATH); CUPTI reports the calls.
 *
 *   gcc -O2 -Wall -Wextra -shared -fPIC measurements/probes/graph_calls.c -o /tmp/graph_calls.so -ldl */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_CALLS 1 /* CUPTI_CB_DOMAIN_DRIVER_API */
#define ENTER 0        /* CUPTI_API_ENTER, the first field of CUpti_CallbackData */
#define IDS 2048       /* more than CUPTI has names for */

static const char *names[IDS]; /* of the counted functions */
static _Atomic uint64_t counts[IDS];
static char failure[256] = "the driver has not loaded this library";

static void called(void *data, uint32_t domain, uint32_t id, const void *parameters)
{
    (void)data;
    if (domain != DRIVER_CALLS || id >= IDS || *(const int *)parameters != ENTER) return;
    atomic_fetch_add_explicit(&counts[id], 1, memory_order_relaxed);
}

static void *open_cupti(void)
{
    const char *given = getenv("GRAPH_CALLS_CUPTI"); /* a path */
    const char *const tried[] = {"libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                                 "/usr/local/cuda/lib64/libcupti.so"};
    void *library = given ? dlopen(given, RTLD_NOW) : NULL;
    for (size_t i = 0; !library && i < sizeof tried / sizeof tried[0]; i++) library = dlopen(tried[i], RTLD_NOW);
    return library;
}

static int is_counted(const char *name)
{
    static const char *const prefixes[] = {"cuGraph", "cuLaunchKernel", "cuStreamBeginCapture", "cuMemAllocAsync", "cuStreamWaitValue"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i]))) return 1;
    return 0;
}

/* The driver calls this at cuInit. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    void *library = open_cupti(), *subscriber = NULL;
    if (!library) return snprintf(failure, sizeof failure, "no CUPTI: %s", dlerror()), 1;
    uint32_t (*subscribe)(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *);
    uint32_t (*enable)(uint32_t, void *, uint32_t, uint32_t);
    uint32_t (*name_of)(uint32_t, uint32_t, const char **);
    *(void **)&subscribe = dlsym(library, "cuptiSubscribe");
    *(void **)&enable = dlsym(library, "cuptiEnableCallback");
    *(void **)&name_of = dlsym(library, "cuptiGetCallbackName");
    if (!subscribe || !enable || !name_of) return snprintf(failure, sizeof failure, "CUPTI lacks functions"), 1;
    uint32_t result = subscribe(&subscriber, called, NULL);
    if (result) return snprintf(failure, sizeof failure, "cuptiSubscribe: error %u", result), 1;
    for (uint32_t id = 1; id < IDS; id++) {
        const char *name = NULL;
        if (name_of(DRIVER_CALLS, id, &name) || !name || !is_counted(name)) continue;
        if (!enable(1, subscriber, DRIVER_CALLS, id)) names[id] = name;
    }
    failure[0] = 0;
    return 1;
}

/* Why nothing is counted; empty: the calls are counted. */
__attribute__((visibility("default"))) const char *graph_calls_failure(void) { return failure; }

__attribute__((visibility("default"))) void graph_calls_reset(void)
{
    for (uint32_t id = 0; id < IDS; id++) atomic_store(&counts[id], 0);
}

/* Writes lines of "name count" for the functions that were called. */
__attribute__((visibility("default"))) void graph_calls_text(char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t id = 0; id < IDS && used + 1 < size; id++) {
        uint64_t count = atomic_load(&counts[id]);
        if (names[id] && count) used += (size_t)snprintf(text + used, size - used, "%s %llu\n", names[id], (unsigned long long)count);
    }
}
