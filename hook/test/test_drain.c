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
static _Atomic bool has_ended, is_complete;
static _Atomic uintptr_t created; /* the last event */
static _Atomic bool is_drains[1024];
static _Atomic uint32_t recorded, destroyed; /* events of the drain thread */

static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    (void)event;
    atomic_fetch_add(&queries, 1);
    return atomic_load(&is_complete) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult CUDAAPI create_event(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)(atomic_fetch_add(&created, 1) + 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI destroy_event(CUevent event)
{
    if (atomic_exchange(&is_drains[(uintptr_t)event], false)) atomic_fetch_add(&destroyed, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_in_context(CUcontext context, CUevent event)
{
    CHECK(context == FAKE_CONTEXT);
    CHECK((uintptr_t)event < sizeof is_drains);
    atomic_store(&is_drains[(uintptr_t)event], true);
    atomic_fetch_add(&recorded, 1);
    return CUDA_SUCCESS;
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

/* The thread waits on for its event, which is of a context that lives. */
static void another_context_ends_meanwhile(void)
{
    CUcontext other = (CUcontext)0x7777000;
    CHECK(orion_ends_of(orion_process_started(), other) != orion_ends_of(orion_process_started(), FAKE_CONTEXT));
    orion_driver.cuCtxRecordEvent = record_in_context;
    launch();
    orion_drain_request(gpu);
    UNTIL(atomic_load(&recorded) == 1);
    orion_context_ending(other);
    orion_context_destroyed(other, CUDA_SUCCESS);
    atomic_store(&is_complete, true);
    until_it_has_drained();
    UNTIL(atomic_load(&gpu->busy->state) != ORION_BUSY);
    UNTIL(atomic_load(&destroyed) == atomic_load(&recorded));
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_HP);
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuEventCreate = create_event;
    orion_driver.cuEventDestroy_v2 = destroy_event;
    orion_driver.cuCtxPushCurrent_v2 = push;
    orion_driver.cuCtxRecordEvent = NULL; /* as with a driver before CUDA 12.5 */
    orion_driver.cuCtxSynchronize = synchronise;
    atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->be_clients, 1);
    a_context_ends_before_it_is_used();
    later_work_is_proven();
    another_context_ends_meanwhile();
    puts("drain: ok");
    return 0;
}
