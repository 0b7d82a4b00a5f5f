#include "baselines/baselines.h"

#include <stdatomic.h>

#include "be/baseline_seam.h"
#include "be/gate.h"
#include "be/window.h"
#include "be/work.h"
#include "learning/durations.h"
#include "process/gpu.h"
#include "process/notifier.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/waits.h"
#include "streams/stream_records.h"
#include "system/system.h"

/* Nothing wakes a waiter at hp's next launch; the originals poll all the time. */
#define POLL_NS (20 * ORION_MICROSECOND)
#define UNLIMITED (UINT64_C(1) << 62)

/* What a process keeps of each GPU for the baselines. */
struct orion_baseline {
    _Atomic uint32_t paired;   /* be, reef: number of the hp launch that be's last launch beside hp followed */
    _Atomic uint64_t burst_ns; /* be: expected time and number of launches since the last drain */
    _Atomic uint32_t burst_launches;
    _Atomic uint64_t iterated; /* ticktock: work begun on the GPU when this client's latest iteration ended */
    /* be, ticktock: iterations that be and hp had ended when be's latest one began. */
    _Atomic uint64_t turn_own, turn_hp;
};
static struct orion_baseline baselines[ORION_GPUS];
static struct orion_baseline *baseline_of(const struct orion_gpu *gpu) { return &baselines[gpu - orion_the_process->gpus]; }

/* -- The rules ------------------------------------------------------------------------------------------------------- */

bool orion_reef_pairs(const struct orion_candidate *be, uint64_t hp_current)
{
    uint64_t hp_ns = orion_current_ns(hp_current);
    uint32_t hp_sms = orion_current_sms(hp_current);
    if (hp_ns == 0 || hp_sms == 0 || be->facts.expected_ns == 0) return false;
    return be->facts.expected_ns <= hp_ns && be->facts.sms >= hp_sms;
}

bool orion_2024_pairs(const struct orion_policy *policy, const struct orion_candidate *be, uint64_t hp_current)
{
    if (!be->is_kernel) return true;
    uint32_t most = policy->orion_2024_sms, hp_class = orion_current_class(hp_current);
    if (most != 0 && (be->facts.sms == 0 || be->facts.sms > most)) return false;
    return hp_class == ORION_CLASS_UNKNOWN || be->facts.kernel_class == ORION_CLASS_UNKNOWN || hp_class != be->facts.kernel_class;
}

bool orion_ticktock_allows(uint64_t turn_own, uint64_t turn_hp, uint64_t own, uint64_t hp)
{
    return own == turn_own || hp != turn_hp;
}

bool orion_burst_is_over(const struct orion_policy *policy, uint64_t burst_ns, uint32_t burst_launches)
{
    if (policy->kind == ORION_POLICY_REEF) return burst_launches >= (policy->reef_depth > 0 ? policy->reef_depth : 1);
    return policy->kind == ORION_POLICY_ORION_2024 && burst_ns > policy->orion_2024_duration_ns;
}

uint64_t orion_burst_cost(const struct orion_policy *policy, const struct orion_candidate *be)
{
    if (!be->is_kernel) return 0;
    if (be->facts.expected_ns != 0) return be->facts.expected_ns;
    return policy->orion_2024_duration_ns < UNLIMITED ? policy->orion_2024_duration_ns + 1 : UNLIMITED;
}

/* -- What hp does now ------------------------------------------------------------------------------------------------ */

/* Sums over the hp clients. A sum changes when the number of one client changes. */
static uint64_t iterations_of_hp(const struct orion_gpu *gpu)
{
    uint64_t iterations = 0;
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++)
        iterations += atomic_load_explicit(&orion_gpu_neighbour(gpu, i)->iterations, memory_order_relaxed);
    return iterations;
}

static uint32_t launches_of_hp(const struct orion_gpu *gpu)
{
    uint32_t launches = 0;
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++)
        launches += orion_current_launch(atomic_load_explicit(&orion_gpu_neighbour(gpu, i)->current, memory_order_relaxed));
    return launches;
}

static bool pairs_with_every_hp(const struct orion_gpu *gpu, const struct orion_candidate *be)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        const struct orion_busy_page *hp = orion_gpu_neighbour(gpu, i);
        uint32_t state = atomic_load_explicit(&hp->state, memory_order_relaxed);
        if (state == ORION_IDLE || state == ORION_LINGER) continue;
        uint64_t current = atomic_load_explicit(&hp->current, memory_order_relaxed);
        if (policy->kind == ORION_POLICY_REEF ? !orion_reef_pairs(be, current) : !orion_2024_pairs(policy, be, current))
            return false;
    }
    return true;
}

static bool allows_beside_hp(const struct orion_gpu *gpu, const struct orion_candidate *be, uint32_t hp_launches)
{
    const struct orion_baseline *baseline = baseline_of(gpu);
    switch (orion_gpu_policy(gpu)->kind) {
    case ORION_POLICY_REEF:
        return hp_launches != atomic_load_explicit(&baseline->paired, memory_order_relaxed) && pairs_with_every_hp(gpu, be);
    case ORION_POLICY_TICKTOCK:
        return orion_ticktock_allows(atomic_load_explicit(&baseline->turn_own, memory_order_relaxed),
                                     atomic_load_explicit(&baseline->turn_hp, memory_order_relaxed),
                                     atomic_load_explicit(&gpu->busy->iterations, memory_order_relaxed), iterations_of_hp(gpu));
    case ORION_POLICY_ORION_2024: return pairs_with_every_hp(gpu, be);
    default: return true; /* the policy changed during a wait */
    }
}

/* -- Admission ------------------------------------------------------------------------------------------------------- */

static void take_turn(struct orion_gpu *gpu)
{
    struct orion_baseline *baseline = baseline_of(gpu);
    uint64_t own = atomic_load_explicit(&gpu->busy->iterations, memory_order_relaxed);
    /* be's iteration is still running. */
    if (own == atomic_load_explicit(&baseline->turn_own, memory_order_relaxed)) return;
    atomic_store_explicit(&baseline->turn_hp, iterations_of_hp(gpu), memory_order_relaxed);
    atomic_store_explicit(&baseline->turn_own, own, memory_order_relaxed);
}

static void wait_for_permission(struct orion_process *process, struct orion_gpu *gpu, const struct orion_candidate *be)
{
    uint64_t began = orion_waits_begin(gpu), stall = orion_gpu_policy(gpu)->stall_ns;
    orion_thread_revive(gpu);
    while (orion_gate_hp_is_busy(gpu) && !allows_beside_hp(gpu, be, launches_of_hp(gpu))) {
        orion_gate_sleep(process, gpu, POLL_NS);
        bool turns = orion_gpu_policy(gpu)->kind == ORION_POLICY_TICKTOCK;
        if (turns && stall != 0 && orion_now() - began > stall) take_turn(gpu);
    }
    orion_waits_end(gpu, began);
}

/* Adds a launch to the burst. A new burst begins if all earlier work has just been seen complete. */
static void note_issued(struct orion_gpu *gpu, const struct orion_candidate *be, bool drained)
{
    struct orion_baseline *baseline = baseline_of(gpu);
    uint64_t cost = orion_burst_cost(orion_gpu_policy(gpu), be);
    uint64_t burst_ns = drained ? 0 : atomic_load_explicit(&baseline->burst_ns, memory_order_relaxed);
    uint32_t launches = drained ? 0 : atomic_load_explicit(&baseline->burst_launches, memory_order_relaxed);
    atomic_store_explicit(&baseline->burst_ns, burst_ns < UNLIMITED ? burst_ns + cost : burst_ns, memory_order_relaxed);
    atomic_store_explicit(&baseline->burst_launches, launches < UINT32_MAX ? launches + 1 : launches, memory_order_relaxed);
}

bool orion_baseline_enter(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                          uint64_t expected_ns)
{
    struct orion_gpu *gpu = stream_record->gpu;
    struct orion_baseline *baseline = baseline_of(gpu);
    struct orion_candidate be = {.is_kernel = work->launch.function != NULL || work->launch.graph != NULL};
    orion_kernel_facts(orion_durations(process), work->identity, &be.facts);
    be.facts.expected_ns = expected_ns;

    uint32_t hp_launches = launches_of_hp(gpu);
    bool busy = orion_gate_hp_is_busy(gpu);
    if (busy && !allows_beside_hp(gpu, &be, hp_launches)) {
        wait_for_permission(process, gpu, &be);
        return false;
    }
    bool alone = orion_gpu_hp_clients(gpu) == 0;
    bool drains =
        !alone && orion_burst_is_over(orion_gpu_policy(gpu), atomic_load_explicit(&baseline->burst_ns, memory_order_relaxed),
                                      atomic_load_explicit(&baseline->burst_launches, memory_order_relaxed));
    uint64_t cost = expected_ns != 0 ? expected_ns : ORION_WINDOW_ALONE;
    if (!orion_window_enter(process, stream_record, cost, drains ? 0 : UNLIMITED)) return false;
    work->expected_ns = cost;
    note_issued(gpu, &be, drains || alone);
    take_turn(gpu);
    if (!busy) return true;
    atomic_store_explicit(&baseline->paired, hp_launches, memory_order_relaxed);
    atomic_fetch_add_explicit(&gpu->record->overlapped_launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&gpu->record->overlapped_ns, expected_ns, memory_order_relaxed);
    return true;
}

/* -- Iterations ------------------------------------------------------------------------------------------------------ */

/* Compares the work begun, not the work that this call proved: the drain thread may have proven it a moment earlier. */
void orion_baseline_synchronised(struct orion_process *process, struct orion_gpu *gpu)
{
    if (gpu == NULL || atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_NONE) return;
    if (orion_gpu_policy(gpu)->kind != ORION_POLICY_TICKTOCK) return;
    uint64_t begun = 0;
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu)
        begun += atomic_load_explicit(&stream_record->begun, memory_order_relaxed);
    if (atomic_exchange_explicit(&baseline_of(gpu)->iterated, begun, memory_order_relaxed) != begun)
        atomic_fetch_add_explicit(&gpu->busy->iterations, 1, memory_order_relaxed);
}
