#include "be/baselines.h"

#include "core.h"
#include "policy.h"
#include "process.h"
#include "system.h"
#include "thread.h"
#include "agent/board.h"
#include "be/gate.h"
#include "be/window.h"

#define LOOK_NS (20 * ORION_MICROSECOND) /* nobody wakes who waits for hp's next launch: the originals poll all the time */
#define WITHOUT_LIMIT (UINT64_C(1) << 62)

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
    return policy->orion_2024_duration_ns < WITHOUT_LIMIT ? policy->orion_2024_duration_ns + 1 : WITHOUT_LIMIT;
}

/* -- What hp does now ------------------------------------------------------------------------------------------------ */

/* By sums over the hp clients, which change when one of theirs does. */
static uint64_t iterations_of_hp(const struct orion_board *board)
{
    uint64_t iterations = 0;
    for (uint32_t i = 0, count = orion_board_neighbours(board); i < count; i++)
        iterations += atomic_load_explicit(&orion_board_neighbour(board, i)->iterations, memory_order_relaxed);
    return iterations;
}

static uint32_t launches_of_hp(const struct orion_board *board)
{
    uint32_t launches = 0;
    for (uint32_t i = 0, count = orion_board_neighbours(board); i < count; i++)
        launches += orion_current_launch(atomic_load_explicit(&orion_board_neighbour(board, i)->current, memory_order_relaxed));
    return launches;
}

static bool pairs_with_every_hp(const struct orion_board *board, const struct orion_candidate *be)
{
    const struct orion_policy *policy = orion_board_policy(board);
    for (uint32_t i = 0, count = orion_board_neighbours(board); i < count; i++) {
        const struct orion_busy_page *hp = orion_board_neighbour(board, i);
        uint32_t state = atomic_load_explicit(&hp->state, memory_order_relaxed);
        if (state == ORION_IDLE || state == ORION_LINGER) continue;
        uint64_t current = atomic_load_explicit(&hp->current, memory_order_relaxed);
        if (policy->kind == ORION_POLICY_REEF ? !orion_reef_pairs(be, current) : !orion_2024_pairs(policy, be, current)) return false;
    }
    return true;
}

static bool allows_beside_hp(const struct orion_board *board, const struct orion_candidate *be, uint32_t hp_launches)
{
    const struct orion_baseline *baseline = &board->baseline;
    switch (orion_board_policy(board)->kind) {
    case ORION_POLICY_REEF:
        return hp_launches != atomic_load_explicit(&baseline->paired, memory_order_relaxed) && pairs_with_every_hp(board, be);
    case ORION_POLICY_TICKTOCK:
        return orion_ticktock_allows(atomic_load_explicit(&baseline->turn_own, memory_order_relaxed),
                                     atomic_load_explicit(&baseline->turn_hp, memory_order_relaxed),
                                     atomic_load_explicit(&board->busy->iterations, memory_order_relaxed), iterations_of_hp(board));
    case ORION_POLICY_ORION_2024:
        return pairs_with_every_hp(board, be);
    default:
        return true; /* changed while somebody waits */
    }
}

/* -- Admission ------------------------------------------------------------------------------------------------------- */

static void take_turn(struct orion_board *board)
{
    struct orion_baseline *baseline = &board->baseline;
    uint64_t own = atomic_load_explicit(&board->busy->iterations, memory_order_relaxed);
    if (own == atomic_load_explicit(&baseline->turn_own, memory_order_relaxed)) return; /* its iteration goes on */
    atomic_store_explicit(&baseline->turn_hp, iterations_of_hp(board), memory_order_relaxed);
    atomic_store_explicit(&baseline->turn_own, own, memory_order_relaxed);
}

static void wait_for_leave(struct orion_process *process, struct orion_board *board, const struct orion_candidate *be)
{
    uint64_t began = orion_now(), stall = orion_board_policy(board)->stall_ns;
    orion_thread_revive(board);
    atomic_store_explicit(&board->record->waiting_since_ns, began, memory_order_relaxed);
    while (orion_gate_hp_works(board) && !allows_beside_hp(board, be, launches_of_hp(board))) {
        orion_gate_sleep(process, board, LOOK_NS);
        bool turns = orion_board_policy(board)->kind == ORION_POLICY_TICKTOCK;
        if (turns && stall != 0 && orion_now() - began > stall) take_turn(board);
    }
    atomic_store_explicit(&board->record->waiting_since_ns, 0, memory_order_relaxed);
    orion_gate_note(board, orion_now() - began);
}

/* Adds to the burst, which begins anew if all earlier work has just been seen complete. */
static void note_issued(struct orion_board *board, const struct orion_candidate *be, bool drained)
{
    struct orion_baseline *baseline = &board->baseline;
    uint64_t cost = orion_burst_cost(orion_board_policy(board), be);
    uint64_t burst_ns = drained ? 0 : atomic_load_explicit(&baseline->burst_ns, memory_order_relaxed);
    uint32_t launches = drained ? 0 : atomic_load_explicit(&baseline->burst_launches, memory_order_relaxed);
    atomic_store_explicit(&baseline->burst_ns, burst_ns < WITHOUT_LIMIT ? burst_ns + cost : burst_ns, memory_order_relaxed);
    atomic_store_explicit(&baseline->burst_launches, launches < UINT32_MAX ? launches + 1 : launches, memory_order_relaxed);
}

bool orion_baseline_enter(struct orion_process *process, struct orion_lane *lane, struct orion_work *work, uint64_t expected_ns)
{
    struct orion_board *board = lane->board;
    struct orion_baseline *baseline = &board->baseline;
    struct orion_candidate be = {.is_kernel = work->launch.function != NULL || work->launch.graph != NULL};
    orion_kernel_facts(&process->durations, work->identity, &be.facts);
    be.facts.expected_ns = expected_ns;

    uint32_t hp_launches = launches_of_hp(board);
    bool busy = orion_gate_hp_works(board);
    if (busy && !allows_beside_hp(board, &be, hp_launches)) {
        wait_for_leave(process, board, &be);
        return false;
    }
    bool alone = atomic_load_explicit(&board->policy->hp_clients, memory_order_relaxed) == 0;
    bool drains = !alone && orion_burst_is_over(orion_board_policy(board), atomic_load_explicit(&baseline->burst_ns, memory_order_relaxed),
                                                atomic_load_explicit(&baseline->burst_launches, memory_order_relaxed));
    uint64_t cost = expected_ns != 0 ? expected_ns : ORION_WINDOW_ALONE;
    if (!orion_window_enter(process, lane, cost, drains ? 0 : WITHOUT_LIMIT)) return false;
    work->expected_ns = cost;
    note_issued(board, &be, drains || alone);
    take_turn(board);
    if (!busy) return true;
    atomic_store_explicit(&baseline->paired, hp_launches, memory_order_relaxed);
    atomic_fetch_add_explicit(&board->record->overlapped_launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&board->record->overlapped_ns, expected_ns, memory_order_relaxed);
    return true;
}

/* -- Iterations ------------------------------------------------------------------------------------------------------ */

/* By what was begun, not by what the call itself proved: the drain thread may have proven it a moment earlier. */
void orion_baseline_synchronised(struct orion_process *process, struct orion_board *board)
{
    uint64_t begun = 0;
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++) {
        const struct orion_lane *lane = &process->lanes.lane[i];
        if (lane->board == board) begun += atomic_load_explicit(&lane->begun, memory_order_relaxed);
    }
    if (atomic_exchange_explicit(&board->baseline.iterated, begun, memory_order_relaxed) != begun)
        atomic_fetch_add_explicit(&board->busy->iterations, 1, memory_order_relaxed);
}
