#include "be/admission.h"

#include "policy.h"
#include "process.h"
#include "thread.h"
#include "agent/board.h"
#include "be/baselines.h"
#include "be/collective.h"
#include "be/gate.h"
#include "be/overlap.h"
#include "be/partition.h"
#include "be/valve.h"
#include "be/window.h"
#include "learning/facts.h"
#include "streams/lanes.h"

static bool is_held(struct orion_process *process, struct orion_board *board, const struct orion_work *work)
{
    return work->collective != 0 ? orion_collective_held(process, board, work->collective) : orion_gate_closed(board);
}

/* The peer of a collective that another GPU has been given already goes without waiting for room. */
static uint64_t limit_of(struct orion_process *process, struct orion_board *board, const struct orion_work *work, uint64_t limit)
{
    return work->collective != 0 && orion_collective_follows(process, board, work->collective) ? UINT64_MAX : limit;
}

/* One try to let a be launch through where contexts take turns: behind the valve where the GPU can wait by itself, else
 * when hp is idle and the window holds the launch (the last look at hp is behind the wait for the window). Sets
 * work->expected_ns if it may go. */
static bool enter_by_turns(struct orion_process *process, struct orion_lane *lane, struct orion_work *work, uint64_t expected)
{
    struct orion_board *board = lane->board;
    uint64_t share = orion_window_share(board), past_valve = orion_window_narrowed(board);
    bool ahead = orion_valve_ready(process, lane) && (work->collective == 0 || orion_collective_ready(process));
    bool unprotected = atomic_load_explicit(&board->policy->hp_clients, memory_order_relaxed) == 0;
    /* An unknown piece of work goes alone; behind the valve, with a wait before it and behind it. */
    if (expected == 0) expected = ahead ? 2 * share : ORION_WINDOW_ALONE;
    if (!ahead && work->collective != 0) orion_collective_wait(process, board, work->collective);
    else if (!ahead && orion_gate_closed(board)) orion_gate_wait(process, board);
    uint64_t limit = ahead || unprotected ? ORION_RUN_AHEAD * share : past_valve;
    if (!orion_window_enter(process, lane, expected, limit_of(process, board, work, limit))) {
        if (ahead && orion_gate_closed(board)) orion_gate_sleep(process, board, ORION_GATE_LOOK_NS);
        return false;
    }
    if (ahead && !orion_valve_pass(process, lane, expected, past_valve, work->collective)) ahead = false;
    if (!ahead && is_held(process, board, work)) {
        orion_window_leave(board, expected);
        orion_gate_sleep(process, board, ORION_GATE_LOOK_NS);
        return false;
    }
    if (!ahead && work->collective != 0) orion_collective_go(process, board, work->collective);
    work->expected_ns = expected;
    return true;
}

/* Until hp is idle, or a busy period begins in which the launch may run beside it. */
static void wait_for_leave(struct orion_process *process, struct orion_lane *lane, const struct orion_work *work,
                           uint64_t expected)
{
    struct orion_board *board = lane->board;
    uint64_t began = orion_now();
    orion_thread_revive(board);
    atomic_store_explicit(&board->record->waiting_since_ns, began, memory_order_relaxed);
    while (orion_gate_closed(board) && !orion_overlap_allows(process, lane, work, expected))
        orion_gate_sleep(process, board, ORION_GATE_LOOK_NS);
    atomic_store_explicit(&board->record->waiting_since_ns, 0, memory_order_relaxed);
    orion_gate_note(board, orion_now() - began);
}

/* The same where hp granted a budget and contexts run together. The valve has no part in it: what is queued behind it
 * could not be moved to a partition any more when hp comes and gives leave. */
static bool enter_beside(struct orion_process *process, struct orion_lane *lane, struct orion_work *work, uint64_t expected)
{
    struct orion_board *board = lane->board;
    uint64_t share = orion_window_share(board);
    if (work->collective != 0) orion_collective_wait(process, board, work->collective); /* it runs beside no hp */
    bool busy = is_held(process, board, work);
    if (busy && (work->collective != 0 || !orion_overlap_allows(process, lane, work, expected))) {
        if (work->collective != 0) return false;
        wait_for_leave(process, lane, work, expected);
        return false;
    }
    uint64_t cost = expected != 0 ? expected : ORION_WINDOW_ALONE;
    uint64_t limit = busy ? share : orion_overlap_reach(board, share);
    if (!orion_window_enter(process, lane, cost, limit_of(process, board, work, limit))) return false;
    if (!busy && is_held(process, board, work)) {
        busy = true; /* hp came during the wait for the window */
        if (work->collective != 0 || !orion_overlap_allows(process, lane, work, expected)) {
            orion_window_leave(board, cost);
            return false;
        }
    }
    if (work->collective != 0) orion_collective_go(process, board, work->collective);
    work->expected_ns = cost;
    if (!busy) return true;
    if (work->movable && work->launch.graph == NULL) work->flags |= ORION_ADMITTED_PARTITIONED;
    atomic_fetch_add_explicit(&board->record->overlapped_launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&board->record->overlapped_ns, expected, memory_order_relaxed);
    return true;
}

static bool enter(struct orion_process *process, struct orion_lane *lane, struct orion_work *work, uint64_t expected)
{
    if (orion_policy_is_baseline(orion_board_policy(lane->board))) {
        bool entered = orion_baseline_enter(process, lane, work, expected);
        if (entered && work->collective != 0) orion_collective_go(process, lane->board, work->collective);
        return entered;
    }
    return orion_policy_overlaps(lane->board) ? enter_beside(process, lane, work, expected)
                                              : enter_by_turns(process, lane, work, expected);
}

/* Moves an admitted kernel to fewer SMs, where it was decided so and can be done. */
static void place(struct orion_process *process, struct orion_lane *lane, struct orion_work *work, uint64_t expected)
{
    bool fewer = (work->flags & ORION_ADMITTED_PARTITIONED) || orion_overlap_spares(lane->board, work, expected);
    work->flags &= ~ORION_ADMITTED_PARTITIONED;
    if (!fewer) return;
    work->elsewhere = orion_partition_fork(process, lane);
    if (work->elsewhere == NULL) return;
    work->flags |= ORION_ADMITTED_PARTITIONED;
    atomic_fetch_add_explicit(&lane->board->record->partitioned_launches, 1, memory_order_relaxed);
}

static bool is_collective(struct orion_process *process, const struct orion_launch *launch)
{
    if (launch->function != NULL) return orion_kernel_is_collective(&process->kernels, launch->function);
    if (launch->graph == NULL || atomic_load_explicit(&process->kernels.collectives, memory_order_relaxed) == 0) return false;
    return orion_graph_is_collective(&process->graphs, launch->graph);
}

void orion_admit(struct orion_process *process, struct orion_lane *lane, struct orion_work *work)
{
    struct orion_board *board = lane->board;
    bool sample, waited = false;
    uint64_t expected = orion_duration_expect(&process->durations, work->identity, &sample);
    /* What others measured or a profile says may have been found by the name only now. */
    if (sample && orion_kernel_note(process, work->identity, &work->launch))
        expected = orion_duration_expect(&process->durations, work->identity, &sample);
    work->collective = is_collective(process, &work->launch) ? orion_collective_begin(process, board) : 0;
    while (!enter(process, lane, work, expected)) {
        if (!orion_policy_admits(orion_board_policy(board))) return; /* changed while this launch waited */
        if (!waited) atomic_fetch_add_explicit(&board->record->window_waits, 1, memory_order_relaxed);
        waited = true;
    }
    place(process, lane, work, expected);
    if (!sample || (work->flags & ORION_ADMITTED_PARTITIONED)) return;
    if (orion_window_launching(process, lane, work->identity)) work->flags |= ORION_ADMITTED_TIMED;
}
