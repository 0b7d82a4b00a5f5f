#include "hp/budget.h"

#include "hp/state.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "system/lock.h"
#include "system/system.h"

#define FADE 16u             /* each new period removes a sixteenth of the sum */
#define CONTROLS_TO_TRUST 4u /* the first so many periods: without them nothing is measured, and nothing is allowed */
#define CONTROLS_AT_FIRST 16u
#define CONTROL_ONE_IN_AT_FIRST 4u
#define CONTROL_ONE_IN 12u
#define TRY_ONE_IN 24u /* used if even the least overlap cost more than the budget */
#define SLICE_NS (200 * ORION_MILLISECOND)
#define ENDLESS_NS (2 * ORION_SECOND) /* the hook cuts a period into slices from this age on */
#define OVERLAP_MIN_NS (50 * ORION_MICROSECOND)

static void add(struct orion_budget_sum *sum, uint64_t busy_ns, uint64_t work)
{
    sum->busy_ns += busy_ns - sum->busy_ns / FADE;
    sum->work += work - sum->work / FADE;
    if (sum->periods < UINT32_MAX) sum->periods++;
}

/* The time per launch in overlapped periods divided by that in control periods, in thousandths. 0: unknown. */
static uint64_t slowdown(const struct orion_budget *budget)
{
    const struct orion_budget_sum *control = &budget->control, *overlapped = &budget->overlapped;
    if (control->periods < CONTROLS_TO_TRUST || control->work == 0 || overlapped->work == 0) return 0;
    double alone = (double)control->busy_ns / (double)control->work;
    double beside = (double)overlapped->busy_ns / (double)overlapped->work;
    return alone > 0 ? (uint64_t)(beside / alone * 1000.0 + 0.5) : 0;
}

static void adjust(struct orion_gpu *gpu, struct orion_budget *budget)
{
    uint64_t room = orion_policy_budget(orion_gpu_policy(gpu)) - 1000, measured = slowdown(budget);
    uint64_t over = measured > 1000 ? measured - 1000 : 0, allowed = budget->overlap_ns;
    if (measured == 0) return;
    if (over > room + room / 2) allowed /= 2;
    else if (over > room) allowed -= allowed / 4;
    else if (over < room - room / 8) allowed += allowed / 8 + budget->longest_ns / 32;
    /* An allowed age above the longest period has no effect now, and would take long to shrink again. */
    if (allowed > budget->longest_ns) allowed = budget->longest_ns;
    budget->overlap_ns = allowed < OVERLAP_MIN_NS ? OVERLAP_MIN_NS : allowed;
    budget->too_costly = over > room && budget->overlap_ns == OVERLAP_MIN_NS;
}

static void finish_period(struct orion_gpu *gpu, struct orion_budget *budget)
{
    if (!budget->open || budget->work == 0) return;
    budget->longest_ns -= budget->longest_ns / 64;
    if (budget->busy_ns > budget->longest_ns) budget->longest_ns = budget->busy_ns;
    add(budget->is_control ? &budget->control : &budget->overlapped, budget->busy_ns, budget->work);
    bool has_be = orion_gpu_be_clients(gpu) > 0;
    if (!budget->is_control && has_be) adjust(gpu, budget);
    if (budget->is_control) atomic_fetch_add_explicit(&gpu->record->control_periods, 1, memory_order_relaxed);
    atomic_store_explicit(&gpu->record->slowdown_milli, slowdown(budget), memory_order_relaxed);
    atomic_store_explicit(&gpu->record->overlap_ns, budget->overlap_ns, memory_order_relaxed);
}

/* Control periods are random, so that they do not coincide with a rhythm of hp or be. */
static bool draw_control(struct orion_budget *budget)
{
    budget->random = budget->random * 1664525u + 1013904223u;
    if (budget->control.periods < CONTROLS_TO_TRUST) return true;
    if (budget->too_costly) return (budget->random >> 16) % TRY_ONE_IN != 0;
    uint32_t one_in = budget->control.periods < CONTROLS_AT_FIRST ? CONTROL_ONE_IN_AT_FIRST : CONTROL_ONE_IN;
    return (budget->random >> 16) % one_in == 0;
}

static void begin_part(struct orion_budget *budget, uint64_t now, uint64_t work)
{
    budget->part_began_ns = now;
    budget->part_began_work = work;
}

static void end_part(struct orion_budget *budget, uint64_t now, uint64_t work)
{
    if (now > budget->part_began_ns) budget->busy_ns += now - budget->part_began_ns;
    if (work > budget->part_began_work) budget->work += work - budget->part_began_work;
    begin_part(budget, now, work);
}

static void begin_period(struct orion_gpu *gpu, struct orion_budget *budget, uint64_t now, uint64_t work)
{
    budget->busy_ns = budget->work = 0;
    budget->open = true;
    budget->began_ns = now;
    budget->is_control = draw_control(budget);
    if (budget->overlap_ns == 0) budget->overlap_ns = OVERLAP_MIN_NS;
    begin_part(budget, now, work);
    /* An absolute time, so that relaxed order suffices: a reader that still sees the last period's value obeys that limit. */
    atomic_store_explicit(&gpu->busy->overlap_until_ns, budget->is_control ? 0 : now + budget->overlap_ns, memory_order_relaxed);
}

void orion_budget_opened(struct orion_gpu *gpu, uint64_t now, uint64_t work)
{
    struct orion_budget *budget = &orion_hp(gpu)->budget;
    if (!orion_lock_try(&budget->lock)) return;
    if (orion_policy_overlaps(gpu)) {
        finish_period(gpu, budget);
        begin_period(gpu, budget, now, work);
    } else if (budget->open) { /* the policy no longer grants a budget: start from zero when it grants one again */
        budget->open = false;
        budget->control = budget->overlapped = (struct orion_budget_sum){0};
        budget->overlap_ns = 0;
        budget->too_costly = false;
        atomic_store_explicit(&gpu->busy->overlap_until_ns, 0, memory_order_relaxed);
    }
    orion_unlock(&budget->lock);
}

void orion_budget_resumed(struct orion_gpu *gpu, uint64_t now, uint64_t work)
{
    struct orion_budget *budget = &orion_hp(gpu)->budget;
    if (!orion_lock_try(&budget->lock)) return;
    if (budget->open) begin_part(budget, now, work);
    orion_unlock(&budget->lock);
}

void orion_budget_paused(struct orion_gpu *gpu, uint64_t now, uint64_t work)
{
    struct orion_budget *budget = &orion_hp(gpu)->budget;
    if (!orion_lock_try(&budget->lock)) return;
    if (budget->open) end_part(budget, now, work);
    orion_unlock(&budget->lock);
}

void orion_budget_poll(struct orion_gpu *gpu, uint64_t now, uint64_t work)
{
    struct orion_budget *budget = &orion_hp(gpu)->budget;
    uint64_t since = atomic_load_explicit(&gpu->busy->busy_since_ns, memory_order_relaxed);
    if (since == 0 || now < since + ENDLESS_NS || !orion_policy_overlaps(gpu)) return;
    if (!orion_lock_try(&budget->lock)) return;
    /* A slice lasts until a launch: a slice without one would not count, and hp would seem faster than it is. */
    bool launched = budget->work > 0 || work > budget->part_began_work;
    if (!budget->open || (launched && now > budget->began_ns + SLICE_NS)) {
        if (budget->open) {
            end_part(budget, now, work);
            finish_period(gpu, budget);
        }
        /* The part before the first slice is much longer than a slice, and would let the allowed age grow too far. */
        if (budget->longest_ns > SLICE_NS) budget->longest_ns = SLICE_NS;
        begin_period(gpu, budget, now, work);
    }
    orion_unlock(&budget->lock);
}
