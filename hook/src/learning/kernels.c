#include "learning/kernels.h"

#include <string.h>

#define NEIGHBOURHOOD 8u
#define WRITING UINT64_C(1)
#define PARAMETERS_MOST 64u /* a mark contains at most this many parameters */

/* -- Queries of the driver ------------------------------------------------------------------------------------------- */

/* The name of a kernel; NULL: it has no name. A launch's handle may be a CUfunction or a CUkernel; the queries for one
 * kind fail with CUDA_ERROR_INVALID_HANDLE for the other kind. *function becomes the CUfunction; NULL: the kernel has
 * none in the current context. */
static const char *name_of(const void *handle, CUfunction *function)
{
    const char *name = NULL;
    *function = (CUfunction)(uintptr_t)handle;
    if (handle == NULL) return NULL;
    if (orion_driver.cuFuncGetName != NULL && orion_driver.cuFuncGetName(&name, *function) == CUDA_SUCCESS) return name;
    CUkernel kernel = (CUkernel)(uintptr_t)handle;
    if (orion_driver.cuKernelGetName == NULL || orion_driver.cuKernelGetName(&name, kernel) != CUDA_SUCCESS) return NULL;
    if (orion_driver.cuKernelGetFunction == NULL || orion_driver.cuKernelGetFunction(function, kernel) != CUDA_SUCCESS)
        *function = NULL;
    return name;
}

/* The mark distinguishes kernels that have the same name but different code. It is a hash of registers, memory and
 * parameters. 0: the driver does not report these. */
static uint64_t mark_of(CUfunction function)
{
    static const CUfunction_attribute attributes[] = {
        CU_FUNC_ATTRIBUTE_NUM_REGS,         CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,     CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    };
    uint64_t hash = 0;
    size_t offset, size;
    int value;
    if (function == NULL || orion_driver.cuFuncGetAttribute == NULL) return 0;
    for (unsigned i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        if (orion_driver.cuFuncGetAttribute(&value, attributes[i], function) != CUDA_SUCCESS) return 0;
        hash = orion_mix(hash * UINT64_C(0x9e3779b97f4a7c15) + (uint32_t)value + 1);
    }
    size_t parameters = orion_parameters_of_function(function);
    for (unsigned i = 0; i < PARAMETERS_MOST && i < parameters && orion_driver.cuFuncGetParamInfo != NULL; i++) {
        if (orion_driver.cuFuncGetParamInfo(function, i, &offset, &size) != CUDA_SUCCESS) break;
        hash = orion_mix(hash * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)offset << 16) + size + 1);
    }
    return hash & ~ORION_IDENTITY_BITS;
}

bool orion_collective_is_name(const char *kernel)
{
    if (kernel[0] == '_' && kernel[1] == 'Z') /* a mangled C++ function without namespace: _Z, its length, its name */
        for (kernel += 2; *kernel >= '0' && *kernel <= '9';) kernel++;
    return strncmp(kernel, "nccl", 4) == 0;
}

/* -- The table ------------------------------------------------------------------------------------------------------- */

/* A free entry, or an entry of an earlier epoch; else the least recently used entry. NULL: all are being written. */
static struct orion_kernel *victim(struct orion_kernels *kernels, const void *function)
{
    uint32_t clock = atomic_load_explicit(&kernels->clock, memory_order_relaxed), oldest = 0;
    uint64_t epoch = (uint64_t)atomic_load(&kernels->epoch) & 0xffff;
    struct orion_kernel *found = NULL;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_kernel *entry = &kernels->entry[(orion_kernel_home(function) + i) & (ORION_KERNELS - 1)];
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
        if (word == WRITING) continue;
        if (word == 0 || word >> 48 != epoch) return entry;
        uint32_t age = clock - atomic_load_explicit(&entry->used, memory_order_relaxed);
        if (found == NULL || age > oldest) found = entry, oldest = age;
    }
    return found;
}

/* Searches the entries where the kernel may be. *collective, if wanted: read before the entry proves to be the kernel's. */
static bool find(struct orion_kernels *kernels, const void *function, uint64_t word, struct orion_kernel_key *key,
                 uint32_t *collective)
{
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_kernel *entry = &kernels->entry[(orion_kernel_home(function) + i) & (ORION_KERNELS - 1)];
        if (collective != NULL) *collective = atomic_load_explicit(&entry->collective, memory_order_acquire);
        if (orion_kernel_read(kernels, entry, word, key)) return true;
    }
    return false;
}

static void remember(struct orion_kernels *kernels, const void *function, uint64_t word, struct orion_kernel_key key,
                     const char *text)
{
    struct orion_kernel *entry = victim(kernels, function);
    if (entry == NULL) return;
    uint64_t held = atomic_load_explicit(&entry->word, memory_order_relaxed);
    /* A thread that fails to get the entry asks the driver again at the next launch. */
    if (held == WRITING || !atomic_compare_exchange_strong(&entry->word, &held, WRITING)) return;
    /* These stores have release order and their loads acquire order. So a reader that sees one of the new words also
     * sees that the old handle and the old name are gone. */
    uint64_t words[ORION_KERNEL_NAME / 8] = {0};
    memcpy(words, text, strnlen(text, ORION_KERNEL_NAME - 1));
    atomic_store_explicit(&entry->name, 0, memory_order_release);
    for (unsigned i = 0; i < ORION_KERNEL_NAME / 8; i++)
        atomic_store_explicit(&kernels->text[entry - kernels->entry][i], words[i], memory_order_release);
    uint32_t collective = orion_collective_is_name(text);
    if (collective) atomic_store_explicit(&kernels->collectives, 1, memory_order_relaxed);
    atomic_store_explicit(&entry->collective, collective, memory_order_release);
    atomic_store_explicit(&entry->mark, key.mark, memory_order_release);
    atomic_store_explicit(&entry->used, atomic_fetch_add(&kernels->clock, 1) + 1, memory_order_relaxed);
    atomic_store_explicit(&entry->name, key.name, memory_order_release);
    atomic_store_explicit(&entry->word, word, memory_order_release);
}

struct orion_kernel_key orion_kernel_ask(struct orion_kernels *kernels, const void *function)
{
    struct orion_kernel_key key;
    uint64_t word = orion_kernel_word(kernels, function); /* read first: unloading code meanwhile ends the epoch */
    if (find(kernels, function, word, &key, NULL)) return key;
    CUfunction driver_function;
    const char *name = name_of(function, &driver_function);
    if (name == NULL || name[0] == '\0') {
        key = (struct orion_kernel_key){orion_hash_handle(function), ORION_IDENTITY_LOCAL};
        name = "";
    } else {
        key = (struct orion_kernel_key){orion_hash_name(name), mark_of(driver_function)};
    }
    if (word > WRITING) remember(kernels, function, word, key, name);
    return key;
}

bool orion_kernel_is_remembered(struct orion_kernels *kernels, const void *function)
{
    struct orion_kernel_key key;
    return find(kernels, function, orion_kernel_word(kernels, function), &key, NULL);
}

enum orion_loading orion_kernel_loading(const void *function)
{
    CUfunctionLoadingState state;
    if (orion_driver.cuFuncIsLoaded == NULL) return ORION_LOADING_UNKNOWN;
    CUresult result = orion_driver.cuFuncIsLoaded(&state, (CUfunction)(uintptr_t)function);
    if (result == CUDA_ERROR_INVALID_HANDLE) return ORION_OF_LIBRARY;
    if (result != CUDA_SUCCESS) return ORION_LOADING_UNKNOWN;
    return state == CU_FUNCTION_LOADING_STATE_LOADED ? ORION_IS_LOADED : ORION_NOT_LOADED;
}

bool orion_kernel_is_remembered_collective(struct orion_kernels *kernels, const void *function)
{
    struct orion_kernel_key key;
    uint32_t collective;
    return find(kernels, function, orion_kernel_word(kernels, function), &key, &collective) && collective;
}

bool orion_kernel_text(struct orion_kernels *kernels, uint64_t name, char *text, size_t size)
{
    uint64_t words[ORION_KERNEL_NAME / 8];
    const char *copy = (const char *)words;
    for (uint32_t i = 0; i < ORION_KERNELS && name != 0 && size > 0; i++) {
        struct orion_kernel *entry = &kernels->entry[i];
        if (atomic_load_explicit(&entry->name, memory_order_acquire) != name) continue;
        for (unsigned j = 0; j < ORION_KERNEL_NAME / 8; j++)
            words[j] = atomic_load_explicit(&kernels->text[i][j], memory_order_acquire);
        if (atomic_load_explicit(&entry->name, memory_order_relaxed) != name || copy[0] == '\0') continue;
        size_t length = strnlen(copy, sizeof words - 1);
        if (length >= size) length = size - 1;
        memcpy(text, copy, length);
        text[length] = '\0';
        return true;
    }
    return false;
}

/* -- SMs ------------------------------------------------------------------------------------------------------------- */

/* 0: unknown. */
static uint32_t multiprocessors_of(CUdevice device)
{
    int count = 0;
    if (orion_driver.cuDeviceGetAttribute == NULL) return 0;
    if (orion_driver.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS) return 0;
    return count > 0 ? (uint32_t)count : 0;
}

/* The number of SMs of the current context's device; 0: there is no current context. */
static uint32_t multiprocessors(void)
{
    CUdevice device;
    if (orion_driver.cuCtxGetDevice == NULL || orion_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return 0;
    return multiprocessors_of(device);
}

/* The number of SMs of the process's largest device; 0: unknown. */
static uint32_t most_multiprocessors(void)
{
    int devices = 0;
    uint32_t most = multiprocessors();
    if (orion_driver.cuDeviceGetCount == NULL || orion_driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS) return 0;
    for (int i = 0; i < devices && most != 0; i++) {
        uint32_t count = multiprocessors_of(i); /* a device is its number */
        if (count > most) most = count;
    }
    return most;
}

/* The number of blocks that one SM can run at once; 0: unknown. */
static uint32_t blocks_on_sm(const void *function, uint32_t threads, uint32_t shared_bytes)
{
    int each = 0;
    if (function == NULL || threads == 0 || threads > 1024 || orion_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor == NULL)
        return 0;
    /* This driver function accepts both kinds of handles. */
    CUresult result = orion_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, (CUfunction)(uintptr_t)function, (int)threads,
                                                                               shared_bytes);
    return result == CUDA_SUCCESS && each > 0 ? (uint32_t)each : 0;
}

uint32_t orion_kernel_need(const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes)
{
    uint32_t most = multiprocessors(), each = most != 0 ? blocks_on_sm(function, threads, shared_bytes) : 0;
    if (each == 0) return 0;
    uint64_t need = (blocks + each - 1) / each;
    return need > most ? most : (uint32_t)need;
}

bool orion_kernel_exceeds_gpu(const void *function, uint64_t blocks, uint32_t threads, uint32_t shared_bytes)
{
    uint32_t most = most_multiprocessors(), each = most != 0 ? blocks_on_sm(function, threads, shared_bytes) : 0;
    return each != 0 && blocks > (uint64_t)each * most;
}

bool orion_kernel_has_large_clusters(const void *handle)
{
    static const CUfunction_attribute sides[] = {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                                                 CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
                                                 CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH};
    CUfunction function;
    uint64_t blocks = 1;
    name_of(handle, &function); /* finds the function */
    if (function == NULL) return true;
    for (unsigned i = 0; i < sizeof sides / sizeof *sides && orion_driver.cuFuncGetAttribute != NULL; i++) {
        int side = 0;
        if (orion_driver.cuFuncGetAttribute(&side, sides[i], function) == CUDA_SUCCESS && side > 0) blocks *= (uint64_t)side;
    }
    return blocks > ORION_CLUSTER_PORTABLE;
}
