#include "be/overlap.h"

#include "be/gate.h"
#include "be/partition.h"
#include "be/state.h"
#include "be/stop.h"
#include "be/window.h"
#include "be/work.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "process/gpu.h"
#include "process/notifier.h"
#include "process/plan.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/waits.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define LIMIT_OF_TYPICAL 40u /* 2.5 % of hp's typical busy period: the threshold of Orion (EuroSys'24) */
#define LIMIT_MAX_NS (2 * ORION_MILLISECOND)

/* If memory bandwidth limits both kernels, they gain nothing by running together. Kernels that arithmetic limits run on
 * separate SMs, and do not compete. */
static bool compete(uint32_t hp_class, uint32_t be_class)
{
    return hp_class == ORION_CLASS_MEMORY && be_class == ORION_CLASS_MEMORY;
}

static bool every_hp_permits(const struct orion_gpu *gpu, uint32_t be_class)
{
    uint64_t now = orion_now();
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        const struct orion_busy_page *hp = orion_gpu_neighbour(gpu, i);
        if (atomic_load_explicit(&hp->state, memory_order_relaxed) == ORION_IDLE) continue;
        if (now >= atomic_load_explicit(&hp->overlap_until_ns, memory_order_relaxed)) return false;
        if (compete(orion_current_class(atomic_load_explicit(&hp->current, memory_order_relaxed)), be_class)) return false;
    }
    return true;
}

bool orion_overlap_may_move(struct orion_process *process, const struct orion_work *work)
{
    struct orion_kernel_facts facts;
    if (!work->movable) return false;
    orion_kernel_facts(orion_durations(process), work->identity, &facts);
    return facts.may_move;
}

/* Whether the launch may run beside the hp clients that are busy. expected_ns: its duration on the whole GPU; 0: unknown. */
static bool allows(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                   uint64_t expected_ns)
{
    struct orion_kernel_facts facts;
    struct orion_gpu *gpu = stream_record->gpu;
    if (expected_ns == 0 || orion_plan_holds(gpu)) return false;
    orion_kernel_facts(orion_durations(process), work->identity, &facts);
    if (!every_hp_permits(gpu, facts.kernel_class)) return false;
    if (expected_ns <= orion_window_share(gpu)) return true;
    return orion_overlap_may_move(process, work) && orion_partition_can_move(process, stream_record);
}

bool orion_overlap_is_permitted(const struct orion_gpu *gpu)
{
    return orion_policy_overlaps(gpu) && !orion_plan_holds(gpu) && every_hp_permits(gpu, ORION_CLASS_UNKNOWN);
}

void orion_overlap_publish(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work)
{
    struct orion_kernel_facts facts;
    orion_work_identify(process, work);
    if (!orion_kernel_facts(orion_durations(process), work->identity, &facts)) {
        orion_kernel_note(process, work->identity, &work->launch);
        orion_kernel_facts(orion_durations(process), work->identity, &facts);
    }
    /* Two threads may give the same number to two launches at the same time. be then sees one launch instead of two. */
    uint32_t launch = atomic_load_explicit(&orion_be(gpu)->published, memory_order_relaxed) + 1;
    atomic_store_explicit(&orion_be(gpu)->published, launch, memory_order_relaxed);
    atomic_store_explicit(&gpu->busy->current, orion_pack_current(facts.sms, facts.kernel_class, launch, facts.expected_ns),
                          memory_order_relaxed);
}

uint64_t orion_overlap_limit(const struct orion_gpu *gpu, uint64_t share_ns)
{
    uint64_t limit = LIMIT_MAX_NS;
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        uint64_t typical = atomic_load_explicit(&orion_gpu_neighbour(gpu, i)->typical_ns, memory_order_relaxed);
        if (typical / LIMIT_OF_TYPICAL < limit) limit = typical / LIMIT_OF_TYPICAL;
    }
    uint64_t whole = orion_gpu_policy(gpu)->window_ns;
    if (share_ns < whole) limit = limit * (share_ns / ORION_MICROSECOND) / (whole / ORION_MICROSECOND);
    return limit > share_ns ? limit : share_ns;
}

bool orion_overlap_leaves_sms(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work,
                              uint64_t expected_ns)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    if (policy->kind != ORION_POLICY_ORION || policy->long_kernel_ns == 0 || expected_ns <= policy->long_kernel_ns) return false;
    if (!orion_runs_together(gpu) || orion_gpu_hp_clients(gpu) == 0) return false;
    return orion_overlap_may_move(process, work);
}

/* -- Overlap as a stop ----------------------------------------------------------------------------------------------- */

static enum orion_go may_go(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                            uint64_t expected_ns)
{
    if (!orion_gate_closed(stream_record->gpu)) return ORION_GO_FREELY;
    return allows(process, stream_record, work, expected_ns) ? ORION_GO_BESIDE_HP : ORION_GO_NOT_NOW;
}

/* Waits until hp is idle, or until a busy period begins in which the launch may run beside hp. */
static void wait(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                 uint64_t expected_ns)
{
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t began = orion_waits_begin(gpu);
    orion_thread_revive(gpu);
    while (may_go(process, stream_record, work, expected_ns) == ORION_GO_NOT_NOW)
        orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
    orion_waits_end(gpu, began);
}

const struct orion_stop orion_overlap_stop = {.may_go = may_go, .wait = wait};
