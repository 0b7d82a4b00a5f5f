/* A launch and a call that loads code, on two threads at once: either the call sees that work is behind the valve and waits, or the
 * launch sees the call and does not go behind the valve. */
#include "check.h"

#include "be/quiet.h"
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
static bool watching, seen; /* by the other thread, which looks while the driver puts the wait into the stream */

static CUresult CUDAAPI fake_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    if (watching) seen = orion_valve_may_hold(gpu);
    return CUDA_SUCCESS;
}

static bool is_ready(void) { return orion_valve_ready(process, stream_record); }

static bool pass(void)
{
    const struct orion_work work = {0};
    return orion_valve_pass(process, stream_record, &work, &orion_valve_stop, EXPECTED_NS, SHARE_NS);
}

static void call_begins_after_the_launch_looked(void)
{
    watching = true;
    CHECK(pass());
    CHECK(seen);
    watching = false;
}

static void call_begins_before_the_launch_looks(void)
{
    atomic_fetch_add(&orion_be(gpu)->quiet, 1);
    CHECK(!pass());
    atomic_fetch_sub(&orion_be(gpu)->quiet, 1);
    CHECK(pass());
}

int main(void)
{
    orion_driver.cuStreamWaitValue32_v2 = fake_wait;
    fake_pinned_memory();
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    hp_joins(gpu);
    stream_record = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x100, false});
    UNTIL(is_ready());
    atomic_store(&orion_be(gpu)->in_flight_ns, EXPECTED_NS); /* as admission counts a launch before it passes the valve */
    call_begins_after_the_launch_looked();
    call_begins_before_the_launch_looks();
    puts("quiet: ok");
    return 0;
}
