/* hp becomes busy while a capture begins, when no stop may close: the watcher looks again soon, and closes the valve then. */
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

/* At the first sleep the capture has begun, at the second one hp has become idle. */
static void note_sleep(struct orion_process *process, struct orion_gpu *of, uint64_t most_ns)
{
    (void)process;
    bool open = atomic_load(orion_be(of)->valve.page.words) == 0;
    CHECK(open == (sleeps == 0));
    if (open) open_for_ns = most_ns;
    if (sleeps++ == 0)
        orion_capture_changed(ORION_CAPTURE_BEGUN, (struct orion_stream_name){(CUstream)0x100, false}, CUDA_ERROR_UNKNOWN);
    else set_hp(gpu, ORION_IDLE);
}

#define orion_gate_sleep note_sleep
#include "be/valve.c"

int main(void)
{
    fake_pinned_memory();
    gpu = fake_gpu(ORION_ROLE_BE);
    hp_joins(gpu);
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    CHECK(orion_pinned_page_make(&orion_be(gpu)->valve.page));
    atomic_store(&orion_be(gpu)->in_flight_ns, 1000000);
    orion_capture_changing();
    set_hp(gpu, ORION_BUSY);
    close_while_hp_is_busy(orion_process_started(), gpu, 4 * ORION_MILLISECOND);
    CHECK(sleeps == 2 && open_for_ns == WATCH_NS);
    puts("late_close: ok");
    return 0;
}
