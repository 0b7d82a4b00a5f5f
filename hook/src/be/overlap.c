#include "be/overlap.h"

#include "core.h"
#include "policy.h"
#include "process.h"
#include "system.h"
#include "agent/board.h"
#include "be/gate.h"
#include "be/partition.h"
#include "be/window.h"
#include "learning/facts.h"
#include "streams/lanes.h"

#define REACH_OF_TYPICAL 40u                   /* Orion's own test: be work in flight under 2.5 % of hp's request time */
#define REACH_MOST_NS (2 * ORION_MILLISECOND)

/* What both are short of, neither gets more of by running together. Kernels that are short of the SMs' arithmetic run on
 * SMs of their own, and get along. */
static bool compete(uint32_t hp_class, uint32_t be_class)
{
    return hp_class == ORION_CLASS_MEMORY && be_class == ORION_CLASS_MEMORY;
}

static bool every_hp_gives_leave(const struct orion_board *board, uint32_t be_class)
{
    uint64_t now = orion_now();
    for (uint32_t i = 0, count = orion_board_neighbours(board); i < count; i++) {
        const struct orion_busy_page *hp = orion_board_neighbour(board, i);
        if (atomic_load_explicit(&hp->state, memory_order_relaxed) == ORION_IDLE) continue;
        if (now >= atomic_load_explicit(&hp->overlap_until_ns, memory_order_relaxed)) return false;
        if (compete(orion_current_class(atomic_load_explicit(&hp->current, memory_order_relaxed)), be_class)) return false;
    }
    return true;
}

bool orion_overlap_allows(struct orion_process *process, struct orion_lane *lane, const struct orion_work *work,
                          uint64_t expected_ns)
{
    struct orion_kernel_facts facts;
    struct orion_board *board = lane->board;
    if (expected_ns == 0 || orion_gate_held(board)) return false;
    orion_kernel_facts(&process->durations, work->identity, &facts);
    if (!every_hp_gives_leave(board, facts.kernel_class)) return false;
    if (expected_ns <= orion_window_share(board)) return true;
    return work->movable && work->launch.graph == NULL && orion_partition_can(process, lane);
}

bool orion_overlap_gives_leave(const struct orion_board *board)
{
    return orion_policy_overlaps(board) && !orion_gate_held(board) && every_hp_gives_leave(board, ORION_CLASS_UNKNOWN);
}

void orion_overlap_tell(struct orion_process *process, struct orion_board *board, const struct orion_work *work)
{
    struct orion_kernel_facts facts;
    if (!orion_kernel_facts(&process->durations, work->identity, &facts)) {
        orion_kernel_note(process, work->identity, &work->launch);
        orion_kernel_facts(&process->durations, work->identity, &facts);
    }
    /* Two threads at once may give one number to two launches: to be, as if it had looked late. */
    uint32_t launch = atomic_load_explicit(&board->baseline.told, memory_order_relaxed) + 1;
    atomic_store_explicit(&board->baseline.told, launch, memory_order_relaxed);
    atomic_store_explicit(&board->busy->current, orion_pack_current(facts.sms, facts.kernel_class, launch, facts.expected_ns),
                          memory_order_relaxed);
}

uint64_t orion_overlap_reach(const struct orion_board *board, uint64_t share_ns)
{
    uint64_t reach = REACH_MOST_NS;
    for (uint32_t i = 0, count = orion_board_neighbours(board); i < count; i++) {
        uint64_t typical = atomic_load_explicit(&orion_board_neighbour(board, i)->typical_ns, memory_order_relaxed);
        if (typical / REACH_OF_TYPICAL < reach) reach = typical / REACH_OF_TYPICAL;
    }
    return reach > share_ns ? reach : share_ns;
}

bool orion_overlap_spares(const struct orion_board *board, const struct orion_work *work, uint64_t expected_ns)
{
    const struct orion_policy *policy = orion_board_policy(board);
    if (policy->kind != ORION_POLICY_ORION || policy->long_kernel_ns == 0 || expected_ns <= policy->long_kernel_ns) return false;
    if (!work->movable || work->launch.graph != NULL || !orion_runs_together(board)) return false;
    return atomic_load_explicit(&board->policy->hp_clients, memory_order_relaxed) > 0;
}
