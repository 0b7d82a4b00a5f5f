#include "threads/redirect.h"

#include "be/window.h"
#include "core/core.h"
#include "generated/driver.h"
#include "hp/busy.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"
#include "streams/own_streams.h"
#include "system/log.h"
#include "system/system.h"
#include "threads/inprocess.h"

#define POLL_NS (50 * ORION_MICROSECOND)
#define ENDING_MOST_NS (100 * ORION_MILLISECOND)

/* -- Own streams ----------------------------------------------------------------------------------------------------- */

static CUstream create(uint32_t role)
{
    CUstream stream = NULL;
    int least = 0, greatest = 0;
    if (orion_driver.cuCtxGetStreamPriorityRange == NULL || orion_driver.cuStreamCreateWithPriority == NULL) return NULL;
    orion_driver.cuCtxGetStreamPriorityRange(&least, &greatest);
    struct orion_relaxed relaxed = orion_capture_relax();
    unsigned flags = role == ORION_ROLE_NONE ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    CUresult result = orion_driver.cuStreamCreateWithPriority(&stream, flags, role == ORION_ROLE_HP ? greatest : least);
    orion_capture_unrelax(&relaxed);
    return result == CUDA_SUCCESS ? stream : NULL;
}

/* The caller holds the scheduler's lock. */
static CUstream find_or_create(struct orion_process *process, uint32_t client, CUcontext context, CUdevice device)
{
    struct orion_own_stream *open = NULL;
    uint32_t role = client == ORION_NO_CLIENT ? ORION_ROLE_NONE : orion_inprocess(process)->roles[client];
    for (uint32_t i = 0; i < ORION_OWN_STREAMS; i++) {
        struct orion_own_stream *own = &orion_own_streams(process)->entry[i];
        CUstream stream = atomic_load(&own->stream);
        if (stream == NULL) open = open != NULL ? open : own;
        else if (own->client == client && own->role == role && own->context == context) return stream;
    }
    CUstream stream = open != NULL ? create(role) : NULL;
    if (stream == NULL) {
        if (role != ORION_ROLE_NONE)
            orion_log(ORION_LOG_WARNING, "cannot create a stream for client %u; its default stream is the process's", client);
        return NULL;
    }
    open->client = client;
    open->role = role;
    struct orion_place place;
    open->context = context;
    open->ends_with = orion_stream_place(stream, context, &place) ? place.context : context;
    open->device = device;
    atomic_store_explicit(&open->stream, stream, memory_order_release);
    if (role != ORION_ROLE_NONE)
        orion_log(ORION_LOG_INFO, "client %u (%s) has stream %p", client, role == ORION_ROLE_HP ? "hp" : "be", (void *)stream);
    return stream;
}

CUstream orion_stream_of_client(struct orion_process *process, uint32_t client)
{
    CUcontext context = NULL;
    CUdevice device;
    if (orion_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL) return NULL;
    if (orion_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || !orion_inprocess_is_on_its_gpu(process, device)) return NULL;
    orion_inprocess_lock(process);
    CUstream stream = find_or_create(process, client, context, device);
    orion_inprocess_unlock(process);
    return stream;
}

CUstream orion_own_stream(CUstream instead_of)
{
    struct orion_process *process = orion_the_process;
    struct orion_binding *binding = &orion_binding;
    if (process == NULL || binding->generation != atomic_load_explicit(&process->scheduler, memory_order_relaxed))
        return instead_of;
    CUcontext context = NULL;
    if (orion_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL) return instead_of;
    uint32_t epoch = atomic_load_explicit(&process->context_epoch, memory_order_acquire) + /* both only grow */
                     atomic_load_explicit(&process->role_changes, memory_order_acquire);
    if (__builtin_expect(binding->context != context || binding->epoch != epoch, 0)) {
        binding->stream = orion_stream_of_client(process, binding->client - 1);
        binding->context = context;
        binding->epoch = epoch;
        if (binding->stream != NULL) orion_order_with_legacy(binding->stream, ORION_BEHIND_LEGACY);
    }
    return binding->stream != NULL ? binding->stream : instead_of;
}

/* A use of the legacy stream ends captures of blocking streams, also of one that has only joined. A use of another blocking stream ends
 * none, and the driver orders that stream with the legacy one. */
void orion_order_with_legacy(CUstream own, enum orion_legacy_order order)
{
    CUevent event;
    struct orion_process *process = orion_the_process;
    if (process == NULL || orion_capture_records(process, (struct orion_stream_name){own, false})) return;
    CUstream legacy = atomic_load(&process->captures) > 0 ? orion_stream_of_client(process, ORION_NO_CLIENT) : CU_STREAM_LEGACY;
    if (legacy == NULL) return;
    CUstream from = order == ORION_BEHIND_LEGACY ? legacy : own;
    CUstream to = order == ORION_BEHIND_LEGACY ? own : legacy;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (orion_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        if (orion_driver.cuEventRecord(event, from) == CUDA_SUCCESS) orion_driver.cuStreamWaitEvent(to, event, 0);
        orion_driver.cuEventDestroy_v2(event);
    }
    orion_capture_unrelax(&relaxed);
}

/* Another thread may be ending the context, and its stream. It waits for a thread that touches. As most ends are of something else (a stream,
 * a capture), this thread waits for them, too. Unlike orion_touch, it may use a context while some thread captures. */
static bool touches(struct orion_process *process, const struct orion_own_stream *own, CUstream stream)
{
    for (uint64_t until = orion_now() + ENDING_MOST_NS; orion_now() < until; orion_sleep_precisely(POLL_NS)) {
        atomic_fetch_add(&process->touching, 1);
        if (atomic_load(&process->untouchable) == 0 && atomic_load(&own->stream) == stream) return true;
        orion_touched(process);
        if (atomic_load(&own->stream) != stream) return false;
    }
    return false;
}

static void legacy_follows(struct orion_process *process, const struct orion_own_stream *own, CUstream stream)
{
    if (!touches(process, own, stream)) return;
    if (orion_driver.cuCtxPushCurrent_v2(own->context) == CUDA_SUCCESS) {
        orion_order_with_legacy(stream, ORION_AHEAD_OF_LEGACY);
        orion_driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
    }
    orion_touched(process);
}

/* The thread that leaves may have used several contexts, and any may be current to it now, or none. A green context can be current to one
 * thread only, so the hook makes none current. */
void orion_legacy_follows_client(struct orion_process *process, uint32_t client)
{
    CUcontext current = NULL;
    if (orion_driver.cuCtxGetCurrent == NULL || orion_driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return;
    for (uint32_t i = 0; i < ORION_OWN_STREAMS; i++) {
        struct orion_own_stream *own = &orion_own_streams(process)->entry[i];
        CUstream stream = atomic_load(&own->stream);
        if (stream == NULL || own->client != client) continue;
        if (own->context == current) orion_order_with_legacy(stream, ORION_AHEAD_OF_LEGACY);
        else if (own->context == own->ends_with) legacy_follows(process, own, stream);
    }
}

/* -- Context-wide synchronises --------------------------------------------------------------------------------------- */

static CUresult synchronise(struct orion_process *process, CUstream stream)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {stream, false}};
    if (orion_capture_records(process, proof.stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* as the driver would */
    orion_proof_begin(&proof);
    CUresult result = orion_driver.cuStreamSynchronize(stream);
    orion_proof_end(&proof, result);
    return result;
}

CUresult orion_finished(CUstream own, CUresult submitted)
{
    return submitted != CUDA_SUCCESS ? submitted : synchronise(orion_the_process, own);
}

void orion_before_legacy(void)
{
    CUstream own = orion_redirected(NULL);
    if (own != NULL) synchronise(orion_the_process, own);
}

void orion_after_legacy(void)
{
    if (orion_redirected(NULL) != NULL) orion_driver.cuStreamSynchronize(CU_STREAM_LEGACY);
}

static void await_last_event(struct orion_stream_record *stream_record, CUevent last, uint64_t returned)
{
    if (orion_outcome_of(orion_driver.cuEventSynchronize(last)) != ORION_OUTCOME_UNKNOWN)
        orion_stream_record_prove(stream_record, returned);
    orion_driver.cuEventDestroy_v2(last);
}

/* Waits until so much of a destroyed stream's work is complete, which no handle names any more. False: it cannot be proven soon, and
 * a wait for the whole context can. While some thread captures, that one would fail, and end the capture. */
static bool await_destroyed(struct orion_process *process, struct orion_gpu *gpu, struct orion_stream_record *stream_record,
                            uint64_t begun)
{
    uint64_t until = orion_now() + ORION_SECOND;
    while (atomic_load(&stream_record->drained) < begun && orion_now() < until) {
        CUevent last = atomic_exchange(&stream_record->last, NULL); /* of hp, unless the drain thread has taken it */
        if (last != NULL) await_last_event(stream_record, last, begun);
        else orion_sleep_precisely(POLL_NS);
        if (atomic_load(&gpu->role) == ORION_ROLE_BE) orion_window_reap(process, gpu);
        else orion_busy_try_close(process, gpu);
    }
    return atomic_load(&stream_record->drained) >= begun || atomic_load(&process->captures) > 0;
}

static bool has_stream(struct orion_stream_record *stream_record, const struct orion_gpu *gpu, CUstream stream)
{
    return atomic_load(&stream_record->state) == ORION_STREAM_RECORD_READY && atomic_load(&stream_record->gpu) == gpu &&
           orion_stream_record_handle(stream_record) == stream;
}

/* Waits for the work of one of the client's streams. False: only a wait for the whole context can, as some streams have no record of
 * their own, or no handle in this context. Another thread of the client may destroy the stream meanwhile. Once its work is complete,
 * any client's stream may get the record. So the owner is looked at after what the record says. */
static bool synchronised(struct orion_process *process, struct orion_gpu *gpu, struct orion_stream_record *stream_record,
                         CUresult *result)
{
    uint64_t begun = atomic_load(&stream_record->begun);
    /* Before the handle, which may else be that of the stream before. */
    bool is_ready = atomic_load(&stream_record->state) == ORION_STREAM_RECORD_READY;
    CUstream stream = orion_stream_record_handle(stream_record);
    if (atomic_load(&stream_record->gpu) != gpu) return true;
    if (is_ready) {
        if (orion_stream_record_is_shared(process, stream_record)) return false;
        if (stream_record->green != NULL && !orion_stream_record_has_handle(process, stream_record)) return false;
        *result = synchronise(process, stream);
        if (*result == CUDA_SUCCESS || has_stream(stream_record, gpu, stream)) return true;
        *result = CUDA_SUCCESS;
    }
    return await_destroyed(process, gpu, stream_record, begun);
}

bool orion_synchronised_client(CUcontext context, CUresult *result)
{
    CUstream own = orion_redirected(NULL);
    if (own == NULL) return false;
    struct orion_process *process = orion_the_process;
    if (context != NULL && context != orion_binding.context) return false; /* it may be one of another GPU */
    context = orion_binding.context;
    struct orion_gpu *gpu = orion_inprocess(process)->gpus[orion_binding.client - 1];
    *result = synchronise(process, own);
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        if (*result != CUDA_SUCCESS) break;
        if (has_stream(stream_record, gpu, own) || !orion_stream_record_is_in(stream_record, context)) continue;
        if (!synchronised(process, gpu, stream_record, result)) return false;
    }
    return true;
}
