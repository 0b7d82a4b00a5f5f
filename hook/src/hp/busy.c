#include "hp/busy.h"

#include "hp/drain.h"
#include "hp/state.h"
#include "process/notifier.h"
#include "process/plan.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

/* While busy: keeps the heartbeat fresher than be's limit of 3 ms (gate.c). */
#define POLL_EVERY_NS (2 * ORION_MILLISECOND)
/* How often the drain thread checks work that no call waits for, so that `progress` grows. */
#define PROVE_EVERY_NS (10 * ORION_MILLISECOND)

uint64_t orion_work_begun(struct orion_process *process, const struct orion_gpu *gpu)
{
    /* A client's record page has its launches on stream records that are another client's now. */
    uint64_t begun = gpu->client != 0 ? atomic_load_explicit(&gpu->record->launches, memory_order_relaxed) : 0;
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        begun += atomic_load_explicit(&stream_record->begun, memory_order_relaxed);
        if (gpu->client != 0) begun -= atomic_load_explicit(&stream_record->begun_before, memory_order_relaxed);
    }
    return begun;
}

/* The typical length of a whole busy period, short gaps included. The estimate falls fast and rises slowly, for two
 * reasons: queueing makes some periods long, and hp's wait for be is a larger part of a short period. */
static uint64_t blended(uint64_t typical, uint64_t lasted)
{
    if (typical == 0) return lasted;
    return lasted < typical ? typical - (typical - lasted) / 4 : typical + (lasted - typical) / 8;
}

/* Records the length of the previous period, which ended at `drained`. */
static void note_period(struct orion_gpu *gpu, uint64_t drained)
{
    uint64_t since = atomic_load_explicit(&gpu->busy->busy_since_ns, memory_order_relaxed);
    uint64_t typical = atomic_load_explicit(&gpu->busy->typical_ns, memory_order_relaxed);
    if (since == 0 || drained <= since) return;
    atomic_store_explicit(&gpu->busy->typical_ns, blended(typical, drained - since), memory_order_relaxed);
}

void orion_busy_began(struct orion_process *process, struct orion_gpu *gpu, enum orion_busy_change change)
{
    uint64_t now = orion_now();
    uint64_t drained = atomic_load_explicit(&gpu->busy->drained_ns, memory_order_relaxed);
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    if (drained != 0 && now > drained)
        orion_linger_learn(&orion_hp(gpu)->linger, now - drained, policy->linger_floor_ns, policy->linger_ceiling_ns);
    atomic_store_explicit(&orion_hp(gpu)->busy_since_ns, now, memory_order_relaxed);
    atomic_store_explicit(&gpu->record->busy_since_ns, now, memory_order_relaxed);
    atomic_store_explicit(&gpu->busy->heartbeat_ns, now, memory_order_relaxed);
    bool budgeted = orion_hp(gpu)->budget.open || orion_policy_overlaps(gpu);
    /* Excludes this launch, so that the new period includes it. */
    uint64_t begun = budgeted ? orion_work_begun(process, gpu) - 1 : 0;
    if (change == ORION_BUSY_RESUMED) {
        if (budgeted) orion_budget_resumed(gpu, now, begun);
        return;
    }
    if (budgeted) orion_budget_opened(gpu, now, begun);
    note_period(gpu, drained);
    atomic_store_explicit(&gpu->busy->busy_since_ns, now, memory_order_relaxed);
}

static bool all_drained(struct orion_process *process, struct orion_gpu *gpu)
{
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        uint64_t drained = atomic_load_explicit(&stream_record->drained, memory_order_seq_cst);
        if (drained != atomic_load_explicit(&stream_record->begun, memory_order_seq_cst)) return false;
    }
    return true;
}

/* Only one thread at a time closes. orion/pages.h says why each store has release order. */
static void keep_period(struct orion_record_page *record, uint64_t begin, uint64_t end)
{
    uint64_t number = atomic_load_explicit(&record->busy_periods, memory_order_relaxed);
    struct orion_busy_period *period = &record->period[number % ORION_BUSY_PERIODS];
    atomic_store_explicit(&period->begin_ns, begin, memory_order_release);
    atomic_store_explicit(&period->end_ns, end, memory_order_release);
    atomic_store_explicit(&record->busy_periods, number + 1, memory_order_release);
}

/* Another thread may have begun the next period already: its begin stays. */
static void clear_since(_Atomic uint64_t *busy_since_ns, uint64_t since)
{
    atomic_compare_exchange_strong_explicit(busy_since_ns, &since, 0, memory_order_relaxed, memory_order_relaxed);
}

static void note_closed(struct orion_process *process, struct orion_gpu *gpu, uint64_t since, uint64_t now)
{
    if (orion_hp(gpu)->budget.open) orion_budget_paused(gpu, now, orion_work_begun(process, gpu));
    clear_since(&orion_hp(gpu)->busy_since_ns, since);
    clear_since(&gpu->record->busy_since_ns, since);
    if (since == 0 || now < since) return;
    uint64_t lasted = now - since;
    uint64_t typical = atomic_load_explicit(&orion_hp(gpu)->typical_busy_ns, memory_order_relaxed);
    typical = lasted < typical ? typical - (typical - lasted) / 2 : typical + (lasted - typical) / 8;
    atomic_store_explicit(&orion_hp(gpu)->typical_busy_ns, typical, memory_order_relaxed);
    atomic_fetch_add_explicit(&gpu->record->busy_ns, lasted, memory_order_relaxed);
    keep_period(gpu->record, since, now);
}

static uint64_t linger_now(const struct orion_gpu *gpu)
{
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    if (orion_plan_holds(gpu)) return 0; /* hp is at its limit */
    return orion_linger_now(&orion_hp(gpu)->linger, policy->linger_floor_ns, policy->linger_ceiling_ns);
}

static void close_once(struct orion_process *process, struct orion_gpu *gpu)
{
    uint32_t expected = ORION_BUSY;
    if (!atomic_compare_exchange_strong(&gpu->busy->state, &expected, ORION_CLOSING)) return;
    expected = ORION_CLOSING;
    if (!all_drained(process, gpu)) {
        atomic_compare_exchange_strong(&gpu->busy->state, &expected, ORION_BUSY);
        return;
    }
    /* drained_ns is written before the state, because the launch that ends the gap reads it. */
    uint64_t now = orion_now();
    atomic_store_explicit(&gpu->busy->drained_ns, now, memory_order_relaxed);
    uint64_t since =
        atomic_load_explicit(&orion_hp(gpu)->busy_since_ns, memory_order_relaxed); /* from LINGER on, the next period's */
    if (!atomic_compare_exchange_strong(&gpu->busy->state, &expected, ORION_LINGER)) return;
    note_closed(process, gpu, since, now);
    /* With no be client to wake, hp's thread need not wake early. */
    if (orion_gpu_be_clients(gpu) == 0) return;
    orion_thread_wake_by(gpu, now + linger_now(gpu));
}

void orion_busy_try_close(struct orion_process *process, struct orion_gpu *gpu)
{
    atomic_store(&orion_hp(gpu)->close_wanted, 1);
    while (atomic_load(&orion_hp(gpu)->close_wanted)) {
        /* Another thread is ending the busy period. When it is done, it checks again for this thread. */
        if (atomic_exchange(&orion_hp(gpu)->closing, 1)) return;
        atomic_store(&orion_hp(gpu)->close_wanted, 0);
        close_once(process, gpu);
        atomic_store(&orion_hp(gpu)->closing, 0);
    }
}

/* Requests a proof of work that no call waits for. It does so when launches have paused and no thread is inside a
 * synchronising call, which would prove the work itself. During continuous launches it does so every
 * PROVE_EVERY_NS: each proof takes the driver's locks, which hp's launches need, too. */
static void request_proof(struct orion_process *process, struct orion_gpu *gpu, uint64_t now)
{
    uint64_t begun = orion_work_begun(process, gpu);
    if (orion_policy_overlaps(gpu)) orion_budget_poll(gpu, now, begun);
    bool quiet = begun == atomic_load_explicit(&orion_hp(gpu)->seen_begun, memory_order_relaxed);
    atomic_store_explicit(&orion_hp(gpu)->seen_begun, begun, memory_order_relaxed);
    uint64_t since = atomic_load_explicit(&orion_hp(gpu)->busy_since_ns, memory_order_relaxed);
    uint64_t asked = atomic_load_explicit(&orion_hp(gpu)->asked_ns, memory_order_relaxed);
    bool overdue = since != 0 && now > (since > asked ? since : asked) + PROVE_EVERY_NS;
    if (!overdue && (!quiet || atomic_load(&process->blocked_proofs) > 0)) return;
    atomic_store_explicit(&orion_hp(gpu)->asked_ns, now, memory_order_relaxed);
    orion_drain_request(gpu);
}

/* How long hp's thread may sleep. Near the usual end of a busy period it wakes so often that whoever ends the period need
 * not wake it by a system call (orion_thread_wake_by). These wake-ups take CPU time from hp, so soon they become rare. */
static uint64_t poll_busy(struct orion_process *process, struct orion_gpu *gpu, uint64_t now, uint64_t linger)
{
    request_proof(process, gpu, now);
    uint64_t since = atomic_load_explicit(&orion_hp(gpu)->busy_since_ns, memory_order_relaxed);
    uint64_t lasted = since != 0 && now > since ? now - since : 0;
    uint64_t expected = atomic_load_explicit(&orion_hp(gpu)->typical_busy_ns, memory_order_relaxed) * 7 / 8;
    uint64_t again = lasted < expected ? expected - lasted : (lasted - expected) / 4;
    if (again < linger) again = linger;
    if (orion_gpu_be_clients(gpu) == 0) again = POLL_EVERY_NS;
    return again > POLL_EVERY_NS ? POLL_EVERY_NS : again;
}

void orion_busy_end_linger(struct orion_gpu *gpu)
{
    uint32_t state = ORION_LINGER;
    if (atomic_compare_exchange_strong(&gpu->busy->state, &state, ORION_IDLE)) orion_futex_wake_all(&gpu->busy->state, true);
}

uint64_t orion_busy_poll(struct orion_process *process, struct orion_gpu *gpu, uint64_t now)
{
    uint64_t linger = linger_now(gpu);
    atomic_store_explicit(&gpu->record->linger_ns, linger, memory_order_relaxed);
    uint32_t state = atomic_load(&gpu->busy->state);
    if (state == ORION_IDLE) return UINT64_MAX;
    atomic_store_explicit(&gpu->busy->heartbeat_ns, now, memory_order_relaxed);
    if (state != ORION_LINGER) return poll_busy(process, gpu, now, linger);
    uint64_t over = atomic_load_explicit(&gpu->busy->drained_ns, memory_order_relaxed) + linger;
    if (now < over) return over - now < POLL_EVERY_NS ? over - now : POLL_EVERY_NS;
    orion_busy_end_linger(gpu);
    return atomic_load(&gpu->busy->state) == ORION_IDLE ? UINT64_MAX : 0;
}
