/* When a context ends, or code is unloaded, these functions end the stream records, events and pinned pages that belong to it. While a
 * context ends, the drain thread touches no context, and all valves stay open so that the context's streams can finish.
 * stream_lifetimes.c ends single streams. */
#include "core/lifetimes.h"

#include "be/chunks.h"
#include "be/ends.h"
#include "be/partition.h"
#include "be/stop.h"
#include "core/joining.h"
#include "generated/driver.h"
#include "hp/busy.h"
#include "hp/marks.h"
#include "learning/kernels.h"
#include "memory/contexts.h"
#include "memory/pools.h"
#include "parking/parking.h"
#include "process/absence.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/capture_origins.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"
#include "streams/own_streams.h"
#include "streams/recordings.h"

void orion_context_creating(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) orion_gpu_of(device);
}

void orion_green_creating(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) orion_memory_has_green(process);
    orion_context_creating(device);
}

static _Thread_local uint32_t ending_epoch; /* process->context_epoch once the thread's call began */

/* While a context ends, look-ups make new records: the driver may give the handles of its streams again before its call returns. */
static void hide_stream_records(struct orion_process *process, CUcontext context, uint32_t hidden)
{
    ORION_EACH_STREAM_RECORD(stream_record, process, NULL)
        if (stream_record->context == context && !orion_stream_record_is_shared(process, stream_record))
            atomic_store(&stream_record->hidden, hidden);
}

/* Ends the stream records of a context that has ended: those on a GPU (context NULL: all on the GPU), or the hidden ones, as others may be
 * of a new context with the same handle. None of their work runs any more. */
static void end_stream_records(struct orion_process *process, CUcontext context, const struct orion_gpu *gpu)
{
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        struct orion_gpu *owner = atomic_load(&stream_record->gpu); /* once the record has ended, another GPU may get it */
        if (context != NULL && stream_record->context != context) continue;
        if (gpu == NULL && atomic_load(&stream_record->hidden) == 0 && !orion_stream_record_is_shared(process, stream_record))
            continue;
        orion_ends_forget(stream_record, false);
        atomic_store(&stream_record->last, NULL);
        orion_stream_record_prove(stream_record, atomic_load(&stream_record->begun));
        uint32_t ready = ORION_STREAM_RECORD_READY;
        if (!orion_stream_record_is_shared(process, stream_record))
            atomic_compare_exchange_strong(&stream_record->state, &ready, ORION_STREAM_RECORD_ENDED);
        if (atomic_load(&owner->role) == ORION_ROLE_HP) orion_busy_try_close(process, owner);
    }
}

/* NULL: every context. */
static void end_clocks(struct orion_process *process, CUcontext context, bool context_lives)
{
    ORION_EACH_GPU(gpu, process) orion_ends_context(gpu, context, context_lives);
}

/* Counts before the driver's call, as the handles of what is in the context are invalid after it. NULL: any may end. */
static void count_end(struct orion_process *process, CUcontext context)
{
    ending_epoch = atomic_fetch_add(&process->context_epoch, 1) + 1;
    if (context != NULL) atomic_fetch_add(orion_ends_of(process, context), 1);
    for (uint32_t i = 0; context == NULL && i < ORION_CONTEXT_PLACES; i++) atomic_fetch_add(&process->ends_of_contexts[i], 1);
}

static _Thread_local uint32_t ending_memory; /* orion_memory_ending of the thread's call */

/* Until the driver's call has succeeded, hp's work may run, be's work is in flight, and the driver may refuse. So only events of the
 * hook that show no end of work go now. NULL: of all contexts, as a green context of the program may hold the last reference to a primary
 * context, and cuCtxDetach may end none. */
static void begin_end(struct orion_process *process, CUcontext context)
{
    orion_forbid_touch(process);
    orion_stops_open(process);
    orion_kernels_forget(orion_kernels(process));
    end_clocks(process, context, true);
    count_end(process, context);
    if (context != NULL) hide_stream_records(process, context, 1);
    ORION_EACH_GPU(gpu, process) orion_marks_end(process, gpu, context);
    atomic_fetch_add(&process->stream_record_epoch, 1);
    ending_memory = orion_memory_ending(process);
}

void orion_context_ending(CUcontext context)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) begin_end(process, context);
}

static _Thread_local uint64_t ending_primaries; /* bit i: that of device i */

static _Atomic uint32_t *retains_of(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    return process != NULL && device >= 0 && device < (int)ORION_GPUS ? &process->primary_retains[device] : NULL;
}

void orion_primary_retained(CUdevice device, const CUcontext *context, CUresult result)
{
    _Atomic uint32_t *retains = retains_of(device);
    if (retains == NULL || result != CUDA_SUCCESS) return;
    atomic_fetch_add(retains, 1);
    orion_memory_primary_is(orion_the_process, device, *context);
}

/* The hook counts the program's references to the primary context: a retain after the driver's call, and a release
 * before it. So this count is never higher than the driver's own count. If the release leaves a reference in this
 * count, the driver has one, too, and the context does not end. */
bool orion_primary_releasing(CUdevice device)
{
    _Atomic uint32_t *retains = retains_of(device);
    uint32_t count = retains == NULL ? 0 : atomic_load(retains);
    while (count > 1)
        if (atomic_compare_exchange_weak(retains, &count, count - 1)) return false;
    orion_primary_ending(device);
    return true;
}

/* Before the driver's call that may end a primary context. orion_context_ended ends its stream records after the call, if it has
 * ended. The hook's own green contexts would keep it. */
static void begin_primary_end(struct orion_process *process, CUdevice device)
{
    if (device >= 0 && device < 64) ending_primaries |= UINT64_C(1) << device;
    ORION_EACH_GPU(gpu, process) {
        if (gpu->device != device) continue;
        orion_partition_wait(gpu);
        orion_partition_end(process, gpu);
    }
}

/* The events of a primary context, before a call of the program that shall end it. Other contexts of the device live on; the hook takes
 * all of its streams for the primary context's only if it does not know that one's handle. */
static void end_primary_events(struct orion_process *process, CUdevice device)
{
    CUcontext primary = orion_process_primary(process, device);
    ORION_EACH_STREAM_RECORD(stream_record, process, NULL) {
        if (atomic_load(&stream_record->gpu)->device != device) continue;
        if (primary == NULL || stream_record->context == primary) orion_ends_forget(stream_record, true);
    }
    ORION_EACH_GPU(gpu, process) {
        if (gpu->device != device) continue;
        orion_ends_context(gpu, primary, true);
        orion_marks_end(process, gpu, primary);
    }
}

/* Only the last release ends the primary context. */
void orion_primary_ending(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    orion_forbid_touch(process);
    orion_stops_open(process);
    if (retains_of(device) != NULL) atomic_store(retains_of(device), 0);
    orion_kernels_forget(orion_kernels(process));
    begin_primary_end(process, device);
    end_primary_events(process, device);
    count_end(process, NULL);
    atomic_fetch_add(&process->stream_record_epoch, 1);
    ending_memory = orion_memory_ending(process);
}

static bool primary_is(CUdevice device, int active)
{
    unsigned flags;
    int is_active = !active;
    return orion_driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS && is_active == active;
}

static void end_primary(struct orion_process *process, CUdevice device)
{
    if (!primary_is(device, 0)) return;
    orion_capture_origins_end_in_primary(process, device);
    orion_pools_ended_on(process, device);
    CUcontext primary = orion_process_primary(process, device);
    orion_own_streams_end(process, primary, device);
    ORION_EACH_GPU(gpu, process) {
        if (gpu->device != device) continue;
        end_stream_records(process, primary, gpu);
        orion_ends_context(gpu, primary, false);
    }
    orion_recordings_end_in(orion_recordings(process), primary, ending_epoch);
    orion_memory_primary_ended(process, device, ending_memory);
}

void orion_context_ended(void)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    for (; ending_primaries != 0; ending_primaries &= ending_primaries - 1)
        end_primary(process, (CUdevice)__builtin_ctzll(ending_primaries));
    orion_recordings_clear(orion_recordings(process));
    /* The epochs grow again, because another thread may have cached a context that has since ended. */
    atomic_fetch_add(&process->context_epoch, 1);
    atomic_fetch_add(&process->stream_record_epoch, 1);
    orion_allow_touch(process);
}

static void end_what_was_in(struct orion_process *process, CUcontext context)
{
    orion_capture_origins_end_in(process, context);
    orion_own_streams_end(process, context, -1);
    end_stream_records(process, context, NULL);
    orion_recordings_end_in(orion_recordings(process), context, ending_epoch);
    end_clocks(process, context, false);
}

void orion_context_destroyed(CUcontext context, CUresult result)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL && context != NULL) {
        if (orion_outcome_of(result) != ORION_OUTCOME_UNKNOWN) end_what_was_in(process, context);
        else hide_stream_records(process, context, 0);
    }
    if (process != NULL && result == CUDA_SUCCESS) orion_memory_ended(process, context, ending_memory);
    orion_context_ended();
}

void orion_context_detaching(void)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) begin_end(process, NULL);
}

/* A program may detach only the current context. The driver takes one that has ended from the thread's stack. */
void orion_context_detached(CUcontext context, CUresult result)
{
    CUcontext current = context;
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    if (result == CUDA_SUCCESS) orion_driver.cuCtxGetCurrent(&current);
    if (current == context) {
        orion_context_ended();
        return;
    }
    hide_stream_records(process, context, 1);
    orion_context_destroyed(context, result);
}

/* Without a reference of the program, the green context may hold the last one to the primary context. */
static void begin_unreferenced_primary_ends(struct orion_process *process)
{
    for (uint32_t i = 0; i < orion_process_gpus(process); i++) {
        CUdevice device = process->gpus[i].device;
        _Atomic uint32_t *retains = retains_of(device);
        if (retains != NULL && atomic_load(retains) == 0 && primary_is(device, 1)) begin_primary_end(process, device);
    }
}

/* The streams stay, but the driver refuses their handles from now on. */
void orion_green_ending(CUgreenCtx green)
{
    CUcontext named = NULL;
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    begin_end(process, NULL);
    begin_unreferenced_primary_ends(process);
    if (orion_driver.cuCtxFromGreenCtx == NULL || orion_driver.cuCtxFromGreenCtx(&named, green) != CUDA_SUCCESS) return;
    orion_capture_origins_end_in(process, named);
    ORION_EACH_STREAM_RECORD(stream_record, process, NULL) {
        uint32_t state = atomic_load(&stream_record->state);
        bool used_by_stream = state == ORION_STREAM_RECORD_READY || state == ORION_STREAM_RECORD_ENDING;
        if (used_by_stream && stream_record->green == named) orion_stream_record_ending(process, stream_record);
    }
}

/* After an unload, the same handle may name another kernel. */
void orion_module_ending(void)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) orion_kernels_forget_module(orion_kernels(process));
}

void orion_library_ending(void)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) orion_kernels_forget(orion_kernels(process));
}

/* From here on the hook's threads make no driver call, and no stream waits for a valve. */
void orion_process_ending(void)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || atomic_load(&process->gpu_count) == 0) return; /* in a forked child this memory is zero */
    orion_parking_end(process);
    orion_absence_exits(process);
    orion_forbid_touch(process);
    atomic_store(&process->exits, 1);
    orion_stops_open(process);
    ORION_EACH_GPU(gpu, process) /* If a thread holds the ledger, waits for it for a bounded time. */
        if (orion_ledger_try_lock(gpu)) orion_ledger_unlock(gpu);
}
