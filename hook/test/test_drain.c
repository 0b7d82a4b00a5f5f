/* The drain thread uses no context that has ended since it looked for work that is not proven. */
#include "check.h"
#include "fake_driver.h"

#include <sched.h>

#include "core/core.h"
#include "core/lifetimes.h"
#include "hp/drain.h"
#include "hp/marks.h"
#include "hp/state.h"
#include "streams/stream_records.h"
#include "until.h"

#define LAUNCHES 160u

static struct orion_gpu *gpu;
static _Atomic uint32_t queries, uses_of_dead;
static _Atomic bool has_ended;

static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    (void)event;
    atomic_fetch_add(&queries, 1);
    return CUDA_ERROR_NOT_READY;
}
static CUresult CUDAAPI push(CUcontext context)
{
    (void)context;
    atomic_fetch_add(&uses_of_dead, atomic_load(&has_ended));
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI synchronise(void) { return CUDA_SUCCESS; }

static void launch(void)
{
    struct orion_work work = {.stream = {(CUstream)0x5000, false}, .identity = 1};
    orion_work_begin(&work);
    CHECK(work.stream_record != NULL);
    orion_work_end(&work, CUDA_SUCCESS);
}

static void until_it_has_drained(void)
{
    uint64_t until = orion_now() + DEADLINE_NS;
    orion_drain_request(gpu);
    for (; atomic_load(&orion_hp(gpu)->drain_requested); sched_yield()) CHECK(orion_now() < until);
}

/* The thread waits for the last mark before it uses the context, and the context ends meanwhile. */
static void a_context_ends_before_it_is_used(void)
{
    uint64_t until = orion_now() + DEADLINE_NS;
    for (uint32_t i = 0; i < LAUNCHES; i++) launch();
    orion_drain_request(gpu);
    for (; atomic_load(&queries) == 0; sched_yield()) CHECK(orion_now() < until);
    orion_context_ending(FAKE_CONTEXT);
    atomic_store(&has_ended, true);
    orion_context_destroyed(FAKE_CONTEXT, CUDA_SUCCESS);
    until_it_has_drained();
    CHECK(atomic_load(&uses_of_dead) == 0);
}

/* A new context, whose handle is the same. */
static void later_work_is_proven(void)
{
    uint64_t until = orion_now() + DEADLINE_NS;
    atomic_store(&has_ended, false);
    launch();
    CHECK(atomic_load(&gpu->busy->state) == ORION_BUSY);
    orion_drain_request(gpu);
    for (; atomic_load(&gpu->busy->state) == ORION_BUSY; sched_yield()) CHECK(orion_now() < until);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_HP);
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuCtxPushCurrent_v2 = push;
    orion_driver.cuCtxRecordEvent = NULL; /* as with a driver before CUDA 12.5 */
    orion_driver.cuCtxSynchronize = synchronise;
    atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->be_clients, 1);
    a_context_ends_before_it_is_used();
    later_work_is_proven();
    puts("drain: ok");
    return 0;
}
