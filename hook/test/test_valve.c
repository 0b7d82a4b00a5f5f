/* The valve's watcher opens a closed valve once hp is idle, whatever the launching thread could count. */
#include "check.h"

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

int main(void)
{
    orion_driver.cuStreamWaitValue32_v2 = fake_wait;
    fake_pinned_memory();
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    policy->copy[0].kind = ORION_POLICY_GATE;
    atomic_store(&policy->hp_clients, 1);
    atomic_store(&gpu->hp_generation[0], 1);
    atomic_store(&gpu->hp_count, 1);
    stream_record = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x100, false});
    CHECK(stream_record != NULL);
    await(is_ready);
    for (unsigned i = 0; i < 20; i++) {
        await(is_parked);
        set_hp(ORION_BUSY);
        if (i % 2 == 0) launch_whose_work_is_counted();
        else launch_whose_work_is_not_counted();
    }
    puts("valve: ok");
    return 0;
}
