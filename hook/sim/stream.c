/* Streams: their handles, and queries. */
#include <stdlib.h>

#include "capture.h"
#include "checkpoint.h"
#include "client.h"
#include "context.h"
#include "dispatch.h"
#include "engine.h"
#include "green.h"
#include "health.h"

static _Atomic unsigned long long ids;

static uint64_t take_slot(uint64_t context, const struct sim_sms *allowed, int priority, uint64_t *generation)
{
    uint64_t slot;
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        slot = 0;
        while (slot < SIM_STREAMS && state->streams[slot].used) slot++;
        if (slot < SIM_STREAMS) {
            struct sim_stream *of = &state->streams[slot];
            SIM_PUT(of->used, 1);
            SIM_PUT(of->context, context);
            SIM_PUT(of->priority, (uint64_t)(priority + SIM_PRIORITIES));
            SIM_PUT(of->closing, 0);
            for (unsigned i = 0; i < SIM_SM_WORDS; i++) SIM_PUT(of->allowed.word[i], allowed->word[i]);
            if (slot >= state->streams_high) SIM_PUT(state->streams_high, slot + 1);
            *generation = of->generation;
        }
    } while (!sim_leave());
    return slot < SIM_STREAMS ? slot : SIM_NEVER;
}

int sim_priority(int asked) { return asked > 0 ? 0 : asked < 1 - SIM_PRIORITIES ? 1 - SIM_PRIORITIES : asked; }

CUresult sim_stream_new(struct CUctx_st *context, struct CUgreenCtx_st *green, unsigned flags, int priority,
                        struct CUstream_st **made)
{
    struct sim_sms allowed = green ? green->sms : sim_all_sms();
    struct CUstream_st *stream = sim_handle_new(SIM_STREAM, sizeof *stream);
    SIM_REFUSE(!stream, CUDA_ERROR_OUT_OF_MEMORY);
    stream->context = context;
    stream->green = green;
    stream->flags = flags;
    stream->priority = sim_priority(priority);
    stream->id = atomic_fetch_add(&ids, 1) + 1;
    stream->slot = take_slot(context->slot, &allowed, stream->priority, &stream->generation);
    if (stream->slot == SIM_NEVER) {
        sim_handle_free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_enter();
    stream->next = context->streams;
    context->streams = stream;
    sim_leave();
    *made = stream;
    return CUDA_SUCCESS;
}

/* Queued work still runs, so the stream's entry in the shared state stays in use until the queue is empty. */
void sim_stream_forget(struct CUstream_st *stream)
{
    do {
        sim_enter();
        struct sim_stream *of = &sim_state()->streams[stream->slot];
        if (of->generation == stream->generation) {
            if (of->busy_position) SIM_PUT(of->closing, 1);
            else sim_drop_stream(stream->slot);
        }
    } while (!sim_leave());
    sim_enter();
    struct CUstream_st **link = &stream->context->streams;
    while (*link && *link != stream) link = &(*link)->next;
    if (*link) *link = stream->next;
    sim_leave();
    sim_capture_forget_frontier(&stream->frontier, &stream->frontier_count);
    sim_handle_free(stream);
}

struct sim_position sim_stream_position(struct CUstream_st *stream)
{
    return (struct sim_position){stream->slot, stream->generation, sim_state()->streams[stream->slot].tail};
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING), CUDA_ERROR_INVALID_VALUE);
    /* Blocking streams of green contexts are not modelled. */
    SIM_REFUSE(sim_green_named(NULL) && !flags, CUDA_ERROR_NOT_SUPPORTED);
    return sim_stream_new(context, sim_green_named(NULL), flags, priority, stream);
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

/* Make the context wait for the stream's queued work. Later waits for the context, and its events, then include this
 * work although the stream is destroyed. */
static void leave_to_context(struct CUstream_st *stream)
{
    struct sim_position position;
    sim_enter();
    position = sim_stream_position(stream);
    sim_leave();
    sim_submit_wait(stream->context->everything, &position);
    if (stream->green) sim_submit_wait(stream->green->everything, &position);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle)
{
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(handle, SIM_STREAM) || handle->legacy || handle->thread, CUDA_ERROR_INVALID_HANDLE);
    sim_capture_leave(handle);
    leave_to_context(handle);
    sim_stream_forget(handle);
    return CUDA_SUCCESS;
}

/* Does a wait for `stream` include `other`? A wait for the legacy stream includes all blocking streams. */
static bool wait_includes(const struct CUstream_st *stream, const struct CUstream_st *other)
{
    return stream == other || (stream->legacy && !(other->flags & CU_STREAM_NON_BLOCKING));
}

CUresult sim_stream_wait(struct CUstream_st *stream)
{
    struct sim_position position;
    if (!stream->legacy) {
        sim_enter();
        position = sim_stream_position(stream);
        sim_leave();
        sim_wait(&position);
        return sim_context_error(stream->context);
    }
    for (unsigned long long after = 0;;) {
        struct CUstream_st *next = NULL;
        sim_enter();
        for (struct CUstream_st *other = stream->context->streams; other; other = other->next)
            if (wait_includes(stream, other) && other->id > after && (!next || other->id < next->id)) next = other;
        if (next) {
            position = sim_stream_position(next);
            after = next->id;
        }
        sim_leave();
        if (!next) return sim_context_error(stream->context);
        sim_wait(&position);
    }
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
    sim_checkpoint_read();
    SIM_STREAM(stream, handle);
    SIM_TRY(sim_capture_check_use(stream));
    return sim_stream_wait(stream);
}

/* The legacy stream is idle when all blocking streams are idle. */
static bool legacy_idle(const struct CUstream_st *legacy)
{
    bool idle = true;
    sim_enter();
    for (struct CUstream_st *other = legacy->context->streams; other && idle; other = other->next)
        if (wait_includes(legacy, other)) {
            struct sim_position position = sim_stream_position(other);
            idle = sim_reached(&position);
        }
    sim_leave();
    return idle;
}

CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
    sim_checkpoint_read();
    SIM_STREAM(stream, handle);
    SIM_TRY(sim_capture_check_use(stream));
    sim_refresh();
    struct sim_position position = sim_stream_position(stream); /* without the lock, because only this process queues in it */
    if (!sim_query(&position) || (stream->legacy && !legacy_idle(stream))) return CUDA_ERROR_NOT_READY;
    return sim_context_error(stream->context);
}

/* Driver 580 also refuses two of these, and invalidates the capture, while the stream is being captured. */
#define GETS(function, type_of, member, check) \
    CUresult CUDAAPI function(CUstream handle, type_of *value) \
    { \
        SIM_STREAM(stream, handle); \
        SIM_REFUSE(!value, CUDA_ERROR_INVALID_VALUE); \
        SIM_TRY(check); \
        *value = stream->member; \
        return CUDA_SUCCESS; \
    }

GETS(cuStreamGetPriority, int, priority, CUDA_SUCCESS)
GETS(cuStreamGetFlags, unsigned, flags, sim_capture_check_use(stream))
GETS(cuStreamGetId, unsigned long long, id, sim_capture_check_use(stream))
GETS(cuStreamGetDevice, CUdevice, context->device, CUDA_SUCCESS)

static void set_priority(struct CUstream_st *stream, int priority)
{
    stream->priority = sim_priority(priority);
    do {
        sim_enter();
        struct sim_stream *of = &sim_state()->streams[stream->slot];
        if (of->generation == stream->generation) SIM_PUT(of->priority, (uint64_t)(stream->priority + SIM_PRIORITIES));
    } while (!sim_leave());
}

/* Of the attributes of streams, only the priority has an effect here. */
CUresult CUDAAPI cuStreamCopyAttributes(CUstream target, CUstream source)
{
    SIM_STREAM(from, source);
    SIM_STREAM(to, target);
    set_priority(to, from->priority);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!value, CUDA_ERROR_INVALID_VALUE);
    *value = (CUstreamAttrValue){0};
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!value, CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) set_priority(stream, value->priority);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t bytes, unsigned flags)
{
    (void)bytes, (void)flags;
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!pointer, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}
