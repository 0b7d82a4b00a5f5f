/* cuGetProcAddress: finds a symbol by function, version and kind of default stream. It finds only
 * exported symbols. */
#include <string.h>

#define __CUDA_API_VERSION_INTERNAL
#include "proc_address.h"
#include "sim.h"

SIM_EXPORT CUresult CUDAAPI cuProfilerInitialize(const char *config, const char *output, int mode);
SIM_EXPORT CUresult CUDAAPI cuProfilerStart(void);
SIM_EXPORT CUresult CUDAAPI cuProfilerStop(void);

SIM_EXPORT CUresult CUDAAPI cuLaunchOfTheFuture(CUfunction function, CUstream stream, void **parameters);

static const struct entry {
    const char *name;
    int version;
    bool per_thread;
    void *symbol;
} entries[] = {
#define ENTRY(function, version, per_thread, symbol) {#function, version, per_thread, (void *)symbol},
#include "generated/entries.inc"
#undef ENTRY
    {"cuLaunchOfTheFuture", 13000, false, (void *)cuLaunchOfTheFuture},
};

#define FLAGS (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

static bool left_out(const char *name)
{
    return &sim_without_checkpoint && sim_without_checkpoint && !strncmp(name, "cuCheckpoint", strlen("cuCheckpoint"));
}

/* Returns the newest entry that `version` allows; if `per_thread` is true, a per-thread entry where one exists. */
static const struct entry *find(const char *name, int version, bool per_thread, bool *known)
{
    const struct entry *best = NULL;
    if (left_out(name)) return NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const struct entry *entry = &entries[i];
        if (strcmp(entry->name, name) || (entry->per_thread && !per_thread)) continue;
        *known = true;
        if (entry->version <= version && (!best || entry->per_thread > best->per_thread ||
                                          (entry->per_thread == best->per_thread && entry->version >= best->version)))
            best = entry;
    }
    return best;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status)
{
    bool known = false;
    SIM_REFUSE(!name || !function || (flags & ~(cuuint64_t)FLAGS) || flags == FLAGS, CUDA_ERROR_INVALID_VALUE);
    const struct entry *entry = find(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &known);
    *function = entry ? entry->symbol : NULL;
    if (status)
        *status = entry   ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return entry || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
