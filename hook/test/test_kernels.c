/* The hook identifies kernels by their names: both kinds of handles, handles that are reused for other kernels, more
 * kernels than fit, many threads. Also what the hook knows of kernels before it measures them. */
#include "check.h"

#include <pthread.h>
#include <string.h>

#include "be/quiet.h"
#include "core/core.h"
#include "core/lifetimes.h"
#include "fake_driver.h"
#include "interposition/launched.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "learning/kernels.h"
#include "learning/launch.h"
#include "process/process.h"

/* The fake driver's kernels: a CUfunction is 0x1000000 + 64 i, the CUkernel of the same code 0x8000000 + 64 i. */
#define FUNCTIONS UINT64_C(0x1000000)
#define KERNELS UINT64_C(0x8000000)
static _Atomic unsigned asked, generation;
static _Thread_local char name[64];
static bool nameless;

static CUresult tell_name(const char **out, uint64_t handle, uint64_t first)
{
    atomic_fetch_add(&asked, 1);
    if (nameless || handle < first || handle >= first + FUNCTIONS) return CUDA_ERROR_INVALID_HANDLE;
    snprintf(name, sizeof name, "kernel_%u_%llu", atomic_load(&generation), (unsigned long long)(handle - first) / 64);
    *out = name;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI function_name(const char **out, CUfunction function)
{
    return tell_name(out, (uint64_t)(uintptr_t)function, FUNCTIONS);
}
static CUresult CUDAAPI kernel_name(const char **out, CUkernel kernel)
{
    return tell_name(out, (uint64_t)(uintptr_t)kernel, KERNELS);
}
static CUresult CUDAAPI kernel_function(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)((uintptr_t)kernel - KERNELS + FUNCTIONS);
    return CUDA_SUCCESS;
}
static int cluster_width = 1;
static CUresult CUDAAPI attribute(int *value, CUfunction_attribute which, CUfunction function)
{
    if ((uintptr_t)function >= KERNELS) return CUDA_ERROR_INVALID_HANDLE;
    bool of_clusters = which >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && which <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH;
    if (of_clusters) *value = which == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH ? cluster_width : 1;
    else *value = (int)which + ((uintptr_t)function % 128 == 64 ? 7 : 0); /* odd kernels have other code */
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI device_attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)which;
    *value = device == 0 ? 132 : 100;
    return CUDA_SUCCESS;
}
static int devices = 2;
static CUresult CUDAAPI device_count(int *count)
{
    *count = devices;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI on_the_small_device(CUdevice *device)
{
    *device = 1;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI occupancy(int *blocks, CUfunction function, int threads, size_t shared)
{
    (void)function, (void)shared;
    *blocks = 2048 / threads;
    return CUDA_SUCCESS;
}

static struct orion_process *process;
static const void *function(uint64_t i) { return (const void *)(uintptr_t)(FUNCTIONS + 64 * i); }
static const void *library_kernel(uint64_t i) { return (const void *)(uintptr_t)(KERNELS + 64 * i); }
static struct orion_kernel_key key(const void *handle) { return orion_kernel_key(orion_kernels(process), handle); }

static void either_kind_of_handle_is_one_kernel(void)
{
    char text[32];
    unsigned before = atomic_load(&asked);
    CHECK(key(function(1)).name == key(library_kernel(1)).name && key(function(1)).mark == key(library_kernel(1)).mark);
    CHECK(key(function(1)).name == orion_hash_name("kernel_0_1") && key(function(1)).mark != 0);
    CHECK(key(function(2)).name != key(function(1)).name && key(function(2)).mark != key(function(1)).mark);
    CHECK(atomic_load(&asked) == before + 4); /* the hook first queried the CUkernel as a CUfunction */
    CHECK(orion_kernel_text(orion_kernels(process), key(function(2)).name, text, sizeof text) && strcmp(text, "kernel_0_2") == 0);
    CHECK(orion_kernel_text(orion_kernels(process), key(function(2)).name, text, 5) && strcmp(text, "kern") == 0);
    CHECK(!orion_kernel_text(orion_kernels(process), 12345, text, sizeof text));
}

static void unloaded_code_is_asked_about_again(void)
{
    uint64_t before = key(function(3)).name;
    atomic_store(&generation, 1);
    CHECK(key(function(3)).name == before);
    orion_kernels_forget(orion_kernels(process));
    CHECK(key(function(3)).name == orion_hash_name("kernel_1_3"));
    atomic_store(&generation, 0);
    orion_kernels_forget(orion_kernels(process));
}

static CUresult CUDAAPI is_loaded(CUfunctionLoadingState *state, CUfunction function)
{
    if ((uintptr_t)function >= KERNELS) return CUDA_ERROR_INVALID_HANDLE;
    *state = (uintptr_t)function % 128 == 64 ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

static bool has_loaded(uint64_t i) { return orion_quiet_has_loaded(process, &process->gpus[0], library_kernel(i)); }

static void what_a_library_has_loaded_is_there_until_a_library_is_unloaded(void)
{
    CHECK(orion_kernel_loading(library_kernel(1)) == ORION_LOADING_UNKNOWN);
    orion_driver.cuFuncIsLoaded = is_loaded;
    CHECK(orion_kernel_loading(function(1)) == ORION_IS_LOADED && orion_kernel_loading(function(2)) == ORION_NOT_LOADED);
    CHECK(orion_kernel_loading(library_kernel(1)) == ORION_OF_LIBRARY && !has_loaded(1));
    orion_quiet_loads(process, &process->gpus[0], library_kernel(1));
    CHECK(has_loaded(1) && !has_loaded(2) && !orion_quiet_has_loaded(process, &process->gpus[1], library_kernel(1)));
    orion_module_ending();
    CHECK(has_loaded(1));
    orion_library_ending();
    CHECK(!has_loaded(1));
    orion_driver.cuFuncIsLoaded = NULL;
}

static void a_kernel_without_a_name_is_its_handle(void)
{
    nameless = true;
    CHECK(key(function(70)).mark == ORION_IDENTITY_LOCAL && key(function(70)).name != key(function(71)).name);
    CHECK(key(NULL).mark == ORION_IDENTITY_LOCAL);
    nameless = false;
    orion_kernels_forget(orion_kernels(process));
    CHECK(key(function(70)).mark != ORION_IDENTITY_LOCAL);
}

static void many_kernels_are_bounded_and_right(void)
{
    for (uint64_t i = 0; i < 8 * ORION_KERNELS; i++) {
        char text[32];
        snprintf(text, sizeof text, "kernel_0_%llu", (unsigned long long)i);
        CHECK(key(function(i)).name == orion_hash_name(text));
    }
    unsigned before = atomic_load(&asked);
    for (int i = 0; i < 1000; i++) key(function(8 * ORION_KERNELS - 1)), key(function(8 * ORION_KERNELS - 2));
    CHECK(atomic_load(&asked) == before);
}

/* While code is loaded and unloaded: a handle's name comes from a generation that was loaded, never from another
 * kernel. */
static void *hammer(void *argument)
{
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t which = (i * (uint64_t)(uintptr_t)argument) % 6000;
        char text[32];
        bool found = false;
        uint64_t got = key(function(which)).name;
        for (unsigned j = 0; j < 3 && !found; j++) {
            snprintf(text, sizeof text, "kernel_%u_%llu", j, (unsigned long long)which);
            found = got == orion_hash_name(text);
        }
        CHECK(found);
        if (i % 9973 == 0) atomic_store(&generation, (unsigned)(i % 3)), orion_kernels_forget(orion_kernels(process));
    }
    return NULL;
}

static void threads_do_no_harm(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, hammer, (void *)(2 * i + 1)) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    atomic_store(&generation, 0);
    orion_kernels_forget(orion_kernels(process));
}

static uint64_t identity_of(const struct orion_launch *launch) { return orion_launch_identity(process, launch); }

static void facts_come_before_the_first_sample(void)
{
    struct orion_launch launch =
        {.function = function(5), .grid_x = 64, .grid_y = 1, .grid_z = 1, .block_x = 32, .block_y = 32, .block_z = 1};
    struct orion_kernel_facts facts;
    char text[32];
    uint64_t identity = identity_of(&launch);
    CHECK(!orion_kernel_facts(orion_durations(process), identity, &facts));
    CHECK(!orion_kernel_note(process, identity, &launch));
    CHECK(orion_kernel_facts(orion_durations(process), identity, &facts) && facts.sms == 32 && facts.expected_ns == 0);
    CHECK(orion_kernel_name(process, identity, text, sizeof text) && strcmp(text, "kernel_0_5") == 0);
    launch.grid_y = 1000000 / 64;
    identity = identity_of(&launch);
    orion_kernel_note(process, identity, &launch);
    CHECK(orion_kernel_facts(orion_durations(process), identity, &facts) && facts.sms == 132);
}

/* A profile's row contains no code. It applies to the kernel of its name and shape, whatever the kernel's mark. */
static void a_profile_is_used_until_measured(void)
{
    bool sample;
    struct orion_launch launch =
        {.function = function(9), .grid_x = 10, .grid_y = 1, .grid_z = 1, .block_x = 128, .block_y = 1, .block_z = 1};
    struct orion_kernel_facts facts;
    uint64_t identity = identity_of(&launch);
    struct orion_duration *row = orion_duration_claim_for_estimate(orion_durations(process), identity ^ key(launch.function).mark);
    CHECK(identity != row->identity);
    atomic_store(&row->expected_100ns, 1000);
    orion_facts_set_class(row, ORION_CLASS_MEMORY);
    orion_facts_set_flags(row, ORION_FACTS_PROFILE);
    CHECK(orion_duration_expect(orion_durations(process), identity, &sample) == 0);
    CHECK(orion_kernel_note(process, identity, &launch));
    CHECK(orion_duration_expect(orion_durations(process), identity, &sample) == 100000 && sample);
    CHECK(orion_kernel_facts(orion_durations(process), identity, &facts) && facts.kernel_class == ORION_CLASS_MEMORY &&
          facts.sms == 1);
    orion_duration_learn(orion_durations(process), identity, 10000, ORION_SAMPLE_CLEAN);
    CHECK(orion_duration_expect(orion_durations(process), identity, &sample) == 10100);
}

/* Blocks that the largest GPU of the process can run at once may wait for each other, whichever GPU the hook asked. */
static void a_grid_exceeds_the_gpu_or_not(void)
{
    CHECK(!orion_kernel_exceeds_gpu(function(1), 264, 1024, 0) && orion_kernel_exceeds_gpu(function(1), 265, 1024, 0));
    orion_driver.cuCtxGetDevice = on_the_small_device;
    CHECK(!orion_kernel_exceeds_gpu(function(1), 264, 1024, 0) && orion_kernel_exceeds_gpu(function(1), 265, 1024, 0));
    devices = 0;
    CHECK(!orion_kernel_exceeds_gpu(function(1), 200, 1024, 0) && orion_kernel_exceeds_gpu(function(1), 201, 1024, 0));
    orion_driver.cuCtxGetDevice = fake_get_device;
    orion_driver.cuDeviceGetCount = NULL; /* unknown */
    CHECK(!orion_kernel_exceeds_gpu(function(1), 1000000, 1024, 0));
}

/* A green context guarantees only clusters of the portable size. A launch that it refuses would fail in the program. */
static void large_clusters_and_cooperative_launches_stay(void)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {4, 2, 1}};
    CUlaunchConfig config = {.attrs = &attribute, .numAttrs = 1};
    CHECK(orion_may_move(&config));
    attribute.value.clusterDim.z = 2;
    CHECK(!orion_may_move(&config));
    attribute.value.clusterDim.x = attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1u << 16;
    CHECK(!orion_may_move(&config));
    attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CHECK(!orion_may_move(&config));
}

/* The same for clusters that a kernel was compiled for, which no attribute of its launch names. */
static bool may_move(const void *of, int width)
{
    struct orion_kernel_facts facts;
    struct orion_launch launch =
        {.function = of, .grid_x = 100000, .grid_y = 1, .grid_z = 1, .block_x = 1024, .block_y = 1, .block_z = 1};
    cluster_width = width;
    orion_kernel_note(process, identity_of(&launch), &launch);
    orion_kernel_facts(orion_durations(process), identity_of(&launch), &facts);
    return facts.may_move;
}

static void kernels_with_large_clusters_of_their_own_stay(void)
{
    CHECK(may_move(function(20), 0) && may_move(function(21), 8) && may_move(library_kernel(22), 8));
    CHECK(!may_move(function(23), 16) && !may_move(library_kernel(24), 16));
}

int main(void)
{
    fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    orion_driver.cuFuncGetName = function_name;
    orion_driver.cuKernelGetName = kernel_name;
    orion_driver.cuKernelGetFunction = kernel_function;
    orion_driver.cuFuncGetAttribute = attribute;
    orion_driver.cuDeviceGetAttribute = device_attribute;
    orion_driver.cuDeviceGetCount = device_count;
    orion_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor = occupancy;
    either_kind_of_handle_is_one_kernel();
    unloaded_code_is_asked_about_again();
    what_a_library_has_loaded_is_there_until_a_library_is_unloaded();
    a_kernel_without_a_name_is_its_handle();
    many_kernels_are_bounded_and_right();
    facts_come_before_the_first_sample();
    a_profile_is_used_until_measured();
    kernels_with_large_clusters_of_their_own_stay();
    a_grid_exceeds_the_gpu_or_not();
    large_clusters_and_cooperative_launches_stay();
    threads_do_no_harm();
    puts("kernels: ok");
    return 0;
}
