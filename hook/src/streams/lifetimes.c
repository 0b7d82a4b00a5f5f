/* What ends takes its lanes, events and pinned pages with it: contexts, primary contexts, streams, code. While a context
 * ends, the drain thread touches none and the valve stands open, so that its streams can come to their end. */
#include "core.h"
#include "process.h"
#include "agent/board.h"
#include "be/valve.h"
#include "be/window.h"
#include "generated/driver.h"
#include "hp/busy.h"
#include "learning/kernels.h"
#include "streams/capture.h"
#include "threads/redirect.h"

void orion_context_creating(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) orion_board_of(device);
}

/* Ends the lanes of a context (NULL: of a whole board): their work is over or about to be. */
static void end_lanes(struct orion_process *process, CUcontext context, const struct orion_board *board)
{
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        struct orion_board *its = lane->board;
        if (its == NULL || (context != NULL ? lane->context != context : its != board)) continue;
        orion_window_forget(lane, false);
        atomic_store(&lane->last, NULL);
        orion_lane_prove(lane, atomic_load(&lane->begun));
        uint32_t ready = ORION_LANE_READY;
        if (i >= ORION_BOARDS) atomic_compare_exchange_strong(&lane->state, &ready, ORION_LANE_ENDED);
        if (atomic_load(&its->role) == ORION_ROLE_HP) orion_busy_try_close(process, its);
    }
}

void orion_context_ending(CUcontext context)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    orion_forbid_touch(process);
    orion_valve_open_all(process);
    orion_kernels_forget(&process->kernels);
    if (context != NULL) orion_own_streams_end(context), end_lanes(process, context, NULL);
    atomic_fetch_add(&process->context_epoch, 1);
    atomic_fetch_add(&process->lane_epoch, 1);
}

static _Thread_local CUdevice ending_primary = -1;

/* A release ends the context only when it is the last: its events are given up before, its lanes ended after. */
void orion_primary_ending(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    orion_forbid_touch(process);
    orion_valve_open_all(process);
    ending_primary = device;
    orion_kernels_forget(&process->kernels);
    uint32_t boards = atomic_load(&process->board_count);
    for (uint32_t i = 0; i < boards && i < ORION_BOARDS; i++)
        if (process->boards[i].device == device) orion_partition_rest(&process->boards[i]);
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        struct orion_board *board = lane->board;
        if (board != NULL && board->device == device) orion_window_forget(lane, true);
    }
    for (uint32_t i = 0; i < boards && i < ORION_BOARDS; i++)
        if (process->boards[i].device == device) orion_partition_end(&process->boards[i]);
    atomic_fetch_add(&process->context_epoch, 1);
    atomic_fetch_add(&process->lane_epoch, 1);
}

void orion_context_ended(void)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    unsigned flags;
    int active = 1;
    CUdevice device = ending_primary;
    ending_primary = -1;
    if (device >= 0 && orion_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && !active) {
        if (atomic_load(&process->inprocess.device) == device + 1) orion_own_streams_end(NULL);
        for (uint32_t i = 0; i < atomic_load(&process->board_count) && i < ORION_BOARDS; i++)
            if (process->boards[i].device == device) end_lanes(process, NULL, &process->boards[i]);
    }
    /* Once more: what another thread learnt of contexts meanwhile may have been of the one that ended. */
    atomic_fetch_add(&process->context_epoch, 1);
    atomic_fetch_add(&process->lane_epoch, 1);
    orion_allow_touch(process);
}

/* hp's work goes on when its stream is destroyed. A client of threads cannot have it proven with the whole context, where
 * others work too: an event stays behind it. */
static void leave_event(struct orion_lane *lane)
{
    if (lane->board->client == 0) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    CUevent event = atomic_exchange(&lane->last, NULL); /* of the stream that had the lane before */
    if (event != NULL) orion_driver.cuEventDestroy_v2(event);
    if (atomic_load(&lane->drained) != atomic_load(&lane->begun) &&
        orion_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        if (orion_driver.cuEventRecord(event, orion_lane_handle(lane)) == CUDA_SUCCESS) atomic_store(&lane->last, event);
        else orion_driver.cuEventDestroy_v2(event);
    }
    orion_capture_unrelax(&relaxed);
}

void orion_stream_ending(CUstream stream)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = ORION_BOARDS; i < used; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        uint32_t ready = ORION_LANE_READY;
        if (lane->key != (uint64_t)(uintptr_t)stream || atomic_load(&lane->state) != ready) continue;
        orion_capture_stream_ending(process, lane->stream);
        orion_window_forget(lane, true);
        struct orion_board *board = lane->board;
        /* hp's work goes on, unproven. be's need not be: nobody waits for it, and the lane is free for another stream. */
        if (atomic_load(&board->role) == ORION_ROLE_BE) orion_lane_prove(lane, atomic_load(&lane->begun));
        else leave_event(lane);
        /* The drain thread touches streams of threads' clients by their handles; no longer, from here on. */
        if (board->client != 0) orion_forbid_touch(process);
        atomic_compare_exchange_strong(&lane->state, &ready, ORION_LANE_ENDED);
        if (board->client != 0) orion_allow_touch(process);
        atomic_fetch_add(&process->lane_epoch, 1);
    }
}

/* A handle of what ends may come to mean another kernel. */
void orion_code_ending(void)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) orion_kernels_forget(&process->kernels);
}
