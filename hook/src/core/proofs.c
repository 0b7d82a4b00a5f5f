/* Proofs: which work is complete once a call of the program has returned. A be call that would wait behind a closed valve sleeps here
 * instead, because the driver would spin. */
#include "be/baseline_seam.h"
#include "be/driver_order.h"
#include "be/gate.h"
#include "be/order_wait.h"
#include "be/stop.h"
#include "be/window.h"
#include "core/core.h"
#include "core/faults.h"
#include "generated/driver.h"
#include "hp/busy.h"
#include "parking/parking.h"
#include "process/absence.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/client_order.h"
#include "streams/recordings.h"
#include "streams/stream_records.h"

#define SETTLING_NS (50 * ORION_MILLISECOND) /* contexts take turns on the GPU, and be's work before the copy runs first */
#define MARKS 64u
/* The work that is complete once the call in progress on this thread has synchronised the context: one mark for each
 * stream record. If there are more than MARKS stream records, the drain thread proves hp's work in the others, and events be's. */
static _Thread_local struct {
    struct orion_stream_record *stream_record;
    uint64_t returned;
} marks[MARKS];
static _Thread_local uint32_t mark_count;

static void mark_context(struct orion_process *process, CUcontext context)
{
    mark_count = 0;
    if (context == NULL && orion_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return;
    ORION_EACH_STREAM_RECORD(stream_record, process, NULL) {
        if (mark_count == MARKS) break;
        if (!orion_stream_record_is_in(stream_record, context)) continue;
        uint64_t returned = atomic_load(&stream_record->returned);
        if (returned == atomic_load(&stream_record->drained)) continue;
        marks[mark_count].stream_record = stream_record;
        marks[mark_count++].returned = returned;
    }
}

/* CUDA_ERROR_NOT_READY also while the process is away. */
static CUresult query(struct orion_process *process, const struct orion_proof *proof,
                      const struct orion_stream_record *stream_record)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    enum orion_presence presence = orion_present_try(process);
    if (presence == ORION_ABSENT) return result;
    struct orion_relaxed relaxed = orion_capture_relax(); /* another thread may begin a capture at any time */
    if (proof->scope == ORION_PROOF_EVENT) result = orion_driver.cuEventQuery(proof->event);
    else if (proof->scope == ORION_PROOF_STREAM && !proof->of_itself)
        result = orion_driver.cuStreamQuery(orion_stream_record_handle(stream_record));
    orion_capture_unrelax(&relaxed);
    orion_present_end(process, presence);
    return result;
}

/* Also true if the query fails: the program must see that error at once, not only when hp is idle. This proves
 * nothing: the program's own call follows. */
static bool is_done(struct orion_process *process, const struct orion_proof *proof, const struct orion_stream_record *stream_record)
{
    return query(process, proof, stream_record) != CUDA_ERROR_NOT_READY;
}

/* If a be call would block behind a closed valve, the driver would spin. This function sleeps until hp is idle instead,
 * or until the proof's work is done; NULL: the call proves nothing. A thread may hold a lock of the program meanwhile.
 * That is safe: hp is found idle, or is given up on, without any call of the program. */
static void sleep_instead_of_spinning(struct orion_process *process, struct orion_stream_record *stream_record,
                                      const struct orion_proof *proof)
{
    struct orion_gpu *gpu = stream_record != NULL ? stream_record->gpu : NULL;
    if (gpu == NULL || atomic_load_explicit(&gpu->role, memory_order_relaxed) != ORION_ROLE_BE) return;
    struct orion_gpu *blocked_by = orion_stops_would_block(process, gpu); /* the GPU whose hp stops the work */
    if (blocked_by == NULL) return;
    atomic_store_explicit(&gpu->record->waiting_since_ns, orion_now(), memory_order_relaxed);
    /* What the valve did not hold back is done soon. The rest waits for hp, whose end wakes this thread. */
    for (uint64_t pause = ORION_MILLISECOND; blocked_by != NULL; blocked_by = orion_stops_would_block(process, gpu)) {
        if (atomic_load(&process->captures) > 0 || (proof != NULL && is_done(process, proof, stream_record))) break;
        orion_stops_sleep(process, blocked_by, pause);
        pause = pause < ORION_GATE_POLL_NS / 2 ? pause * 2 : ORION_GATE_POLL_NS;
    }
    atomic_store_explicit(&gpu->record->waiting_since_ns, 0, memory_order_relaxed);
}

void orion_work_blocks(struct orion_work *work) { sleep_instead_of_spinning(orion_the_process, work->stream_record, NULL); }

/* The driver returns from such a copy when the host's memory may be used again. On a GPU that takes the copy at once it is all but complete
 * then, and programs launch into streams that the driver does not order with it. Behind a stop it may come much later.
 *
 * But work before the copy may wait for what the program does after it, and then the driver returns all the same. So the wait ends. It
 * counts only time in which no stop holds the GPU, so it is long enough for a copy that only a stop holds.
 * Rejected: no wait behind work that was not complete before the call. That work, too, may be incomplete only because hp held it. */
void orion_work_settles(const struct orion_work *work)
{
    struct orion_process *process = orion_the_process;
    struct orion_gpu *gpu = work->stream_record->gpu;
    if (!orion_gate_closed(gpu) && !orion_gate_hp_was_busy_since(gpu, work->admitted_ns)) return;
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = work->stream};
    struct orion_order_wait wait = {0};
    CUresult result;
    orion_proof_begin(&proof);
    while ((result = query(process, &proof, work->stream_record)) == CUDA_ERROR_NOT_READY)
        if (atomic_load(&process->captures) > 0 || !orion_order_waits_briefly(process, gpu, &wait, SETTLING_NS)) break;
    orion_proof_end(&proof, result);
}

enum orion_presence orion_present_begin(struct orion_process *process)
{
    enum orion_presence presence;
    while ((presence = orion_present_try(process)) == ORION_ABSENT && atomic_load(&process->exits) == 0)
        orion_parking_await(process);
    return presence;
}

static void mark_recorded(struct orion_process *process, struct orion_proof *proof)
{
    struct orion_recorded recorded;
    if (!orion_recordings_get(orion_recordings(process), proof->event, &recorded)) return;
    proof->stream_record = &orion_stream_records(process)->entry[recorded.stream_record];
    proof->returned = recorded.returned;
    proof->waits = recorded.waits;
}

/* If the event was recorded again meanwhile, it is unknown which recording the call waited for. */
static bool is_recorded_as_before(struct orion_process *process, const struct orion_proof *proof)
{
    struct orion_recorded recorded;
    return orion_recordings_get(orion_recordings(process), proof->event, &recorded) && recorded.returned == proof->returned &&
           recorded.waits == proof->waits && &orion_stream_records(process)->entry[recorded.stream_record] == proof->stream_record;
}

void orion_proof_begin(struct orion_proof *proof)
{
    proof->stream_record = NULL;
    proof->counted = false;
    proof->waits = 0;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    proof->counted = proof->blocks;
    if (proof->counted) atomic_fetch_add(&process->blocked_proofs, 1);
    if (proof->scope == ORION_PROOF_CONTEXT) {
        mark_context(process, proof->context);
    } else if (proof->scope == ORION_PROOF_STREAM) {
        proof->stream_record = orion_stream_record_of(process, proof->stream);
        if (proof->stream_record != NULL) {
            if (orion_client_order_matters(process, proof->stream_record))
                orion_client_order_put_before_own(process, proof->stream_record);
            proof->returned = atomic_load(&proof->stream_record->returned) + proof->of_itself;
            proof->waits = orion_driver_order_waits(proof->stream_record);
        }
    } else {
        mark_recorded(process, proof);
    }
    if (proof->stream_record != NULL && orion_stream_record_is_shared(process, proof->stream_record)) proof->stream_record = NULL;
    struct orion_stream_record *waited_for =
        proof->scope == ORION_PROOF_CONTEXT && mark_count > 0 ? marks[0].stream_record : proof->stream_record;
    if (proof->blocks) sleep_instead_of_spinning(process, waited_for, proof);
}

static void proven(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t returned)
{
    struct orion_gpu *gpu = stream_record->gpu;
    if (gpu == NULL) return;
    uint64_t most = atomic_load(&stream_record->returned); /* `returned` of a proof of_itself may be 1 too large */
    orion_stream_record_prove(stream_record, returned < most ? returned : most);
    uint32_t role = atomic_load_explicit(&gpu->role, memory_order_relaxed);
    if (role == ORION_ROLE_HP) orion_busy_try_close(process, gpu);
    else if (role == ORION_ROLE_BE && orion_stream_record_is_drained(stream_record)) orion_window_drained(process, stream_record);
}

void orion_proof_end(struct orion_proof *proof, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (proof->counted) atomic_fetch_sub(&process->blocked_proofs, 1);
    if (process == NULL) return;
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        struct orion_stream_record *stream_record =
            proof->scope == ORION_PROOF_CONTEXT && mark_count > 0 ? marks[0].stream_record : proof->stream_record;
        if (stream_record != NULL) orion_fault_seen(process, stream_record, result);
        return;
    }
    if (proof->scope == ORION_PROOF_EVENT && proof->stream_record != NULL && !is_recorded_as_before(process, proof)) return;
    if (proof->scope != ORION_PROOF_CONTEXT) {
        if (proof->stream_record == NULL) return;
        proven(process, proof->stream_record, proof->returned);
        if (proof->waits != 0) orion_driver_order_over(proof->stream_record, proof->waits);
        if (proof->blocks) orion_baseline_synchronised(process, proof->stream_record->gpu);
        return;
    }
    for (uint32_t i = 0; i < mark_count; i++) proven(process, marks[i].stream_record, marks[i].returned);
    for (uint32_t i = 0; mark_count == MARKS && i < orion_process_gpus(process); i++)
        if (atomic_load(&process->gpus[i].role) == ORION_ROLE_BE) orion_window_reap(process, &process->gpus[i]);
    mark_count = 0;
    /* Reports the end of an iteration for all GPUs, not only for those with a mark: if another thread has proved the
     * work meanwhile, there is no mark. A GPU that the call does not concern counts at most one iteration too many. */
    for (uint32_t i = 0; proof->blocks && i < orion_process_gpus(process); i++)
        orion_baseline_synchronised(process, &process->gpus[i]);
}
