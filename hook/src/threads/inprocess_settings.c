/* What can be set of a running scheduler, and what its clients have done. */
#include <string.h>

#include "process.h"
#include "threads/inprocess.h"
#include "threads/virtual_board.h"

#define EXPORTED __attribute__((visibility("default")))

static bool has_begun(struct orion_process *process, int client)
{
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        if (lane->board == process->inprocess.boards[client] && atomic_load(&lane->state) == ORION_LANE_READY) return true;
    }
    return false;
}

EXPORTED int orion_set_client_role(int client, int role)
{
    struct orion_process *process = orion_inprocess_locked();
    int result = 0;
    bool known = role == ORION_CLIENT_HP || role == ORION_CLIENT_BE;
    if (process == NULL) return orion_inprocess_fail("no scheduler runs; orion_start_scheduler() starts it");
    if (!orion_inprocess_has(process, client)) result = orion_inprocess_fail("there is no client %d", client);
    else if (!known) result = orion_inprocess_fail("a role is hp (1) or be (2), not %d", role);
    else if (has_begun(process, client)) result = orion_inprocess_fail("client %d has begun to work; its role stays", client);
    else process->inprocess.roles[client] = (uint32_t)role;
    if (result == 0) orion_virtual_boards_seat(process, process->inprocess.roles, atomic_load(&process->inprocess.clients));
    orion_inprocess_unlock(process);
    return result;
}

EXPORTED int orion_set_policy(int policy, uint32_t max_slowdown_milli)
{
    bool known = (policy >= ORION_POLICY_NONE && policy <= ORION_POLICY_ORION) ||
                 (policy >= ORION_POLICY_STREAMS && policy <= ORION_POLICY_ORION_2024);
    if (!known) return orion_inprocess_fail("there is no policy %d", policy);
    if (max_slowdown_milli < 1000 || max_slowdown_milli > 100000)
        return orion_inprocess_fail("max_slowdown must be 1 to 100, in thousandths, not %u", max_slowdown_milli);
    struct orion_process *process = orion_inprocess_locked();
    if (process == NULL) return orion_inprocess_fail("no scheduler runs; orion_start_scheduler() starts it");
    orion_virtual_boards_set_policy(process, (uint32_t)policy, max_slowdown_milli);
    orion_inprocess_unlock(process);
    return 0;
}

static uint64_t launches_of(struct orion_process *process, const struct orion_board *board)
{
    uint64_t launches = atomic_load(&board->record->launches); /* on lanes that have passed to other streams */
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        if (lane->board == board) launches += atomic_load_explicit(&lane->begun, memory_order_relaxed) - lane->begun_before;
    }
    return launches;
}

EXPORTED int orion_client_figures(int client, struct orion_client_figures *figures, size_t size)
{
    struct orion_process *process = orion_inprocess_with(client);
    if (process == NULL) return -1;
    struct orion_board *board = process->inprocess.boards[client];
    struct orion_record_page *record = board->record;
    const struct orion_client_figures now = {
        .role = atomic_load(&board->role),
        .launches = launches_of(process, board),
        .gated_launches = atomic_load(&record->gated_launches),
        .gated_ns = atomic_load(&record->gated_ns),
        .window_waits = atomic_load(&record->window_waits),
        .window_wait_ns = atomic_load(&record->window_wait_ns),
        .overlapped_launches = atomic_load(&record->overlapped_launches),
        .overlapped_ns = atomic_load(&record->overlapped_ns),
        .busy_ns = atomic_load(&record->busy_ns),
        .busy_periods = atomic_load(&record->busy_periods),
        .gpu_ns = atomic_load(&record->gpu_ns),
        .in_flight_ns = atomic_load(&board->in_flight_ns),
    };
    memcpy(figures, &now, size < sizeof now ? size : sizeof now);
    return 0;
}
