/* What the wrappers call around work, proofs and events, passed on to the rooms that know about them (for what ends, see
 * lifetimes.c). */
#include "core.h"

#include "faults.h"
#include "policy.h"
#include "process.h"
#include "report.h"
#include "thread.h"
#include "agent/board.h"
#include "be/admission.h"
#include "be/baselines.h"
#include "be/collective.h"
#include "be/gate.h"
#include "be/overlap.h"
#include "be/partition.h"
#include "be/valve.h"
#include "be/window.h"
#include "generated/driver.h"
#include "hp/busy.h"
#include "learning/identity.h"
#include "streams/capture.h"

/* -- Work ------------------------------------------------------------------------------------------------------------ */

void orion_work_begin(struct orion_work *work)
{
    work->lane = NULL;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || work->identity == ORION_IDENTITY_NONE) return;
    struct orion_lane *lane = orion_lane_of(process, work->stream);
    if (lane == NULL || orion_capture_records(process, work->stream)) return;
    struct orion_board *board = lane->board;
    work->expected_ns = 0;
    work->flags = 0;
    work->elsewhere = NULL;
    uint32_t role = atomic_load_explicit(&board->role, memory_order_relaxed);
    if (role == ORION_ROLE_BE && orion_policy_admits(orion_board_policy(board))) orion_admit(process, lane, work);
    work->lane = lane;
    atomic_fetch_add(&lane->begun, 1);
    if (role != ORION_ROLE_HP) return;
    work->flags = orion_busy_set(board);
    if (__builtin_expect(work->flags != ORION_BUSY_SAME, 0)) orion_busy_began(process, board, work->flags);
    if (__builtin_expect(orion_policy_asks(board), 0)) orion_overlap_tell(process, board, work);
}

void orion_work_end(struct orion_work *work, CUresult result)
{
    struct orion_lane *lane = work->lane;
    if (lane == NULL) return;
    struct orion_board *board = lane->board;
    if (work->elsewhere != NULL) orion_partition_join(lane, work->elsewhere);
    atomic_fetch_add(&lane->returned, 1);
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) orion_fault_seen(orion_the_process, lane, result);
    if (work->expected_ns == 0) {
        /* A system call, and so behind the launch: the GPU is at work meanwhile. */
        if (work->flags == ORION_BUSY_OPENED) orion_thread_wake_by(board, 0);
        return;
    }
    /* A failed launch took no time; its sample, if it was one, is closed all the same. */
    if (result != CUDA_SUCCESS && !(work->flags & ORION_ADMITTED_TIMED)) orion_window_leave(board, work->expected_ns);
    else orion_window_launched(orion_the_process, lane, work->expected_ns, work->flags & ORION_ADMITTED_TIMED);
}

/* -- Proofs ---------------------------------------------------------------------------------------------------------- */

#define MARKS 16u
/* What a context-wide proof that is under way in this thread will prove. More lanes are left to the drain thread. */
static _Thread_local struct { struct orion_lane *lane; uint64_t returned; } marks[MARKS];
static _Thread_local uint32_t mark_count;

static void mark_context(struct orion_process *process, CUcontext context)
{
    mark_count = 0;
    if (context == NULL && orion_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return;
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used && mark_count < MARKS; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        if (lane->board == NULL || lane->context != context) continue;
        uint64_t returned = atomic_load(&lane->returned);
        if (returned == atomic_load(&lane->drained)) continue;
        marks[mark_count].lane = lane;
        marks[mark_count++].returned = returned;
    }
}

/* Or never will be: an error is the program's to see, and not only when hp is idle. */
static bool is_done(const struct orion_proof *proof, const struct orion_lane *lane)
{
    if (proof->scope == ORION_PROOF_EVENT) return orion_driver.cuEventQuery(proof->event) != CUDA_ERROR_NOT_READY;
    bool asks = proof->scope == ORION_PROOF_STREAM && !proof->of_itself;
    return asks && orion_driver.cuStreamQuery(orion_lane_handle(lane)) != CUDA_ERROR_NOT_READY;
}

/* A be call that would block behind a closed valve waits for hp here: the driver would spin. */
static void sleep_instead_of_spinning(struct orion_process *process, const struct orion_proof *proof)
{
    struct orion_lane *lane = proof->scope == ORION_PROOF_CONTEXT ? (mark_count > 0 ? marks[0].lane : NULL) : proof->lane;
    struct orion_board *board = lane != NULL ? lane->board : NULL;
    if (board == NULL || atomic_load_explicit(&board->role, memory_order_relaxed) != ORION_ROLE_BE) return;
    if (!orion_valve_would_block(board)) return;
    atomic_store_explicit(&board->record->waiting_since_ns, orion_now(), memory_order_relaxed);
    while (orion_valve_would_block(board) && atomic_load(&process->captures) == 0 && !is_done(proof, lane)) {
        struct orion_board *other = orion_collective_stands(process, board); /* whose hp is waited for */
        orion_gate_sleep(process, other != NULL ? other : board, ORION_MILLISECOND);
    }
    atomic_store_explicit(&board->record->waiting_since_ns, 0, memory_order_relaxed);
}

void orion_proof_begin(struct orion_proof *proof)
{
    proof->lane = NULL;
    proof->counted = false;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    proof->counted = proof->blocks;
    if (proof->counted) atomic_fetch_add(&process->blocked_proofs, 1);
    uint32_t index;
    if (proof->scope == ORION_PROOF_CONTEXT) {
        mark_context(process, proof->context);
    } else if (proof->scope == ORION_PROOF_STREAM) {
        proof->lane = orion_lane_of(process, proof->stream);
        if (proof->lane != NULL) proof->returned = atomic_load(&proof->lane->returned) + proof->of_itself;
    } else if (orion_recordings_get(&process->recordings, proof->event, &index, &proof->returned)) {
        if (index < ORION_LANES) proof->lane = &process->lanes.lane[index];
    }
    if (proof->lane != NULL && orion_lane_is_shared(process, proof->lane)) proof->lane = NULL;
    if (proof->blocks) sleep_instead_of_spinning(process, proof);
}

static void proven(struct orion_process *process, struct orion_lane *lane, uint64_t returned)
{
    struct orion_board *board = lane->board;
    if (board == NULL) return;
    uint64_t most = atomic_load(&lane->returned); /* `of_itself` may count work that this process did not, before it joined */
    orion_lane_prove(lane, returned < most ? returned : most);
    uint32_t role = atomic_load_explicit(&board->role, memory_order_relaxed);
    if (role == ORION_ROLE_HP) orion_busy_try_close(process, board);
    else if (role == ORION_ROLE_BE && atomic_load(&lane->drained) == atomic_load(&lane->begun)) orion_window_drained(process, lane);
}

static void synchronised(struct orion_process *process, struct orion_board *board)
{
    if (board == NULL || atomic_load_explicit(&board->role, memory_order_relaxed) == ORION_ROLE_NONE) return;
    if (orion_board_policy(board)->kind == ORION_POLICY_TICKTOCK) orion_baseline_synchronised(process, board);
}

void orion_proof_end(struct orion_proof *proof, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (proof->counted) atomic_fetch_sub(&process->blocked_proofs, 1);
    if (process == NULL) return;
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        struct orion_lane *lane = proof->scope == ORION_PROOF_CONTEXT && mark_count > 0 ? marks[0].lane : proof->lane;
        if (lane != NULL) orion_fault_seen(process, lane, result);
        return;
    }
    /* An event recorded again meanwhile: which recording was waited for cannot be told. */
    uint32_t index;
    uint64_t returned;
    if (proof->scope == ORION_PROOF_EVENT && proof->lane != NULL &&
        !(orion_recordings_get(&process->recordings, proof->event, &index, &returned) && returned == proof->returned &&
          &process->lanes.lane[index % ORION_LANES] == proof->lane))
        return;
    if (proof->scope != ORION_PROOF_CONTEXT) {
        if (proof->lane == NULL) return;
        proven(process, proof->lane, proof->returned);
        if (proof->blocks) synchronised(process, proof->lane->board);
        return;
    }
    for (uint32_t i = 0; i < mark_count; i++) proven(process, marks[i].lane, marks[i].returned);
    mark_count = 0;
    /* Of all GPUs, since marks may be gone that were proven meanwhile: no more than an iteration too many elsewhere. */
    for (uint32_t i = 0; proof->blocks && i < atomic_load(&process->board_count) && i < ORION_BOARDS; i++)
        synchronised(process, &process->boards[i]);
}

/* -- Events ---------------------------------------------------------------------------------------------------------- */

void orion_event_recording(struct orion_recording *recording)
{
    recording->lane = NULL;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_lane *lane = orion_lane_of(process, recording->stream);
    if (lane == NULL || orion_capture_records(process, recording->stream)) return;
    recording->lane = lane;
    recording->returned = atomic_load(&lane->returned);
    orion_recordings_forget(&process->recordings, recording->event);
}

/* Forgotten before the driver's call and remembered after it: between the two a wait on the event proves nothing. */
void orion_event_recorded(struct orion_recording *recording, CUresult result)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || result != CUDA_SUCCESS) return;
    if (recording->lane == NULL) orion_recordings_forget(&process->recordings, recording->event);
    else orion_recordings_set(&process->recordings, recording->event, orion_lane_index(process, recording->lane), recording->returned);
}

void orion_event_ending(CUevent event)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) orion_recordings_forget(&process->recordings, event);
}

void orion_unknown_function(const char *name, int version)
{
    struct orion_process *process = orion_process_started();
    (void)version;
    if (process == NULL) return;
    orion_say_once_about(process, ORION_SAY_UNKNOWN, name);
    for (uint32_t i = 0; i < atomic_load(&process->board_count) && i < ORION_BOARDS; i++)
        if (atomic_load(&process->boards[i].role) != ORION_ROLE_NONE)
            atomic_fetch_add_explicit(&process->boards[i].record->unknown_functions, 1, memory_order_relaxed);
}
