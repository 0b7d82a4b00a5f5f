/* A process leaves the GPU and comes back as its grant says; whatever refuses, the program runs on as before. The driver is a
 * fake one, which says what the test wants. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "be/state.h"
#include "core/core.h"
#include "fake_driver.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "parking/parking.h"
#include "parking/room.h"
#include "parking/steps.h"
#include "process/parking_wish.h"
#include "until.h"

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_grant_page *grant;

/* -- A driver that can take a checkpoint of its process -------------------------------------------------------------- */

static _Atomic int state = CU_PROCESS_STATE_RUNNING;
static _Atomic int locks_with = CUDA_SUCCESS, leaves_with = CUDA_SUCCESS, returns_with = CUDA_SUCCESS;
static _Atomic int locked, ends_parker, shares;

static CUresult change(int from, int to, CUresult result)
{
    if (atomic_load(&state) != from) return CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) atomic_store(&state, to);
    return result;
}
static CUresult CUDAAPI fake_lock(int id, CUcheckpointLockArgs *most)
{
    CHECK(id == (int)getpid() && most->timeoutMs > 0);
    atomic_fetch_add(&locked, 1);
    CUresult result = change(CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED, (CUresult)atomic_load(&locks_with));
    if (atomic_exchange(&ends_parker, 0)) pthread_exit(NULL);
    if (atomic_load(&shares)) orion_memory_shared();
    return result;
}
static CUresult CUDAAPI fake_checkpoint(int id, CUcheckpointCheckpointArgs *none)
{
    (void)id, (void)none;
    return change(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED, (CUresult)atomic_load(&leaves_with));
}
static CUresult CUDAAPI fake_restore(int id, CUcheckpointRestoreArgs *none)
{
    (void)id, (void)none;
    return change(CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED, (CUresult)atomic_load(&returns_with));
}
static CUresult CUDAAPI fake_unlock(int id, CUcheckpointUnlockArgs *none)
{
    (void)id, (void)none;
    return change(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING, CUDA_SUCCESS);
}
static CUresult CUDAAPI fake_state(int id, CUprocessState *now)
{
    (void)id;
    *now = (CUprocessState)atomic_load(&state);
    return CUDA_SUCCESS;
}

/* -- The agent's part ------------------------------------------------------------------------------------------------ */

static uint32_t wish(uint32_t number)
{
    atomic_store(&grant->park, number);
    orion_parking_look(process, gpu);
    return number;
}

static uint64_t answer(uint32_t number, CUresult result, enum orion_parking_reason reason, enum orion_parking_state parking)
{
    return orion_pack_parking(number, (uint32_t)result, reason, parking);
}

#define SAYS(...) UNTIL(atomic_load(&gpu->record->parking) == answer(__VA_ARGS__))
#define NOTHING CUDA_SUCCESS, ORION_PARKING_REASON_NONE
#define NOTHING_BUT(reason) CUDA_SUCCESS, ORION_PARKING_REASON_##reason

/* -- A launch of the program ----------------------------------------------------------------------------------------- */

static _Atomic uint32_t launched;

static void *launch(void *none)
{
    (void)none;
    struct orion_work work = {.stream = {(CUstream)0x40, false}, .identity = 1};
    orion_work_begin(&work);
    orion_work_end(&work, CUDA_SUCCESS);
    atomic_fetch_add(&launched, 1);
    return NULL;
}

static bool launches_wait(void) { return atomic_load(&process->errands) & ORION_ERRAND_STAY; }

static void it_leaves_and_comes_back(void)
{
    pthread_t thread;
    wish(1);
    SAYS(1, NOTHING, ORION_PARKING_PARKED);
    CHECK(atomic_load(&state) == CU_PROCESS_STATE_CHECKPOINTED);
    CHECK(launches_wait() && atomic_load(&gpu->record->parking_since_ns) != 0);
    CHECK(pthread_create(&thread, NULL, launch, NULL) == 0);
    UNTIL(atomic_load(&gpu->record->waiting_since_ns) != 0);
    CHECK(atomic_load(&launched) == 0);
    wish(2);
    CHECK(pthread_join(thread, NULL) == 0);
    SAYS(2, NOTHING, ORION_PARKING_RUNNING);
    CHECK(atomic_load(&state) == CU_PROCESS_STATE_RUNNING && atomic_load(&launched) == 1 && !launches_wait());
    CHECK(atomic_load(&process->untouchable) == 0);
}

/* After each refusal the program runs on, and the parker tries again only upon a newer wish. */
static void runs_on(uint32_t number)
{
    CHECK(atomic_load(&state) == CU_PROCESS_STATE_RUNNING && !launches_wait() && atomic_load(&process->untouchable) == 0);
    int before = atomic_load(&locked);
    atomic_fetch_add(&process->parking_notifier, 1);
    orion_futex_wake_all(&process->parking_notifier, false);
    launch(NULL);
    wish(number + 1);
    SAYS(number + 1, NOTHING, ORION_PARKING_RUNNING);
    CHECK(atomic_load(&locked) == before);
}

static void the_driver_refuses(void)
{
    atomic_store(&locks_with, CUDA_ERROR_NOT_READY);
    SAYS(wish(3), CUDA_ERROR_NOT_READY, ORION_PARKING_REASON_LOCK, ORION_PARKING_REFUSED);
    runs_on(3);
    atomic_store(&locks_with, CUDA_SUCCESS);
    atomic_store(&leaves_with, CUDA_ERROR_NOT_SUPPORTED);
    SAYS(wish(5), CUDA_ERROR_NOT_SUPPORTED, ORION_PARKING_REASON_CHECKPOINT, ORION_PARKING_REFUSED);
    runs_on(5);
    atomic_store(&leaves_with, CUDA_SUCCESS);
    atomic_store(&process->captures, 1);
    SAYS(wish(7), NOTHING_BUT(CAPTURING), ORION_PARKING_REFUSED);
    atomic_store(&process->captures, 0);
    runs_on(7);
}

static void it_leaves_when_a_capture_has_ended(uint32_t number)
{
    atomic_store(&process->captures, 1);
    SAYS(wish(number), NOTHING, ORION_PARKING_LEAVING);
    orion_sleep_precisely(300 * ORION_MILLISECOND);
    CHECK(atomic_load(&state) == CU_PROCESS_STATE_RUNNING);
    atomic_store(&process->captures, 0);
    SAYS(number, NOTHING, ORION_PARKING_PARKED);
    SAYS(wish(number + 1), NOTHING, ORION_PARKING_RUNNING);
}

static void it_stops_half_way(void)
{
    atomic_store(&orion_be(gpu)->in_flight_ns, 1000); /* work that does not end */
    SAYS(wish(9), NOTHING, ORION_PARKING_LEAVING);
    SAYS(wish(10), NOTHING, ORION_PARKING_RUNNING);
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
    CHECK(!launches_wait() && atomic_load(&process->untouchable) == 0);
}

static void some_memory_keeps_it(void)
{
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_NONE);
    struct orion_wish unused;
    CHECK(orion_memory_reserve(0, 100, ORION_MEMORY_MANAGED, &unused) == ORION_RESERVED);
    orion_memory_reserved(0, 100, ORION_MEMORY_MANAGED, 0x7000, CUDA_SUCCESS);
    SAYS(wish(11), NOTHING_BUT(MANAGED), ORION_PARKING_REFUSED);
    struct orion_release release = orion_memory_releasing(0x7000);
    orion_memory_released(&release, CUDA_SUCCESS);
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_NONE);
    runs_on(11);
    grant->copy[0].parks = 0;
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_SLOTS);
    grant->copy[0].parks = 1;
    atomic_store(&gpu->role, ORION_ROLE_HP);
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_IS_HP);
    atomic_store(&gpu->role, ORION_ROLE_BE);
    orion_driver.cuCheckpointProcessLock = NULL;
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_NO_DRIVER);
    orion_driver.cuCheckpointProcessLock = fake_lock;
}

/* The lock waits for calls of the program. */
static void memory_that_is_shared_at_the_last_moment_keeps_it(void)
{
    atomic_store(&shares, 1);
    SAYS(wish(13), NOTHING_BUT(IMPORTED), ORION_PARKING_REFUSED);
    runs_on(13);
    atomic_store(&shares, 0);
    atomic_store(&orion_memory(process)->shared, 0);
}

/* A call that the hook counts, such as a query, and that does not return. */
static void a_call_keeps_it(uint32_t number)
{
    enum orion_presence presence = orion_present_try(process);
    CHECK(presence == ORION_COUNTED);
    SAYS(wish(number), NOTHING_BUT(LOCK), ORION_PARKING_REFUSED);
    orion_present_end(process, presence);
    runs_on(number);
}

static void allocate(void)
{
    uint64_t until = 0;
    CHECK(orion_room_may_come(0, 100, &until));
}

static void launch_once(void)
{
    uint32_t before = atomic_load(&launched);
    launch(NULL);
    CHECK(atomic_load(&launched) == before + 1);
}

static void synchronise(void)
{
    enum orion_presence presence = orion_present_begin(process);
    CHECK(presence == ORION_COUNTED);
    orion_present_end(process, presence);
    CHECK(atomic_load(&process->present) == 0);
}

/* A launch, an allocation or a synchronisation that waits starts another parker, which undoes what the first one had begun. */
static void the_program_ends_the_parker(uint32_t number, void (*waits)(void))
{
    atomic_store(&ends_parker, 1);
    wish(number);
    UNTIL(atomic_load(&state) == CU_PROCESS_STATE_LOCKED && !atomic_load(&ends_parker));
    waits();
    CHECK(atomic_load(&state) == CU_PROCESS_STATE_RUNNING);
    SAYS(number, NOTHING, ORION_PARKING_REFUSED); /* else the agent would wait for an answer for ever */
    wish(number + 1);
    SAYS(number + 1, NOTHING, ORION_PARKING_RUNNING);
    CHECK(atomic_load(&process->untouchable) == 0);
}

/* An agent that has lost its state gives new pages, with a word that says nothing about this process: there may be no room. */
static void it_stays_away_until_a_new_agent_knows(uint32_t number)
{
    wish(number);
    SAYS(number, NOTHING, ORION_PARKING_PARKED);
    for (uint32_t unknowing = 0; unknowing <= 2; unknowing += 2) {
        atomic_store(&gpu->record->parking, 0);
        wish(unknowing);
        SAYS(unknowing, NOTHING, ORION_PARKING_PARKED);
        CHECK(atomic_load(&state) == CU_PROCESS_STATE_CHECKPOINTED && launches_wait());
    }
    wish(3);
    SAYS(3, NOTHING, ORION_PARKING_PARKED);
    wish(4);
    SAYS(4, NOTHING, ORION_PARKING_RUNNING);
}

/* The agent changes its mind at any moment, also while the parker reads the wishes: the last wish counts. */
static uint32_t wishes_come_at_any_moment(uint32_t number)
{
    for (uint32_t round = 0; round < 2000; round++) {
        wish(number + 1);
        for (uint32_t i = 0; i < round % 400; i++) orion_pause();
        number = wish(number + 2);
        uint64_t parked = answer(number, NOTHING, ORION_PARKING_PARKED), until = orion_now() + DEADLINE_NS;
        while (atomic_load(&gpu->record->parking) != parked) {
            CHECK(orion_now() < until);
            sched_yield();
        }
    }
    return number;
}

/* The others of its slot leave. */
static void it_stays_until_it_is_asked(uint32_t number)
{
    atomic_store(&grant->stays[0], 1); /* by client index, of which this one has the first */
    wish(number);
    SAYS(number - 1, NOTHING, ORION_PARKING_RUNNING);
    CHECK(atomic_load(&state) == CU_PROCESS_STATE_RUNNING && !launches_wait());
    atomic_store(&grant->stays[0], ~1u);
    wish(number);
    SAYS(number, NOTHING, ORION_PARKING_PARKED);
    wish(number + 1);
    SAYS(number + 1, NOTHING, ORION_PARKING_RUNNING);
}

static void it_is_lost(uint32_t number)
{
    wish(number);
    SAYS(number, NOTHING, ORION_PARKING_PARKED);
    number = wishes_come_at_any_moment(number);
    atomic_store(&returns_with, CUDA_ERROR_OUT_OF_MEMORY);
    number = wish(number + 1);
    SAYS(number, CUDA_ERROR_OUT_OF_MEMORY, ORION_PARKING_REASON_RESTORE, ORION_PARKING_LOST);
    CHECK(!launches_wait());
}

static void shared_memory_keeps_it(void)
{
    orion_memory_shared();
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_IMPORTED);
}

static void a_pool_on_the_host_keeps_it(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    orion_pool_made((CUmemoryPool)0x70, &properties);
    CHECK(!orion_memory_is_on_host(process));
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    orion_pool_made((CUmemoryPool)0x80, &properties);
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_HOST);
    atomic_store(&orion_memory(process)->on_host, 0);
}

static void a_pool_of_managed_memory_keeps_it(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    orion_pool_made((CUmemoryPool)0x50, &properties);
    CHECK(!orion_memory_is_managed(process));
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    orion_pool_made((CUmemoryPool)0x60, &properties);
    CHECK(orion_parking_refusal(process) == ORION_PARKING_REASON_MANAGED);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    grant = (struct orion_grant_page *)(uintptr_t)gpu->grant;
    orion_driver.cuCheckpointProcessLock = fake_lock;
    orion_driver.cuCheckpointProcessCheckpoint = fake_checkpoint;
    orion_driver.cuCheckpointProcessRestore = fake_restore;
    orion_driver.cuCheckpointProcessUnlock = fake_unlock;
    orion_driver.cuCheckpointProcessGetState = fake_state;
    grant->copy[0].parks = 1;
    orion_parking_start(process, gpu);
    it_leaves_and_comes_back();
    the_driver_refuses();
    it_stops_half_way();
    it_leaves_when_a_capture_has_ended(51);
    some_memory_keeps_it();
    memory_that_is_shared_at_the_last_moment_keeps_it();
    a_call_keeps_it(23);
    the_program_ends_the_parker(15, launch_once);
    the_program_ends_the_parker(17, allocate);
    the_program_ends_the_parker(21, synchronise);
    it_stays_away_until_a_new_agent_knows(19);
    it_stays_until_it_is_asked(7);
    it_is_lost(9);
    a_pool_on_the_host_keeps_it();
    shared_memory_keeps_it();
    a_pool_of_managed_memory_keeps_it();
    return 0;
}
