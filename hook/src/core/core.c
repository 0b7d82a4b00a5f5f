/* Work, proofs and events: passes the wrappers' calls on to the packages that handle them. lifetimes.c handles what
 * ends. */
#include "core/core.h"

#include "be/admission.h"
#include "be/baseline_seam.h"
#include "be/driver_order.h"
#include "be/event_words.h"
#include "be/gate.h"
#include "be/overlap.h"
#include "be/partition.h"
#include "be/stop.h"
#include "be/window.h"
#include "core/faults.h"
#include "generated/driver.h"
#include "hp/busy.h"
#include "hp/ceiling.h"
#include "hp/marks.h"
#include "learning/identity.h"
#include "parking/parking.h"
#include "process/absence.h"
#include "process/gpu.h"
#include "process/notifier.h"
#include "process/plan.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/report.h"
#include "slices/time_slice.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "streams/recordings.h"

/* -- Work ------------------------------------------------------------------------------------------------------------ */

static void run_errands(struct orion_process *process, struct orion_gpu *gpu)
{
    uint32_t errands = atomic_load(&process->errands);
    if (errands & ORION_ERRAND_PARKER) orion_parking_start(process, gpu);
    if (errands & ORION_ERRAND_STAY) orion_parking_stay(process, gpu);
    if (errands & ORION_ERRAND_SLICES) orion_time_slice_apply(process);
}

void orion_work_begin(struct orion_work *work)
{
    work->stream_record = NULL;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, work->stream);
    if (stream_record == NULL || orion_capture_records(process, work->stream)) return;
    struct orion_gpu *gpu = stream_record->gpu;
    uint32_t role = atomic_load_explicit(&gpu->role, memory_order_relaxed);
    work->expected_ns = 0;
    work->flags = 0;
    work->elsewhere.stream = NULL;
    if (role != ORION_ROLE_HP) {
        if (role == ORION_ROLE_BE && orion_has_errands(process)) run_errands(process, gpu);
        if (role == ORION_ROLE_BE && orion_admits(gpu)) orion_admit(process, stream_record, work);
        work->stream_record = stream_record;
        atomic_fetch_add(&stream_record->begun, 1);
        if (role == ORION_ROLE_BE) orion_driver_order_begun(stream_record);
        return;
    }
    if (orion_plan_may_exist(gpu)) orion_ceiling_wait(gpu);
    work->stream_record = stream_record;
    atomic_fetch_add(&stream_record->begun, 1);
    work->flags = orion_busy_set(gpu);
    if (__builtin_expect(work->flags != ORION_BUSY_SAME, 0)) {
        if (orion_time_slice_due(process)) orion_time_slice_apply(process);
        orion_busy_began(process, gpu, work->flags);
    }
    if (__builtin_expect(orion_policy_asks(gpu), 0)) orion_overlap_publish(process, gpu, work);
}

void orion_work_end(struct orion_work *work, CUresult result)
{
    struct orion_stream_record *stream_record = work->stream_record;
    if (stream_record == NULL) return;
    struct orion_gpu *gpu = stream_record->gpu;
    if (work->elsewhere.stream != NULL) orion_partition_join(stream_record, work->elsewhere);
    atomic_fetch_add(&stream_record->returned, 1);
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) orion_fault_seen(orion_the_process, stream_record, result);
    if (work->expected_ns == 0) {
        /* Waking takes a system call, so it is done after the launch, while the GPU works. */
        if (work->flags == ORION_BUSY_OPENED) orion_thread_wake_by(gpu, 0);
        bool graph = work->launch.graph != NULL;
        if (orion_marks_due(stream_record, graph)) orion_marks_launched(orion_the_process, stream_record, graph);
        return;
    }
    if (result != CUDA_SUCCESS) orion_window_failed(orion_the_process, stream_record, work->expected_ns, work->flags);
    else orion_window_launched(orion_the_process, stream_record, work->expected_ns, work->admitted_ns, work->flags);
}

static bool is_be(const struct orion_stream_record *stream_record)
{
    return atomic_load_explicit(&stream_record->gpu->role, memory_order_relaxed) == ORION_ROLE_BE;
}

/* For what concerns be only: in a process without be it costs no look-up. NULL: nothing is to be done. */
static struct orion_stream_record *record_of_be(struct orion_process *process, struct orion_stream_name stream)
{
    if (process == NULL || !orion_process_has_be(process)) return NULL;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    if (stream_record == NULL || !is_be(stream_record) || orion_capture_records(process, stream)) return NULL;
    return stream_record;
}

void orion_operation_begin(struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_stream_record *stream_record = record_of_be(process, stream);
    if (stream_record != NULL) orion_driver_order_operation(process, stream_record);
}

/* -- Proofs ---------------------------------------------------------------------------------------------------------- */

#define MARKS 16u
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

/* Also true if the query fails: the program must see that error at once, not only when hp is idle. This proves
 * nothing: the program's own call follows. */
static bool is_done(struct orion_process *process, const struct orion_proof *proof, const struct orion_stream_record *stream_record)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    enum orion_presence presence = orion_present_try(process);
    if (presence == ORION_ABSENT) return false;
    struct orion_relaxed relaxed = orion_capture_relax(); /* another thread may begin a capture at any time */
    if (proof->scope == ORION_PROOF_EVENT) result = orion_driver.cuEventQuery(proof->event);
    else if (proof->scope == ORION_PROOF_STREAM && !proof->of_itself)
        result = orion_driver.cuStreamQuery(orion_stream_record_handle(stream_record));
    orion_capture_unrelax(&relaxed);
    orion_present_end(process, presence);
    return result != CUDA_ERROR_NOT_READY;
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
 * then, and programs launch into streams that the driver does not order with it. Behind a stop it may come much later. */
void orion_work_settles(const struct orion_work *work)
{
    struct orion_process *process = orion_the_process;
    struct orion_gpu *gpu = work->stream_record->gpu;
    if (!orion_gate_closed(gpu) && !orion_gate_hp_was_busy_since(gpu, work->admitted_ns)) return;
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = work->stream};
    orion_proof_begin(&proof);
    enum orion_presence presence = orion_present_begin(process);
    CUresult result = CUDA_ERROR_DEINITIALIZED;
    if (presence != ORION_ABSENT) result = orion_driver.cuStreamSynchronize(orion_stream_handle(work->stream));
    orion_present_end(process, presence);
    orion_proof_end(&proof, result);
}

enum orion_presence orion_present_begin(struct orion_process *process)
{
    enum orion_presence presence;
    while ((presence = orion_present_try(process)) == ORION_ABSENT && atomic_load(&process->exits) == 0)
        orion_parking_await(process);
    return presence;
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
    uint32_t index;
    if (proof->scope == ORION_PROOF_CONTEXT) {
        mark_context(process, proof->context);
    } else if (proof->scope == ORION_PROOF_STREAM) {
        proof->stream_record = orion_stream_record_of(process, proof->stream);
        if (proof->stream_record != NULL) {
            proof->returned = atomic_load(&proof->stream_record->returned) + proof->of_itself;
            proof->waits = orion_driver_order_waits(proof->stream_record);
        }
    } else if (orion_recordings_get(orion_recordings(process), proof->event, &index, &proof->returned, &proof->waits)) {
        if (index < ORION_STREAM_RECORDS) proof->stream_record = &orion_stream_records(process)->entry[index];
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
    /* If the event was recorded again meanwhile, it is unknown which recording the call waited for. */
    uint32_t index, waits;
    uint64_t returned;
    if (proof->scope == ORION_PROOF_EVENT && proof->stream_record != NULL &&
        !(orion_recordings_get(orion_recordings(process), proof->event, &index, &returned, &waits) && returned == proof->returned &&
          waits == proof->waits && &orion_stream_records(process)->entry[index % ORION_STREAM_RECORDS] == proof->stream_record))
        return;
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

/* -- Events ---------------------------------------------------------------------------------------------------------- */

void orion_event_recording(struct orion_recording *recording)
{
    recording->stream_record = NULL;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, recording->stream);
    if (stream_record == NULL || orion_capture_records(process, recording->stream)) return;
    recording->waits = 0;
    if (is_be(stream_record)) {
        orion_driver_order_operation(process, stream_record);
        recording->waits = orion_driver_order_waits(stream_record);
    }
    recording->stream_record = stream_record;
    recording->returned = atomic_load(&stream_record->returned);
    orion_recordings_forget(orion_recordings(process), recording->event);
    recording->number = orion_event_word_write(process, stream_record);
}

/* The old recording is forgotten before the driver's call, the new one is set after it. Between the two, a wait on the
 * event proves nothing. */
void orion_event_recorded(struct orion_recording *recording, CUresult result)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || result != CUDA_SUCCESS) return;
    if (recording->stream_record == NULL && recording->external)
        orion_recordings_elsewhere(orion_recordings(process), recording->event);
    else if (recording->stream_record == NULL) orion_recordings_forget(orion_recordings(process), recording->event);
    else
        orion_recordings_set(orion_recordings(process), recording->event,
                             orion_stream_record_index(process, recording->stream_record), recording->returned, recording->number,
                             recording->waits);
}

void orion_event_awaited(CUevent event, struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_stream_record *stream_record = record_of_be(process, stream);
    uint32_t source, number;
    if (stream_record == NULL) return;
    if (orion_recordings_behind(orion_recordings(process), event, &source, &number)) {
        const struct orion_stream_record *behind = &orion_stream_records(process)->entry[source];
        orion_driver_order_awaits(process, stream_record, behind);
        orion_event_word_wait(process, stream_record, behind, number);
    }
    orion_driver_order_operation(process, stream_record);
}

void orion_event_ending(CUevent event)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) orion_recordings_end(orion_recordings(process), event);
}

void orion_event_elsewhere(CUevent event)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) orion_recordings_elsewhere(orion_recordings(process), event);
}

void orion_event_in_node(const CUgraphNodeParams *parameters)
{
    if (parameters->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) orion_event_elsewhere(parameters->eventRecord.event);
}

/* Programs look functions up before they have joined, so the GPUs' threads tell the agent: see membership.c. */
void orion_unknown_function(const char *name)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL && orion_unknown_note(&process->unknown, name)) orion_say_once_about(process, ORION_SAY_UNKNOWN, name);
}
