/* Device memory that becomes managed: what is refused, what counts, and when the pager fetches it. The driver is a fake one. */
#include "check.h"

#include "agent/credit.h"
#include "be/gate.h"
#include "fake_driver.h"
#include "memory/memory.h"
#include "memory/pager.h"
#include "memory/unified.h"
#include "process/plan.h"
#include "until.h"

#define MIB (UINT64_C(1) << 20)

/* Changes the grant while the pager reads it, as the agent does from another process, where the sanitizer does not look. */
#define AS_THE_AGENT __attribute__((no_sanitize("thread")))

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_grant_page *page;
static struct orion_grant *grant;

static size_t free_bytes;
static _Atomic uint64_t fetched; /* bytes */
static _Atomic int allocated, freed, advised, fetches_with, done_with, streams;

static CUresult CUDAAPI fake_info(size_t *left, size_t *total)
{
    *left = free_bytes;
    *total = 1024 * MIB;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_managed(CUdeviceptr *at, size_t bytes, unsigned flags)
{
    static CUdeviceptr next = 0x7000000000;
    CHECK(flags == CU_MEM_ATTACH_GLOBAL && bytes != 0);
    *at = next;
    next += 1 << 21;
    atomic_fetch_add(&allocated, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_free(CUdeviceptr at)
{
    (void)at;
    atomic_fetch_add(&freed, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_advise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUmemLocation place)
{
    (void)at, (void)bytes, (void)advice;
    CHECK(place.type == CU_MEM_LOCATION_TYPE_DEVICE && place.id == 0);
    atomic_fetch_add(&advised, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_prefetch(CUdeviceptr at, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream)
{
    CHECK(at != 0 && place.id == 0 && flags == 0 && stream == (CUstream)0x90);
    if (atomic_load(&fetches_with) == CUDA_SUCCESS) atomic_fetch_add(&fetched, bytes);
    return (CUresult)atomic_load(&fetches_with);
}
static CUresult CUDAAPI fake_stream(CUstream *stream, unsigned flags)
{
    CHECK(flags == CU_STREAM_NON_BLOCKING);
    *stream = (CUstream)0x90;
    atomic_fetch_add(&streams, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_stream_end(CUstream stream)
{
    CHECK(stream == (CUstream)0x90);
    atomic_fetch_sub(&streams, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_done(CUstream stream)
{
    CHECK(stream == (CUstream)0x90);
    return (CUresult)atomic_load(&done_with);
}
static CUresult CUDAAPI fake_pop(CUcontext *context)
{
    *context = FAKE_CONTEXT;
    return CUDA_SUCCESS;
}

/* As the wrapper of cuMemAlloc does. */
static CUresult allocate(uint64_t bytes, CUdeviceptr *at)
{
    enum orion_memory_kind kind = orion_unified_kind(0);
    CHECK(kind == ORION_MEMORY_UNIFIED);
    if (!orion_allocation_may_begin(0, bytes, kind)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = orion_unified_allocate(0, at, bytes);
    orion_memory_reserved(0, bytes, kind, result == CUDA_SUCCESS ? *at : 0, result);
    return result;
}

static void release(CUdeviceptr at)
{
    struct orion_release gone = orion_memory_releasing(at);
    orion_memory_released(&gone, CUDA_SUCCESS);
}

static void only_slots_that_say_so_have_it(void)
{
    CHECK(orion_unified_kind(0) == ORION_MEMORY_RESIDENT);
    grant->unified = ORION_UNIFIED_WITHIN;
    CHECK(orion_unified_kind(0) == ORION_MEMORY_UNIFIED && orion_unified_kind(-1) == ORION_MEMORY_RESIDENT);
    atomic_store(&gpu->role, ORION_ROLE_HP);
    CHECK(orion_unified_kind(0) == ORION_MEMORY_RESIDENT);
    atomic_store(&gpu->role, ORION_ROLE_BE);
}

static void what_does_not_fit_a_real_gpu_is_refused(void)
{
    CUdeviceptr at;
    free_bytes = 100 * MIB;
    CHECK(allocate(101 * MIB, &at) == CUDA_ERROR_OUT_OF_MEMORY && atomic_load(&allocated) == 0);
    CHECK(orion_memory(process)->used[0] == 0 && orion_memory(process)->movable[0] == 0);
    CHECK(allocate(100 * MIB, &at) == CUDA_SUCCESS && atomic_load(&allocated) == 1 && atomic_load(&advised) == 2);
    CHECK(atomic_load(&fetched) == 100 * MIB && atomic_load(&streams) == 0); /* at once: the next one sees what is free */
    CHECK(orion_memory(process)->used[0] == 100 * MIB && orion_memory(process)->movable[0] == 100 * MIB);
    CHECK(orion_memory_is_managed(process));
    release(at);
    CHECK(orion_memory(process)->used[0] == 0 && orion_memory(process)->movable[0] == 0 && !orion_memory_is_managed(process));
    atomic_store(&fetches_with, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(allocate(MIB, &at) == CUDA_ERROR_OUT_OF_MEMORY && atomic_load(&freed) == 1 && orion_memory(process)->used[0] == 0);
    atomic_store(&fetches_with, CUDA_SUCCESS);
}

static void rows_begin_where_the_driver_would_begin_them(void)
{
    CUdeviceptr at;
    size_t pitch = 0;
    CHECK(orion_unified_allocate_rows(0, &at, &pitch, 513, 3) == CUDA_SUCCESS && pitch == 1024);
    CHECK(orion_unified_allocate_rows(0, &at, &pitch, SIZE_MAX, 3) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(orion_unified_allocate_rows(0, &at, &pitch, SIZE_MAX / 2, 3) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(orion_unified_is_rows(&pitch, 1, 1, 16) && !orion_unified_is_rows(&pitch, 1, 1, 3));
    CHECK(!orion_unified_is_rows(&pitch, 0, 1, 4) && !orion_unified_is_rows(NULL, 1, 1, 4));
}

AS_THE_AGENT static void grant_memory(uint32_t unified, uint64_t limit, uint64_t request)
{
    grant->unified = unified;
    grant->memory_limit_bytes = limit;
    grant->memory_request_bytes = request;
}

static void what_cannot_move_is_bounded_by_the_request(void)
{
    CUdeviceptr at;
    grant_memory(ORION_UNIFIED_BEYOND, 4096 * MIB, 64 * MIB);
    free_bytes = 0;
    CHECK(allocate(3000 * MIB, &at) == CUDA_SUCCESS);
    CHECK(!orion_allocation_may_begin(0, 65 * MIB, ORION_MEMORY_RESIDENT));
    CHECK(orion_allocation_may_begin(0, 64 * MIB, ORION_MEMORY_RESIDENT));
    CHECK(!orion_allocation_may_begin(0, 1, ORION_MEMORY_RESIDENT));
    CHECK(orion_allocation_may_begin(0, 1000 * MIB, ORION_MEMORY_MANAGED)); /* the program's own */
    CHECK(!orion_allocation_may_begin(0, 1000 * MIB, ORION_MEMORY_MANAGED));
    orion_memory_reserved(0, 1000 * MIB, ORION_MEMORY_MANAGED, 0, CUDA_ERROR_OUT_OF_MEMORY);
    orion_memory_reserved(0, 64 * MIB, ORION_MEMORY_RESIDENT, 0, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(orion_memory(process)->used[0] == 3000 * MIB && orion_memory(process)->movable[0] == 3000 * MIB);
    size_t left = 0, total = 1024 * MIB;
    orion_memory_info(0, &left, &total);
    CHECK(left == 1096 * MIB && total == 4096 * MIB);
    release(at);
    grant_memory(ORION_UNIFIED_BEYOND, 0, 64 * MIB);
}

/* -- The pager ------------------------------------------------------------------------------------------------------- */

AS_THE_AGENT static void plan(uint64_t begin, uint64_t end)
{
    uint32_t other = 1 - atomic_load(&page->current);
    page->copy[other] = *grant;
    grant = &page->copy[other];
    grant->next_begin_ns = begin;
    grant->next_end_ns = end;
    grant->cycle_ns = 100 * ORION_SECOND;
    grant->plan_until_ns = end + 100 * ORION_SECOND;
    atomic_store(&page->current, other);
    atomic_fetch_add(&page->plan, 1);
    orion_futex_wake_all(&page->plan, true);
}

static void the_pages_come_once_for_each_turn(void)
{
    CUdeviceptr one, other;
    CHECK(allocate(3000 * MIB, &one) == CUDA_SUCCESS && allocate(10 * MIB, &other) == CUDA_SUCCESS);
    CHECK(orion_allocation_may_begin(0, 500 * MIB, ORION_MEMORY_MANAGED)); /* the program decides where its own is */
    orion_memory_reserved(0, 500 * MIB, ORION_MEMORY_MANAGED, 0x6000000000, CUDA_SUCCESS);
    atomic_store(&fetched, 0);
    uint64_t now = orion_now();
    plan(now, now + 60 * ORION_SECOND);
    UNTIL(atomic_load(&fetched) == 3010 * MIB && atomic_load(&gpu->pages.took_ns) != 0);
    atomic_store(&fetched, 0);
    plan(now, now + 61 * ORION_SECOND); /* the same turn lasts longer */
    plan(now + 90 * ORION_SECOND, now + 91 * ORION_SECOND);
    now = orion_now();
    plan(now, now + 60 * ORION_SECOND);
    UNTIL(atomic_load(&fetched) == 3010 * MIB); /* and not more: the two plans between brought none */
    CHECK(atomic_load(&streams) == 1);
    release(other);
    now = orion_now();
    atomic_store(&fetched, 0);
    plan(now, now + 60 * ORION_SECOND);
    UNTIL(atomic_load(&fetched) == 3000 * MIB);
}

static void launches_of_a_turn_wait_for_its_pages(void)
{
    atomic_store(&done_with, CUDA_ERROR_NOT_READY);
    atomic_store(&fetched, 0);
    uint64_t begin = orion_now(), end = begin + 60 * ORION_SECOND, most = begin + ORION_PAGES_PART(60 * ORION_SECOND);
    plan(begin, end); /* earlier than the hook could know */
    UNTIL(atomic_load(&fetched) != 0);
    CHECK(orion_plan_holds(gpu) && orion_gate_closed(gpu) && !orion_plan_had_pages(gpu, orion_now()));
    CHECK(orion_plan_opens_at(gpu, orion_now()) == most && orion_plan_opens_at(gpu, most) == most); /* not for ever */
    atomic_store(&done_with, CUDA_SUCCESS);
    UNTIL(!orion_plan_holds(gpu));
    CHECK(atomic_load(&fetched) == 3000 * MIB && !orion_gate_closed(gpu));
    CHECK(orion_plan_had_pages(gpu, orion_now()) && !orion_plan_had_pages(gpu, begin));
    plan(begin, end + ORION_SECOND); /* the same turn */
    CHECK(!orion_plan_holds(gpu));
}

static void nobody_waits_in_short_turns(void)
{
    uint64_t begin = orion_now() + 60 * ORION_SECOND;
    plan(begin, begin + ORION_PAGES_STAY_NS);
    CHECK(orion_plan_opens_at(gpu, begin) == begin);
    plan(begin, begin + 2 * ORION_PAGES_STAY_NS);
    CHECK(orion_plan_opens_at(gpu, begin) == begin + ORION_PAGES_PART(2 * ORION_PAGES_STAY_NS));
}

static void what_comes_for_a_turn_that_is_over_is_left(void)
{
    atomic_store(&done_with, CUDA_ERROR_NOT_READY);
    atomic_store(&fetched, 0);
    uint64_t now = orion_now();
    plan(now, now + 60 * ORION_SECOND);
    UNTIL(atomic_load(&fetched) != 0);
    plan(now + 90 * ORION_SECOND, now + 91 * ORION_SECOND); /* the turn went to another slot */
    atomic_store(&done_with, CUDA_SUCCESS);
    uint64_t begin = orion_now();
    atomic_store(&fetched, 0);
    plan(begin, begin + 60 * ORION_SECOND);
    UNTIL(atomic_load(&gpu->pages.turn_ns) == begin);
    CHECK(!orion_plan_holds(gpu));
}

static void it_rests_when_a_context_has_ended(void)
{
    CUdeviceptr at;
    atomic_fetch_add(&process->context_epoch, 1);
    atomic_store(&fetched, 0);
    uint64_t now = orion_now();
    plan(now, now + 60 * ORION_SECOND);
    UNTIL(atomic_load(&gpu->pages.turn_ns) == now);
    CHECK(!orion_plan_holds(gpu) && !orion_plan_had_pages(gpu, orion_now())); /* page faults bring them, which are not learnt */
    CHECK(allocate(MIB, &at) == CUDA_SUCCESS && atomic_load(&fetched) == 0);
    now = orion_now();
    plan(now, now + 60 * ORION_SECOND);
    UNTIL(atomic_load(&fetched) == 3001 * MIB);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    page = (struct orion_grant_page *)(uintptr_t)gpu->grant;
    grant = &page->copy[0];
    orion_driver.cuMemGetInfo_v2 = fake_info;
    orion_driver.cuMemAllocManaged = fake_managed;
    orion_driver.cuMemFree_v2 = fake_free;
    orion_driver.cuMemAdvise_v2 = fake_advise;
    orion_driver.cuMemPrefetchAsync_v2 = fake_prefetch;
    orion_driver.cuStreamCreate = fake_stream;
    orion_driver.cuStreamDestroy_v2 = fake_stream_end;
    orion_driver.cuStreamSynchronize = fake_done;
    orion_driver.cuStreamQuery = fake_done;
    orion_driver.cuCtxPushCurrent_v2 = fake_push;
    orion_driver.cuCtxPopCurrent_v2 = fake_pop;
    only_slots_that_say_so_have_it();
    what_does_not_fit_a_real_gpu_is_refused();
    rows_begin_where_the_driver_would_begin_them();
    what_cannot_move_is_bounded_by_the_request();
    the_pages_come_once_for_each_turn();
    launches_of_a_turn_wait_for_its_pages();
    nobody_waits_in_short_turns();
    what_comes_for_a_turn_that_is_over_is_left();
    it_rests_when_a_context_has_ended();
    return 0;
}
