/* Work and events: passes the wrappers' calls on to the packages that handle them. proofs.c handles what shows that work is complete,
 * lifetimes.c what ends. */
#include "core/core.h"

#include "be/admission.h"
#include "be/between_pieces.h"
#include "be/driver_order.h"
#include "be/event_words.h"
#include "be/overlap.h"
#include "be/partition.h"
#include "be/window.h"
#include "core/faults.h"
#include "hp/busy.h"
#include "hp/ceiling.h"
#include "hp/marks.h"
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
#include "streams/client_order.h"
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
    orion_client_order_keep(process, stream_record);
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
    if (work->elsewhere.stream != NULL) orion_partition_join(orion_the_process, stream_record, work->elsewhere);
    if (work->flags & ORION_ADMITTED_UNDER_WAY) orion_between_pieces_launched(stream_record);
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
    if (process == NULL || !orion_client_order_is_used(process)) return;
    stream_record = orion_stream_record_of(process, stream);
    if (stream_record != NULL) orion_client_order_keep(process, stream_record);
}

void orion_operation_end(struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || !orion_process_has_scheduler(process)) return;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, stream);
    if (stream_record != NULL) orion_client_order_operated(process, stream_record);
}

/* -- Events ---------------------------------------------------------------------------------------------------------- */

void orion_event_recording(struct orion_recording *recording)
{
    recording->stream_record = NULL;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_stream_record *stream_record = orion_stream_record_of(process, recording->stream);
    if (stream_record == NULL || orion_capture_records(process, recording->stream)) return;
    orion_client_order_keep(process, stream_record);
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

static void set_recorded(struct orion_process *process, const struct orion_recording *recording)
{
    struct orion_recorded recorded = {.stream_record = orion_stream_record_index(process, recording->stream_record),
                                      .waits = recording->waits,
                                      .returned = recording->returned,
                                      .context_epoch = atomic_load(&process->context_epoch)};
    if (!orion_stream_record_is_shared(process, recording->stream_record)) recorded.context = recording->stream_record->context;
    orion_recordings_set(orion_recordings(process), recording->event, &recorded, recording->number);
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
    else set_recorded(process, recording);
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
