/* The valve's watcher opens a closed valve once hp is idle, whatever the launching thread could count. */
#include "check.h"

#include "be/admission.h"
#include "be/state.h"
#include "be/valve.h"
#include "be/work.h"
#include "fake_driver.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define EXPECTED_NS (100 * ORION_MICROSECOND)
#define SHARE_NS (400 * ORION_MICROSECOND)
#define DEADLINE_NS (20 * ORION_SECOND)

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_stream_record *stream_record;

static CUresult CUDAAPI fake_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    return CUDA_SUCCESS;
}

static void set_hp(enum orion_busy_state state)
{
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    atomic_store(&page->heartbeat_ns, orion_now() + ORION_SECOND);
    atomic_store(&page->state, state);
    orion_futex_wake_all(&page->state, true);
}

static bool is_ready(void) { return orion_valve_ready(process, stream_record); }
static bool is_trusted(void) { return atomic_load(&orion_be(gpu)->valve.watched) == 2; }
static bool is_parked(void) { return atomic_load(&orion_be(gpu)->valve.parked) == 1; }
static bool is_open(void) { return atomic_load(orion_be(gpu)->valve.page.words) == 0; }

static void await(bool (*condition)(void))
{
    for (uint64_t began = orion_now(); !condition(); orion_sleep_precisely(ORION_MILLISECOND))
        CHECK(orion_now() < began + DEADLINE_NS);
}

static bool pass(void)
{
    const struct orion_work work = {0};
    return orion_valve_pass(process, stream_record, &work, &orion_valve_stop, EXPECTED_NS, SHARE_NS);
}

static void launch_whose_work_is_counted(void)
{
    atomic_store(&orion_be(gpu)->in_flight_ns, EXPECTED_NS);
    CHECK(pass());
    CHECK(!is_open());
    set_hp(ORION_IDLE);
    await(is_open);
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
}

/* Another thread has the ledger: the launch closes the valve, but then it goes without being counted. */
static void launch_whose_work_is_not_counted(void)
{
    CHECK(orion_ledger_try_lock(gpu));
    CHECK(!pass());
    orion_ledger_unlock(gpu);
    set_hp(ORION_IDLE);
    await(is_open);
}

/* The watcher was late, so launches are gated on the CPU. It must watch them nevertheless: else it would not find out that it is on
 * time again, nor that the work has ended. */
static void launch_that_the_gate_admits(void)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    struct orion_work work = {.flags = ORION_ADMITTED_SPINS}; /* of known duration */
    await(is_parked);
    atomic_store(&valve->watched, 1);
    uint32_t notifier = atomic_load(&valve->notifier);
    orion_admit(process, stream_record, &work);
    CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) > 0 && atomic_load(&valve->notifier) != notifier);
    await(is_trusted);
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
}

/* Where contexts run together and hp grants a slowdown, no launch is behind the valve. But with turns somebody must see when the
 * work ends. */
static void launches_that_run_beside_hp_in_turns(struct orion_policy *policy, struct orion_grant *grant)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    uint32_t notifier = 0;
    policy->kind = ORION_POLICY_ORION;
    policy->max_slowdown_milli = 1500;
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
    *grant = (struct orion_grant){.turn_end_ns = UINT64_MAX, .cycle_ns = 1, .plan_until_ns = UINT64_MAX};
    for (unsigned i = 0; i < 2; i++) {
        struct orion_work work = {.flags = ORION_ADMITTED_SPINS};
        orion_admit(process, stream_record, &work);
        CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) > 0);
        await(is_trusted);
        CHECK(i == 0 || atomic_load(&valve->notifier) != notifier);
        atomic_store(&orion_be(gpu)->in_flight_ns, 0);
        await(is_parked);
        notifier = atomic_load(&valve->notifier);
    }
    *grant = (struct orion_grant){0};
    atomic_store(&gpu->sharing, ORION_SHARING_TIME_SLICED);
}

int main(void)
{
    orion_driver.cuStreamWaitValue32_v2 = fake_wait;
    fake_pinned_memory();
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    struct orion_grant_page *grant = (struct orion_grant_page *)(uintptr_t)gpu->grant;
    atomic_store(&policy->hp_clients, 1);
    atomic_store(&gpu->hp_generation[0], 1);
    atomic_store(&gpu->hp_count, 1);
    stream_record = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x100, false});
    CHECK(stream_record != NULL);
    launches_that_run_beside_hp_in_turns(&policy->copy[0], &grant->copy[0]);
    policy->copy[0].kind = ORION_POLICY_GATE;
    await(is_ready);
    for (unsigned i = 0; i < 20; i++) {
        await(is_parked);
        set_hp(ORION_BUSY);
        if (i % 2 == 0) launch_whose_work_is_counted();
        else launch_whose_work_is_not_counted();
    }
    launch_that_the_gate_admits();
    puts("valve: ok");
    return 0;
}
