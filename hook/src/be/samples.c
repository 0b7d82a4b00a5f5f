#include "be/samples.h"

#include "be/accounts.h"
#include "be/chunks.h"
#include "be/gate.h"
#include "be/gpu_clock.h"
#include "be/state.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "process/gpu.h"
#include "process/plan.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define AWAITED_NS (ORION_SECOND / 2)         /* a launch that awaits the program ran for so long while nothing completed */
#define SAMPLES_TO_TRUST 8u                   /* time slices hardly ever lengthen the shortest of this many samples */
#define CLOCK_LATE_NS (ORION_MILLISECOND / 5) /* times of the GPU's clock may be late, hardly ever by more (gpu_clock.h) */

/* A lower bound of a kernel's duration, 0 if unknown. With time-slicing, a sample may include the time slices of other
 * contexts. Of several samples, at least one usually includes none. */
static uint64_t lower_bound_ns(struct orion_process *process, uint64_t identity, uint64_t measured_ns, bool time_sliced)
{
    struct orion_kernel_facts facts;
    if (!time_sliced) return measured_ns;
    orion_kernel_facts(orion_durations(process), identity, &facts);
    return facts.samples < SAMPLES_TO_TRUST ? 0 : facts.expected_ns;
}

/* Whether hp may have been busy during the sample. Its launch may have been long before, behind much other work. *began: when it began on
 * the GPU; 0: unknown. */
static bool was_beside_hp(const struct orion_stream_record *stream_record, const struct orion_chunk *chunk, uint64_t *began)
{
    const struct orion_gpu *gpu = stream_record->gpu;
    *began = 0;
    if (!orion_gate_hp_was_busy_since(gpu, chunk->begun_ns)) return false;
    if (!orion_gpu_clock_read(&orion_be(gpu)->clock, stream_record, chunk->timed_start, began)) *began = 0;
    return *began == 0 || orion_gate_hp_was_busy_since(gpu, *began - CLOCK_LATE_NS);
}

/* Lowers *to, or raises *from, so that hp was idle between them. False: it may have been busy all the time. */
static bool leave_out(const struct orion_busy_page *page, uint64_t *from, uint64_t *to)
{
    uint64_t drained = atomic_load_explicit(&page->drained_ns, memory_order_acquire);
    uint32_t state = atomic_load(&page->state);
    uint64_t since = atomic_load_explicit(&page->busy_since_ns, memory_order_acquire);
    if (atomic_load_explicit(&page->drained_ns, memory_order_relaxed) != drained) return false;
    if (drained > *from) *from = drained;
    if (since > drained) *to = since < *to ? since : *to;
    else if (state != ORION_IDLE && state != ORION_LINGER) return false; /* busy again after a linger, since an unknown time */
    return *from < *to;
}

/* What the work took at least: the part of its sample in which the GPU had nothing else to do; 0: unknown. If it was launched while the
 * GPU was at other work, no pause of its thread is in the sample. */
static uint64_t least_ns(const struct orion_stream_record *stream_record, const struct orion_chunk *chunk, uint64_t began,
                         uint64_t measured_ns)
{
    const struct orion_gpu *gpu = stream_record->gpu;
    uint64_t from = began, to = began + measured_ns, now = orion_now();
    if (to > now) to = now; /* the GPU's clock is late */
    uint64_t returned = chunk->begun_ns + chunk->bounds.returned_ms * ORION_MILLISECOND;
    if (chunk->bounds.returned_ms == UINT8_MAX || began < returned + CLOCK_LATE_NS) return 0;
    /* Perhaps other clients, or other streams, had the GPU or some of its SMs meanwhile. */
    if (orion_gpu_be_clients(gpu) > 1 || orion_be(gpu)->stream_records_at_work > 1) return 0;
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++)
        if (!leave_out(orion_gpu_neighbour(gpu, i), &from, &to)) return 0;
    return to > from + CLOCK_LATE_NS ? to - from - CLOCK_LATE_NS : 0;
}

void orion_sample_learn(struct orion_process *process, const struct orion_stream_record *stream_record,
                        const struct orion_chunk *chunk)
{
    float milliseconds = 0;
    uint64_t began;
    struct orion_gpu *gpu = stream_record->gpu;
    if (chunk->identity == 0) return;
    bool had_pages = orion_plan_had_pages(gpu, chunk->begun_ns); /* else the sample may contain page faults */
    if (!(had_pages || chunk->bounds.awaits_program)) return;
    if (orion_driver.cuEventElapsedTime(&milliseconds, chunk->timed_start, chunk->end) != CUDA_SUCCESS) return;
    if (!(milliseconds >= 0 && milliseconds < 1e6f)) return;
    uint64_t measured_ns = (uint64_t)((double)milliseconds * 1e6);
    if (chunk->bounds.awaits_program && measured_ns > AWAITED_NS)
        orion_facts_set_flags(orion_duration_claim(orion_durations(process), chunk->identity), ORION_FACTS_AWAITS_PROGRAM);
    if (!had_pages) return;
    if (was_beside_hp(stream_record, chunk, &began)) {
        uint64_t least = least_ns(stream_record, chunk, began, measured_ns);
        orion_duration_learn_between(orion_durations(process), chunk->identity, least, measured_ns);
        return;
    }
    bool time_sliced = !orion_runs_together(gpu) && orion_gpu_be_clients(gpu) > 1;
    orion_duration_learn(orion_durations(process), chunk->identity, measured_ns,
                         time_sliced ? ORION_SAMPLE_TIME_SLICED : ORION_SAMPLE_CLEAN);
    orion_account_long_kernel(process, gpu, chunk->identity, lower_bound_ns(process, chunk->identity, measured_ns, time_sliced));
    atomic_fetch_add_explicit(&gpu->record->samples, 1, memory_order_relaxed);
    atomic_store_explicit(&gpu->record->kernels_known, atomic_load(&orion_durations(process)->known), memory_order_relaxed);
}
