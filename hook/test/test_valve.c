/* The valve's watcher opens a closed valve once hp is idle, whatever the launching thread could count. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

#include "be/admission.h"
#include "be/state.h"
#include "be/valve.h"
#include "be/work.h"
#include "fake_driver.h"
#include "played_hp.h"
#include "streams/stream_records.h"
#include "until.h"

#define EXPECTED_NS (100 * ORION_MICROSECOND)
#define SHARE_NS (400 * ORION_MICROSECOND)

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_stream_record *stream_record;

static CUresult CUDAAPI fake_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    return CUDA_SUCCESS;
}

static bool is_ready(void) { return orion_valve_ready(process, stream_record); }
static bool is_watched(void) { return orion_valve_is_watched(gpu); }
static bool is_parked(void) { return atomic_load(&orion_be(gpu)->valve.parked) == 1; }
static bool is_awake(void) { return !is_parked(); }
static bool is_open(void) { return atomic_load(orion_be(gpu)->valve.page.words) == 0; }

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
    set_hp(gpu, ORION_IDLE);
    UNTIL(is_open());
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
}

/* Another thread has the ledger: the launch closes the valve, but then it goes without being counted. */
static void launch_whose_work_is_not_counted(void)
{
    CHECK(orion_ledger_try_lock(gpu));
    CHECK(!pass());
    orion_ledger_unlock(gpu);
    set_hp(gpu, ORION_IDLE);
    UNTIL(is_open());
}

/* The watcher was late, so launches are gated on the CPU. It must watch them nevertheless: else it would not find out that it is on
 * time again, nor that the work has ended. */
static void launch_that_the_gate_admits(void)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    struct orion_work work = {.flags = ORION_ADMITTED_SPINS}; /* of known duration */
    UNTIL(is_parked());
    atomic_store(&valve->watched, 1);
    uint32_t notifier = atomic_load(&valve->notifier);
    orion_admit(process, stream_record, &work);
    CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) > 0 && atomic_load(&valve->notifier) != notifier);
    UNTIL(is_awake());
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
}

/* Where contexts run together and hp grants a slowdown, no launch is behind the valve. But with turns somebody must see when the
 * work ends. */
static void launches_that_run_beside_hp_in_turns(struct orion_policy *policy, struct orion_grant *grant)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    policy->kind = ORION_POLICY_ORION;
    policy->max_slowdown_milli = 1500;
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
    *grant = (struct orion_grant){.turn_end_ns = UINT64_MAX, .cycle_ns = 1, .plan_until_ns = UINT64_MAX};
    for (unsigned i = 0; i < 2; i++) {
        struct orion_work work = {.flags = ORION_ADMITTED_SPINS};
        uint32_t notifier = atomic_load(&valve->notifier);
        orion_admit(process, stream_record, &work);
        CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) > 0);
        CHECK(is_watched() || i == 0);
        CHECK(i == 0 || atomic_load(&valve->notifier) != notifier);
        UNTIL(is_watched());
        atomic_store(&orion_be(gpu)->in_flight_ns, 0);
        UNTIL(is_parked());
    }
}

static void set_up(void)
{
    orion_driver.cuStreamWaitValue32_v2 = fake_wait;
    fake_pinned_memory();
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    hp_joins(gpu);
    stream_record = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x100, false});
    CHECK(stream_record != NULL);
}

/* In a process of its own, because this is about the watcher's start. */
static void together(void)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        set_up();
        launches_that_run_beside_hp_in_turns((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu),
                                             (struct orion_grant *)(uintptr_t)orion_gpu_grant(gpu));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    together();
    set_up();
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    UNTIL(is_ready());
    for (unsigned i = 0; i < 20; i++) {
        UNTIL(is_parked());
        set_hp(gpu, ORION_BUSY);
        if (i % 2 == 0) launch_whose_work_is_counted();
        else launch_whose_work_is_not_counted();
    }
    launch_that_the_gate_admits();
    puts("valve: ok");
    return 0;
}
