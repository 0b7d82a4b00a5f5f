/* Priorities of streams, where work of several processes runs together: hp's blocks start before be's whenever an SM has
 * room. The order among a program's own streams is kept: hp's are all lifted by one step, be's all get the lowest. The
 * default stream has no priority of its own; graphs take that of the stream that they were captured on, which is why
 * streams are lifted rather than launches. By turns, in time-slicing, priorities of different processes never meet, and a
 * program's own are left alone. */
#include "core.h"
#include "policy.h"
#include "process.h"
#include "agent/board.h"
#include "generated/driver.h"

static bool orders_by_priority(const struct orion_board *board)
{
    const struct orion_policy *policy = orion_board_policy(board);
    if (policy->kind == ORION_POLICY_STREAMS || policy->kind == ORION_POLICY_ORION_2024) return true;
    return policy->kind == ORION_POLICY_ORION && orion_runs_together(board);
}

int orion_stream_priority(int priority)
{
    CUdevice device;
    int lowest, highest;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || orion_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return priority;
    bool threads = orion_inprocess_runs(process);
    struct orion_board *board = threads ? orion_inprocess_board(process, NULL, device) : orion_board_of(device);
    if (board == NULL) return priority;
    orion_board_await_join(board);
    if (!orders_by_priority(board) || orion_driver.cuCtxGetStreamPriorityRange == NULL) return priority;
    if (orion_driver.cuCtxGetStreamPriorityRange(&lowest, &highest) != CUDA_SUCCESS) return priority;
    uint32_t role = atomic_load_explicit(&board->role, memory_order_relaxed);
    if (role == ORION_ROLE_BE) return lowest;
    return role == ORION_ROLE_HP && priority > highest ? priority - 1 : priority; /* numerically lower is higher */
}
