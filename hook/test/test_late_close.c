/* hp becomes busy while a capture begins, when no stop may close: the watcher looks again soon, and closes the valve then. While the
 * process parks or exits, stops stay open for long: the watcher need not look so often. */
#include "check.h"
#include "fake_driver.h"
#include "played_hp.h"

#include "be/state.h"
#include "be/stop.h"
#include "be/valve.h"
#include "streams/capture.h"

static struct orion_gpu *gpu;
static unsigned sleeps;
static uint64_t open_for_ns;
static bool sleeps_open;

/* At the first sleep the capture has begun, at the second one hp has become idle. Or hp becomes idle at the first sleep. */
static void note_sleep(struct orion_process *process, struct orion_gpu *of, uint64_t most_ns)
{
    (void)process;
    bool open = atomic_load(orion_be(of)->valve.page.words) == 0;
    CHECK(open == (sleeps == 0));
    if (open) open_for_ns = most_ns;
    if (sleeps++ == 0 && !sleeps_open)
        orion_capture_changed(ORION_CAPTURE_BEGUN, (struct orion_stream_name){(CUstream)0x100, false}, CUDA_ERROR_UNKNOWN);
    else set_hp(gpu, ORION_IDLE);
}

#define orion_gate_sleep note_sleep
#include "be/valve.c"

static void closes_soon_after_a_capture_has_begun(void)
{
    orion_capture_changing();
    set_hp(gpu, ORION_BUSY);
    close_while_hp_is_busy(orion_process_started(), gpu, 4 * ORION_MILLISECOND);
    CHECK(sleeps == 2 && open_for_ns == WATCH_NS);
}

static void sleeps_while_the_valve_stays_open(_Atomic int32_t *why)
{
    orion_forbid_touch(orion_process_started());
    atomic_store(why, 1);
    set_hp(gpu, ORION_BUSY);
    sleeps_open = true, sleeps = 0;
    close_while_hp_is_busy(orion_process_started(), gpu, 4 * ORION_MILLISECOND);
    CHECK(sleeps == 1 && open_for_ns > WATCH_NS);
    atomic_store(why, 0);
    orion_allow_touch(orion_process_started());
}

int main(void)
{
    fake_pinned_memory();
    gpu = fake_gpu(ORION_ROLE_BE);
    hp_joins(gpu);
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    CHECK(orion_pinned_page_make(&orion_be(gpu)->valve.page));
    atomic_store(&orion_be(gpu)->in_flight_ns, 1000000);
    closes_soon_after_a_capture_has_begun();
    sleeps_while_the_valve_stays_open(&orion_process_started()->kept_open);
    sleeps_while_the_valve_stays_open(&orion_process_started()->exits);
    puts("late_close: ok");
    return 0;
}
