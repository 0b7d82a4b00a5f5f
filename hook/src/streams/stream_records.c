#include "streams/stream_records.h"

#include "generated/driver.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/client_order.h"
#include "system/log.h"
#include "system/mix.h"
#include "system/system.h"

#define NEIGHBOURHOOD 32u
#define CLAIM_SPINS 10000u

/* The streams that this thread used last, by a hash of the handle. Most threads use one or two streams. */
#define REMEMBERED 8u
struct remembered {
    CUstream handle;
    CUcontext context;
    uint32_t epoch;
    bool per_thread, without_client; /* without_client: no client owns the stream, so it has no record */
    struct orion_stream_record *stream_record;
};
static _Thread_local struct remembered remembered_stream_records[REMEMBERED];

/* 0: the thread has not used its own default stream yet. A number is never given twice. The address of this word is: a new thread
 * gets that of an ended one. */
static _Thread_local uint64_t thread_number;

static struct remembered *remembered_of(CUstream handle)
{
    uintptr_t bits = (uintptr_t)handle;
    return &remembered_stream_records[(bits ^ (bits >> 4) ^ (bits >> 8) ^ (bits >> 13)) % REMEMBERED];
}

static uint64_t key_of(struct orion_stream_name stream, CUcontext context)
{
    if (!orion_stream_is_default(stream.handle)) return (uint64_t)(uintptr_t)stream.handle;
    uint64_t thread = orion_stream_is_per_thread(stream) ? orion_mix(thread_number) : 0;
    return (orion_mix((uint64_t)(uintptr_t)context + thread) << 1) | 1; /* odd, so it differs from every handle */
}

/* A stream that is being captured must not be asked for its flags: the driver invalidates the capture (580). */
static enum orion_stream_order order_of(struct orion_stream_name stream)
{
    unsigned flags = CU_STREAM_NON_BLOCKING;
    if (orion_stream_handle(stream) == CU_STREAM_LEGACY) return ORION_ORDER_LEGACY;
    if (orion_stream_is_per_thread(stream)) return ORION_ORDER_BLOCKING;
    if (orion_driver.cuStreamGetFlags == NULL) return ORION_ORDER_NONE;
    if (orion_capture_has(stream)) return ORION_ORDER_UNKNOWN;
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult result = orion_driver.cuStreamGetFlags(stream.handle, &flags);
    orion_capture_unrelax(&relaxed);
    if (result != CUDA_SUCCESS) return ORION_ORDER_NONE;
    return flags & CU_STREAM_NON_BLOCKING ? ORION_ORDER_NONE : ORION_ORDER_BLOCKING;
}

static struct orion_stream_record *claimed(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t key,
                                           struct orion_stream_name stream, const struct orion_place *place, struct orion_gpu *gpu)
{
    struct orion_gpu *before = stream_record->gpu;
    uint64_t begun = atomic_load(&stream_record->begun);
    if (before != NULL && before->client != 0)
        atomic_fetch_add(&before->record->launches, begun - atomic_load(&stream_record->begun_before));
    atomic_store(&stream_record->begun_before, begun);
    atomic_store(&stream_record->hidden, 0);
    stream_record->gpu = gpu;
    stream_record->key = key;
    stream_record->handle = orion_stream_handle(stream);
    stream_record->thread = orion_stream_is_per_thread(stream) ? &thread_number : NULL;
    stream_record->context = place->context;
    /* An overflow record belongs to several streams, which no wait for a green context includes. */
    bool shared = orion_stream_record_is_shared(process, stream_record);
    stream_record->green = shared ? NULL : place->green;
    stream_record->order = shared ? ORION_ORDER_NONE : place->order;
    if (shared) atomic_store(&orion_stream_records(process)->overflowed, 1);
    orion_client_order_begin(process, stream_record);
    uint32_t index = orion_stream_record_index(process, stream_record),
             used = atomic_load(&orion_stream_records(process)->high_water);
    while (used <= index && !atomic_compare_exchange_weak(&orion_stream_records(process)->high_water, &used, index + 1)) {}
    atomic_store_explicit(&stream_record->state, ORION_STREAM_RECORD_READY, memory_order_release);
    return stream_record;
}

static bool claimable(struct orion_stream_record *stream_record, uint32_t state)
{
    if (state == ORION_STREAM_RECORD_FREE) return true;
    return state == ORION_STREAM_RECORD_ENDED && orion_stream_record_is_drained(stream_record);
}

/* Waits a short time while another thread claims the stream record, because that thread may claim it for the same
 * stream. */
static uint32_t settled_state(struct orion_stream_record *stream_record)
{
    uint32_t state = atomic_load_explicit(&stream_record->state, memory_order_acquire);
    for (uint32_t i = 0; state == ORION_STREAM_RECORD_CLAIMED && i < CLAIM_SPINS; i++) {
        orion_pause();
        state = atomic_load_explicit(&stream_record->state, memory_order_acquire);
    }
    return state;
}

static bool is_of(const struct orion_stream_record *stream_record, uint32_t state, uint64_t key)
{
    return state == ORION_STREAM_RECORD_READY && stream_record->key == key && atomic_load(&stream_record->hidden) == 0;
}

static struct orion_stream_record *look_up(struct orion_process *process, uint64_t key, struct orion_stream_name stream,
                                           const struct orion_place *place, struct orion_gpu *gpu)
{
    /* The first ORION_GPUS stream records are the GPUs' overflow stream records. The streams' own records follow. A new
     * one takes the first free entry, so that a walk over all stream records is short. */
    uint32_t overflow = (uint32_t)(gpu - process->gpus);
    for (;;) {
        struct orion_stream_record *open = NULL;
        uint32_t state_of_open = 0, used = atomic_load(&orion_stream_records(process)->high_water);
        for (uint32_t i = ORION_GPUS; i < ORION_STREAM_RECORDS; i++) {
            struct orion_stream_record *stream_record = &orion_stream_records(process)->entry[i];
            uint32_t state = settled_state(stream_record);
            if (is_of(stream_record, state, key)) return stream_record;
            if (open == NULL && claimable(stream_record, state)) open = stream_record, state_of_open = state;
            if (i >= used && open != NULL) break;
        }
        if (open == NULL) open = &orion_stream_records(process)->entry[overflow], state_of_open = settled_state(open);
        if (open == &orion_stream_records(process)->entry[overflow] && state_of_open == ORION_STREAM_RECORD_READY) return open;
        if (atomic_compare_exchange_strong(&open->state, &state_of_open, ORION_STREAM_RECORD_CLAIMED))
            return claimed(process, open, key, stream, place, gpu);
    }
}

static struct orion_stream_record *known_stream_record(struct orion_process *process, uint64_t key)
{
    uint32_t used = atomic_load(&orion_stream_records(process)->high_water);
    for (uint32_t i = ORION_GPUS; i < used; i++) {
        struct orion_stream_record *stream_record = &orion_stream_records(process)->entry[i];
        if (is_of(stream_record, settled_state(stream_record), key)) return stream_record;
    }
    return NULL;
}

static struct orion_gpu *owner_of(struct orion_process *process, struct orion_stream_name stream, CUdevice device)
{
    orion_owner *owner = atomic_load(&process->owner);
    return owner != NULL ? owner(process, stream.handle, device) : NULL;
}

/* NULL: the stream belongs to no client, or its GPU has no role. With clients that are threads of this process, a stream
 * belongs to no client until a client uses it. Then it belongs to that client, whichever thread uses it later: for
 * example, a backward pass runs in its own thread. A default stream belongs to none: all threads share it, and a client uses it only
 * for the few calls that the driver can make on no other stream. */
static struct orion_stream_record *new_stream_record(struct orion_process *process, struct orion_stream_name stream, uint64_t key,
                                                     const struct orion_place *place)
{
    bool by_client = orion_process_has_scheduler(process);
    struct orion_gpu *gpu = by_client && orion_stream_is_default(stream.handle) ? NULL : owner_of(process, stream, place->device);
    if (gpu == NULL) return NULL;
    struct orion_stream_record *stream_record = look_up(process, key, stream, place, gpu);
    if (!by_client) return stream_record;
    atomic_fetch_add(&process->stream_record_epoch, 1); /* threads may have cached that no client owns it */
    orion_log(ORION_LOG_DEBUG, "stream %p is client %u's", (void *)stream.handle, gpu->client - 1);
    return stream_record;
}

void orion_stream_records_end_thread(struct orion_process *process)
{
    uint32_t used = atomic_load(&orion_stream_records(process)->high_water);
    orion_stream_ended *ended = atomic_load(&process->thread_ended);
    for (uint32_t i = ORION_GPUS; i < used; i++) {
        struct orion_stream_record *stream_record = &orion_stream_records(process)->entry[i];
        uint32_t state = settled_state(stream_record);
        if (state == ORION_STREAM_RECORD_READY && stream_record->thread == &thread_number &&
            atomic_load(&stream_record->hidden) == 0)
            ended(process, stream_record);
    }
}

/* A record with this thread's address is of a thread that has ended, and whose end nobody has seen. */
static void number_thread(struct orion_process *process)
{
    static _Atomic uint64_t numbers;
    orion_stream_of_thread *begins = atomic_load(&process->thread_begins);
    thread_number = atomic_fetch_add(&numbers, 1) + 1;
    if (begins != NULL) begins(process);
    orion_stream_records_end_thread(process);
}

void orion_stream_records_begin_thread(struct orion_process *process)
{
    if (thread_number == 0) number_thread(process);
}

/* Every end of a stream makes all threads come here again, so a stream that is known costs no call about its place. Not
 * inlined: the launch path would save registers for it. */
static __attribute__((noinline, cold)) struct orion_stream_record *stream_record_slowly(struct orion_process *process,
                                                                                        struct orion_stream_name stream,
                                                                                        CUcontext context)
{
    struct orion_place place;
    bool by_client = orion_process_has_scheduler(process);
    if (orion_stream_is_per_thread(stream)) orion_stream_records_begin_thread(process);
    uint32_t epoch = atomic_load(&process->stream_record_epoch);
    if (!orion_stream_is_default(stream.handle) && orion_driver.cuStreamGetCtx(stream.handle, &context) != CUDA_SUCCESS)
        return NULL;
    uint64_t key = key_of(stream, context);
    struct orion_stream_record *stream_record = known_stream_record(process, key);
    bool is_known = stream_record != NULL && (by_client || atomic_load(&stream_record->gpu->role) != ORION_ROLE_NONE);
    if (!is_known) {
        if (!orion_stream_place(stream.handle, context, &place)) return NULL;
        place.order = order_of(stream); /* no call of the driver while a record is claimed */
        stream_record = new_stream_record(process, stream, key, &place);
        if (stream_record == NULL && !by_client) return NULL;
    } else if (stream_record->order == ORION_ORDER_UNKNOWN) {
        stream_record->order = order_of(stream);
    }
    if (stream_record != NULL && stream_record->order == ORION_ORDER_UNKNOWN) return stream_record; /* the next call asks again */
    if (by_client && stream_record != NULL) orion_client_order_found(process, stream_record);
    *remembered_of(stream.handle) =
        (struct remembered){stream.handle, context, epoch, stream.per_thread, stream_record == NULL, stream_record};
    return stream_record;
}

static inline bool is_remembered(struct orion_process *process, const struct remembered *last, struct orion_stream_name stream)
{
    return last->handle == stream.handle && last->per_thread == stream.per_thread &&
           (last->stream_record != NULL || last->without_client) &&
           last->epoch == atomic_load_explicit(&process->stream_record_epoch, memory_order_acquire);
}

static __attribute__((noinline)) struct orion_stream_record *record_of_default(struct orion_process *process,
                                                                               struct orion_stream_name stream)
{
    CUcontext context = NULL;
    const struct remembered *last = remembered_of(stream.handle);
    if (orion_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL) return NULL;
    if (__builtin_expect(last->context == context && is_remembered(process, last, stream), 1)) return last->stream_record;
    return stream_record_slowly(process, stream, context);
}

struct orion_stream_record *orion_stream_record_of(struct orion_process *process, struct orion_stream_name stream)
{
    const struct remembered *last = remembered_of(stream.handle);
    if (orion_stream_is_default(stream.handle)) return record_of_default(process, stream);
    return __builtin_expect(is_remembered(process, last, stream), 1) ? last->stream_record
                                                                     : stream_record_slowly(process, stream, NULL);
}

uint32_t orion_stream_record_index(const struct orion_process *process, const struct orion_stream_record *stream_record)
{
    return (uint32_t)(stream_record - orion_stream_records(process)->entry);
}

CUevent orion_stream_record_event(const struct orion_stream_record *stream_record, unsigned flags)
{
    CUevent event = NULL;
    CUcontext popped;
    if (orion_driver.cuCtxPushCurrent_v2(stream_record->context) != CUDA_SUCCESS) return NULL;
    if (orion_driver.cuEventCreate(&event, flags) != CUDA_SUCCESS) event = NULL;
    orion_driver.cuCtxPopCurrent_v2(&popped);
    return event;
}

bool orion_stream_record_is_shared(const struct orion_process *process, const struct orion_stream_record *stream_record)
{
    return orion_stream_record_index(process, stream_record) < ORION_GPUS;
}

bool orion_stream_record_has_handle(const struct orion_process *process, const struct orion_stream_record *stream_record)
{
    if (orion_stream_record_is_shared(process, stream_record) || stream_record->handle == CU_STREAM_PER_THREAD) return false;
    return stream_record->green == NULL || !orion_stream_is_default(stream_record->handle);
}

void orion_stream_record_prove(struct orion_stream_record *stream_record, uint64_t returned)
{
    uint64_t drained = atomic_load(&stream_record->drained);
    while (drained < returned && !atomic_compare_exchange_weak(&stream_record->drained, &drained, returned)) {}
    if (drained < returned) atomic_fetch_add_explicit(&stream_record->gpu->busy->progress, 1, memory_order_relaxed);
}

bool orion_stream_records_are_ordered(const struct orion_stream_record *one, const struct orion_stream_record *other)
{
    if (one == other) return true;
    bool kinds = one->order + other->order == ORION_ORDER_LEGACY + ORION_ORDER_BLOCKING;
    return kinds && one->context == other->context && one->green == other->green;
}

bool orion_stream_record_is_of_this_thread(const struct orion_stream_record *stream_record)
{
    /* Without a number this thread has not used its stream: the record is of an ended thread in the same place. */
    return thread_number != 0 && stream_record->thread == &thread_number && stream_record->green == NULL;
}
