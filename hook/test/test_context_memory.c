/* Memory that ends with its context counts until then and no longer, whatever other threads allocate and free meanwhile. */
#include "check.h"

#include "fake_driver.h"
#include "memory/memory.h"

#define MIB (UINT64_C(1) << 20)
#define PRIMARY FAKE_CONTEXT
#define OTHER ((CUcontext)0x2000)
#define GREEN ((CUcontext)0x3000)

static struct orion_process *process;
static struct orion_gpu *gpu;
static CUcontext current = PRIMARY;
static int is_active = 1;
static CUresult green_answer;
static unsigned questions;

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI get_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = is_active;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI get_green(CUstream stream, CUgreenCtx *green)
{
    CHECK(stream == CU_STREAM_LEGACY);
    questions++;
    *green = current == GREEN ? (CUgreenCtx)0x30 : NULL;
    return green_answer;
}

static uint64_t counted(void) { return atomic_load(&gpu->record->memory_bytes) / MIB; }

static void reserve(uint64_t mib, enum orion_memory_kind kind)
{
    struct orion_wish unused;
    CHECK(orion_memory_reserve(0, mib * MIB, kind, &unused) == ORION_RESERVED);
}

static void allocate_in(CUcontext context, uint64_t key, uint64_t mib)
{
    current = context;
    reserve(mib, ORION_MEMORY_RESIDENT);
    orion_memory_allocated(0, mib * MIB, ORION_MEMORY_RESIDENT, key, CUDA_SUCCESS);
}

static void release(uint64_t key, CUresult result)
{
    struct orion_release released = orion_memory_releasing(key);
    orion_memory_released(&released, result);
}

static void destroy(CUcontext context, CUresult result)
{
    orion_context_ending(context);
    orion_context_destroyed(context, result);
}

static void retain(void)
{
    const CUcontext primary = PRIMARY;
    is_active = 1;
    orion_primary_retained(0, &primary, CUDA_SUCCESS);
}

static void reset(void)
{
    orion_primary_ending(0);
    is_active = 0;
    orion_context_ended();
}

static void only_the_memory_of_the_context_ends(void)
{
    allocate_in(OTHER, 0x10000, 1);
    allocate_in(PRIMARY, 0x20000, 2);
    reserve(4, ORION_MEMORY_RESIDENT);
    orion_memory_reserved(0, 4 * MIB, ORION_MEMORY_RESIDENT, 0x40000, CUDA_SUCCESS); /* as of cuMemCreate */
    CHECK(counted() == 7);
    destroy(OTHER, CUDA_ERROR_INVALID_CONTEXT);
    destroy(NULL, CUDA_SUCCESS);
    CHECK(counted() == 7);
    destroy(OTHER, CUDA_SUCCESS);
    CHECK(counted() == 6);
    reset();
    CHECK(counted() == 4);
    release(0x40000, CUDA_SUCCESS);
    CHECK(counted() == 0);
    retain();
}

static void a_primary_context_that_lives_keeps_its_memory(void)
{
    allocate_in(PRIMARY, 0x10000, 1);
    retain();
    CHECK(!orion_primary_releasing(0));
    CHECK(orion_primary_releasing(0)); /* the driver has another reference */
    orion_context_ended();
    CHECK(counted() == 1);
    retain();
    CHECK(orion_primary_releasing(0));
    is_active = 0;
    orion_context_ended();
    CHECK(counted() == 0);
    retain();
}

/* Another thread gets a context of the same handle before the call that has ended the first one returns. */
static void memory_that_comes_during_the_end_counts_on(void)
{
    allocate_in(OTHER, 0x10000, 1);
    orion_context_ending(OTHER);
    allocate_in(OTHER, 0x20000, 2);
    allocate_in(OTHER, 0x10000, 4); /* the driver gives the address again */
    CHECK(counted() == 6);
    orion_context_destroyed(OTHER, CUDA_SUCCESS);
    CHECK(counted() == 6);
    destroy(OTHER, CUDA_SUCCESS);
    CHECK(counted() == 0);
}

static void a_free_during_the_end_gives_back_once(void)
{
    allocate_in(OTHER, 0x10000, 1);
    allocate_in(PRIMARY, 0x20000, 2);
    orion_context_ending(OTHER);
    struct orion_release released = orion_memory_releasing(0x10000);
    orion_context_destroyed(OTHER, CUDA_SUCCESS);
    CHECK(counted() == 3);
    orion_memory_released(&released, CUDA_SUCCESS);
    release(0x10000, CUDA_SUCCESS);
    CHECK(counted() == 2);
    release(0x20000, CUDA_SUCCESS);
}

/* A broken context refuses to free. */
static void memory_whose_free_fails_still_ends_with_the_context(void)
{
    allocate_in(OTHER, 0x10000, 1);
    release(0x10000, CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(counted() == 1);
    destroy(OTHER, CUDA_SUCCESS);
    CHECK(counted() == 0);
}

static void managed_memory_keeps_the_process_no_longer(void)
{
    current = OTHER;
    reserve(1, ORION_MEMORY_MANAGED);
    orion_memory_allocated(0, MIB, ORION_MEMORY_MANAGED, 0x10000, CUDA_SUCCESS);
    CHECK(orion_memory_is_managed(process) && orion_memory(process)->movable[0] == MIB);
    destroy(OTHER, CUDA_SUCCESS);
    CHECK(!orion_memory_is_managed(process) && orion_memory(process)->movable[0] == 0 && counted() == 0);
}

/* Only a program with green contexts costs a question to the driver, which might end a capture. */
static void memory_that_comes_during_a_capture_ends_with_its_context(void)
{
    atomic_store(&process->captures, 1);
    allocate_in(OTHER, 0x10000, 1);
    atomic_store(&process->captures, 0);
    allocate_in(OTHER, 0x20000, 2);
    CHECK(counted() == 3 && questions == 0);
    destroy(OTHER, CUDA_SUCCESS);
    CHECK(counted() == 0);
}

static void memory_of_a_green_context_is_of_the_primary_context(void)
{
    orion_green_creating(0);
    allocate_in(GREEN, 0x10000, 1);
    CHECK(questions == 1);
    green_answer = CUDA_ERROR_UNKNOWN;
    allocate_in(GREEN, 0x20000, 2); /* the hook does not know */
    green_answer = CUDA_SUCCESS;
    destroy(GREEN, CUDA_SUCCESS); /* a context that got the handle after the green context's end */
    CHECK(counted() == 3);
    reset();
    CHECK(counted() == 2);
    release(0x20000, CUDA_SUCCESS);
    retain();
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    orion_driver.cuCtxGetCurrent = get_current;
    orion_driver.cuDevicePrimaryCtxGetState = get_state;
    orion_driver.cuStreamGetGreenCtx = get_green;
    retain();
    only_the_memory_of_the_context_ends();
    a_primary_context_that_lives_keeps_its_memory();
    memory_that_comes_during_the_end_counts_on();
    a_free_during_the_end_gives_back_once();
    memory_whose_free_fails_still_ends_with_the_context();
    managed_memory_keeps_the_process_no_longer();
    memory_that_comes_during_a_capture_ends_with_its_context();
    memory_of_a_green_context_is_of_the_primary_context();
    puts("context_memory: ok");
    return 0;
}
