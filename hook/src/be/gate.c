#include "be/gate.h"

#include <linux/futex.h>

#include "agent/suspect.h"
#include "be/stop.h"
#include "be/turns.h"
#include "process/notifier.h"
#include "process/plan.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/report.h"
#include "process/waits.h"
#include "system/system.h"

#define SUSPECT_POLL_NS ORION_MILLISECOND
#define FLOOR_CYCLE_NS (ORION_FLOOR_CYCLE_MS * ORION_MILLISECOND)
#define HEARTBEAT_STALE_NS (3 * ORION_MILLISECOND) /* an hp thread refreshes its heartbeat every 2 ms while busy */

/* The client index of the hp client. */
static uint32_t index_of(const struct orion_gpu *gpu, const struct orion_busy_page *page)
{
    return (uint32_t)(((uintptr_t)page - (uintptr_t)gpu->neighbours) >> __builtin_ctzl(gpu->page_step));
}

static bool is_dead(const struct orion_busy_page *page)
{
    return atomic_load_explicit(&page->alive, memory_order_relaxed) & FUTEX_OWNER_DIED;
}

static bool heartbeat_is_stale(const struct orion_busy_page *page, uint64_t now)
{
    uint64_t heartbeat = atomic_load_explicit(&page->heartbeat_ns, memory_order_relaxed);
    return now > heartbeat && now - heartbeat > HEARTBEAT_STALE_NS;
}

static bool was_given_up_on(const struct orion_gpu *gpu, const struct orion_busy_page *page)
{
    uint64_t given_up = atomic_load_explicit(&gpu->given_up_on[index_of(gpu, page)], memory_order_relaxed);
    return given_up != 0 && given_up == atomic_load_explicit(&page->progress, memory_order_relaxed) + 1;
}

static bool is_stopped(const struct orion_gpu *gpu, const struct orion_busy_page *page, uint64_t now)
{
    uint32_t client_index = index_of(gpu, page);
    uint32_t stopped = atomic_load_explicit(&gpu->policy->stopped[client_index], memory_order_relaxed);
    if (stopped == 0 || stopped != atomic_load_explicit(&gpu->hp_generation[client_index], memory_order_relaxed)) return false;
    return heartbeat_is_stale(page, now);
}

/* Whether be must wait for this hp client. */
static bool must_wait_for(const struct orion_gpu *gpu, const struct orion_policy *policy, const struct orion_busy_page *page)
{
    uint32_t state = atomic_load(&page->state);
    if (state == ORION_IDLE || (state == ORION_LINGER && orion_policy_is_baseline(policy))) return false;
    if (is_dead(page) || was_given_up_on(gpu, page)) return false;
    return !is_stopped(gpu, page, orion_now());
}

/* Returns for how long in each cycle be gets no time while hp is busy. Be's floor, the time that be gets even while hp
 * is busy, is the rest of the cycle. If the policy grants no minimum share, the result is the whole cycle. */
static uint64_t floorless_ns(const struct orion_policy *policy)
{
    uint64_t share = policy->minimum_share_milli < 1000 ? policy->minimum_share_milli : 1000;
    return orion_policy_gates(policy) ? FLOOR_CYCLE_NS / 1000 * (1000 - share) : FLOOR_CYCLE_NS;
}

/* The floor of be: be runs at the end of each cycle, however long hp stays busy. Cycles are sections of
 * CLOCK_MONOTONIC, so they are the same for all processes and GPUs. If a cycle began with each hp client's busy period,
 * the floors beside several hp clients would not coincide. The floor opens only if some hp client has been busy for as
 * long as a cycle's part without floor. So an hp client that pauses often enough by itself loses nothing. */
static bool floor_is_open(const struct orion_gpu *gpu, const struct orion_policy *policy)
{
    uint64_t floorless = floorless_ns(policy);
    if (__builtin_expect(floorless == FLOOR_CYCLE_NS, 1)) return false;
    uint64_t now = orion_now();
    if (now % FLOOR_CYCLE_NS < floorless) return false;
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        const struct orion_busy_page *page = orion_gpu_neighbour(gpu, i);
        uint64_t since = atomic_load_explicit(&page->busy_since_ns, memory_order_relaxed);
        if (since != 0 && now > since && now - since >= floorless && must_wait_for(gpu, policy, page)) return true;
    }
    return false;
}

/* The time until the floor opens. Nothing wakes a waiter at that time, so the waiter must wake itself. */
static uint64_t floor_opens_in(const struct orion_policy *policy, uint64_t now)
{
    uint64_t floorless = floorless_ns(policy), phase = now % FLOOR_CYCLE_NS;
    return floorless < FLOOR_CYCLE_NS && phase < floorless ? floorless - phase : UINT64_MAX;
}

/* The state whose end a launch must wait for, or ORION_IDLE. */
static uint32_t state_to_wait_for(const struct orion_gpu *gpu, const struct orion_busy_page *page)
{
    uint32_t state = atomic_load(&page->state);
    if (__builtin_expect(state == ORION_IDLE, 1)) return ORION_IDLE;
    const struct orion_policy *policy = orion_gpu_policy(gpu);
    /* The policy may change during a wait. */
    if (!orion_policy_admits(policy) || floor_is_open(gpu, policy)) return ORION_IDLE;
    return must_wait_for(gpu, policy, page) ? state : ORION_IDLE;
}

bool orion_gate_hp_is_busy(const struct orion_gpu *gpu)
{
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        const struct orion_busy_page *page = orion_gpu_neighbour(gpu, i);
        if (state_to_wait_for(gpu, page) != ORION_IDLE) return true;
    }
    return false;
}

bool orion_gate_closed(const struct orion_gpu *gpu)
{
    return orion_plan_holds(gpu) || (orion_gate_hp_is_busy(gpu) && orion_policy_gates(orion_gpu_policy(gpu)));
}

bool orion_gate_hp_was_busy_since(const struct orion_gpu *gpu, uint64_t since_ns)
{
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        const struct orion_busy_page *page = orion_gpu_neighbour(gpu, i);
        if (atomic_load(&page->state) != ORION_IDLE) return true;
        if (atomic_load_explicit(&page->drained_ns, memory_order_relaxed) >= since_ns) return true;
    }
    return false;
}

/* Records the progress of an hp client that a launch waits for, and returns it in *seen. Returns whether the client
 * has made no progress for longer than the policy allows. */
static bool is_stalled(struct orion_gpu *gpu, const struct orion_busy_page *page, uint64_t now, uint64_t *seen)
{
    uint32_t client_index = index_of(gpu, page);
    uint64_t stall = orion_gpu_policy(gpu)->stall_ns;
    uint64_t progress = atomic_load_explicit(&page->progress, memory_order_relaxed) + 1;
    /* After a while without a waiter the stall time starts again: hp may have been idle meanwhile. The while is long, because waiters may
     * lose their CPU. */
    uint64_t looked = atomic_exchange_explicit(&gpu->looked_ns[client_index], now, memory_order_relaxed);
    bool resumes = now > looked && now - looked > stall / 4;
    /* The time is written first: a second waiter that sees the progress must also see its time. */
    if (resumes || atomic_load_explicit(&gpu->seen_progress[client_index], memory_order_acquire) != progress) {
        atomic_store_explicit(&gpu->progressed_ns[client_index], now, memory_order_relaxed);
        atomic_store_explicit(&gpu->seen_progress[client_index], progress, memory_order_release);
    }
    *seen = progress;
    uint64_t since = atomic_load_explicit(&gpu->progressed_ns[client_index], memory_order_relaxed);
    return stall != 0 && now > since && now - since > stall;
}

static void give_up_on(struct orion_process *process, struct orion_gpu *gpu, uint32_t client_index, uint64_t progress)
{
    if (atomic_exchange_explicit(&gpu->given_up_on[client_index], progress, memory_order_relaxed) == progress) return;
    atomic_fetch_add_explicit(&gpu->record->given_up, 1, memory_order_relaxed);
    orion_say_once(process, ORION_SAY_GIVEN_UP);
}

/* Looks at all hp clients that a launch waits for: while it waits for one, the stall time of the others passes, too. Returns the first that
 * makes progress, and its state; NULL: there is none. */
static const struct orion_busy_page *first_to_wait_for(struct orion_process *process, struct orion_gpu *gpu, uint64_t now,
                                                       uint32_t *state)
{
    const struct orion_busy_page *first = NULL;
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        const struct orion_busy_page *page = orion_gpu_neighbour(gpu, i);
        uint32_t its_state = state_to_wait_for(gpu, page);
        uint64_t seen;
        if (its_state == ORION_IDLE) continue;
        if (is_stalled(gpu, page, now, &seen)) give_up_on(process, gpu, index_of(gpu, page), seen);
        else if (first == NULL) first = page, *state = its_state;
    }
    return first;
}

static void sleep_once(struct orion_process *process, struct orion_gpu *gpu, uint64_t most_ns)
{
    uint32_t state;
    uint64_t now = orion_now();
    const struct orion_busy_page *page = first_to_wait_for(process, gpu, now, &state);
    if (page == NULL) {
        orion_turns_sleep(gpu, most_ns);
        return;
    }
    uint32_t client_index = index_of(gpu, page);
    bool stale = heartbeat_is_stale(page, now);
    if (stale) orion_suspect_report(gpu, client_index, now);
    uint64_t opens = floor_opens_in(orion_gpu_policy(gpu), now);
    if (most_ns > opens) most_ns = opens;
    if (stale && most_ns > SUSPECT_POLL_NS) most_ns = SUSPECT_POLL_NS;
    orion_futex_wait(&page->state, state, most_ns, true);
    /* hp is idle, so the stall time starts again with the next busy period. */
    if (atomic_load(&page->state) == ORION_IDLE) atomic_store_explicit(&gpu->seen_progress[client_index], 0, memory_order_relaxed);
}

/* A thread that waits here is perhaps the only one that sees this GPU's hp, so it tells the stops before and after. */
void orion_gate_sleep(struct orion_process *process, struct orion_gpu *gpu, uint64_t most_ns)
{
    orion_stops_update(process);
    sleep_once(process, gpu, most_ns);
    orion_stops_update(process);
}

void orion_gate_wait(struct orion_process *process, struct orion_gpu *gpu)
{
    uint64_t began = orion_waits_begin(gpu);
    orion_thread_revive(gpu);
    while (orion_gate_closed(gpu) && !orion_policy_overlaps(gpu)) orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
    orion_waits_end(gpu, began);
}
