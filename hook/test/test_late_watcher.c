/* A program launches behind work that ends only after a later launch, as behind a stream's wait for a word that a kernel writes. While
 * the valve's watcher is late, the hook waits for the second without progress once, as it does while the watcher is on time. */
#include "check.h"

#include "be/admission.h"
#include "be/state.h"
#include "be/valve.h"
#include "be/window.h"
#include "be/work.h"
#include "fake_driver.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define WINDOW_NS (400 * ORION_MICROSECOND)
#define KERNEL_NS (300 * ORION_MICROSECOND)
#define IDENTITY 0x1234u
#define LAUNCHES 100u /* more than may be in flight behind an open valve */

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_stream_record *stream_record;
static uint64_t now = 1000 * ORION_SECOND;
static unsigned waits;
static bool is_complete; /* the work in flight */

/* The clock of this test. The linker takes these functions instead of those of system.c. */
uint64_t orion_now(void) { return now += 100; }
void orion_sleep_precisely(uint64_t nanoseconds) { now += nanoseconds; }
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared) { (void)word, (void)shared; }
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    (void)word, (void)value, (void)shared;
    now += timeout_ns;
}

static CUresult CUDAAPI put_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    waits++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    (void)event;
    return is_complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult CUDAAPI no_time(float *milliseconds, CUevent start, CUevent end)
{
    (void)milliseconds, (void)start, (void)end;
    return CUDA_ERROR_NOT_READY;
}

/* Returns for how long the launches were held. */
static uint64_t launch(unsigned launches)
{
    uint64_t began = now;
    for (unsigned i = 0; i < launches; i++) {
        struct orion_work work = {.identity = IDENTITY};
        orion_admit(process, stream_record, &work);
        orion_window_launched(process, stream_record, work.expected_ns, now, work.flags);
    }
    return now - began;
}

static void all_completes(void)
{
    is_complete = true;
    orion_window_reap(process, gpu);
    orion_window_drained(process, stream_record);
    orion_window_reap(process, gpu);
    CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) == 0);
    is_complete = false;
}

/* Work that completes as it should: each launch waits until it is the only one, and none is behind the valve. */
static void is_held_by_the_window(void)
{
    unsigned before = waits;
    for (unsigned i = 0; i < 5; i++) launch(1), all_completes();
    CHECK(waits == before);
}

static void set_up(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    fake_pinned_memory();
    orion_driver.cuStreamWaitValue32_v2 = put_wait;
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuEventElapsedTime_v2 = no_time;
    atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->hp_clients, 1);
    *(struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu) =
        (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = WINDOW_NS};
    ((struct orion_grant *)(uintptr_t)orion_gpu_grant(gpu))->window_share_ns = WINDOW_NS;
    stream_record = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x100, false});
    CHECK(stream_record != NULL);
    for (unsigned i = 0; i < 40; i++) orion_duration_learn(orion_durations(process), IDENTITY, KERNEL_NS, ORION_SAMPLE_CLEAN);
    orion_be(gpu)->valve.watched = 1; /* late, as this test says: there is no watcher, and no thread that retires work */
    CHECK(orion_pinned_page_pin(process, stream_record, &orion_be(gpu)->valve.page, &orion_be(gpu)->valve.refused));
}

int main(void)
{
    set_up();
    CHECK(!orion_valve_ready(process, stream_record));
    is_held_by_the_window();
    /* A second before the first launch that does not fit, and one when all that runs ahead does not. */
    CHECK(launch(LAUNCHES) < 3 * ORION_SECOND && waits > 0);
    all_completes();
    is_held_by_the_window();
    /* A kernel that is known to wait for its program. */
    orion_facts_set_flags(orion_duration_claim(orion_durations(process), IDENTITY), ORION_FACTS_AWAITS_PROGRAM);
    CHECK(launch(LAUNCHES) < ORION_SECOND);
    all_completes();
    is_held_by_the_window();
    puts("late_watcher: ok");
    return 0;
}
