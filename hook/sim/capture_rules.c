/* Which calls are forbidden to which threads while streams are being captured. A forbidden call makes the capture
 * invalid. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#include "capture_state.h"

pthread_mutex_t sim_capture_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct sim_capture *sim_captures;
_Atomic int sim_captures_under_way;
__thread CUstreamCaptureMode sim_capture_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

int sim_capture_self(void) { return (int)syscall(SYS_gettid); }

/* A thread's mode decides which captures restrict the thread. GLOBAL: the thread's own captures, and all global
 * captures of other threads. THREAD_LOCAL: only the thread's own captures. RELAXED: no capture. A capture that was
 * begun in mode RELAXED restricts no thread. */
static bool forbids(const struct sim_capture *capture, int thread)
{
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || sim_capture_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    return capture->thread == thread ||
           (sim_capture_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult sim_capture_unsafe(void)
{
    bool refused = false;
    if (!atomic_load_explicit(&sim_captures_under_way, memory_order_acquire)) return CUDA_SUCCESS;
    pthread_mutex_lock(&sim_capture_mutex);
    int thread = sim_capture_self();
    for (struct sim_capture *capture = sim_captures; capture; capture = capture->next)
        if (forbids(capture, thread)) capture->invalid = refused = true;
    pthread_mutex_unlock(&sim_capture_mutex);
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult sim_capture_refuse(struct CUstream_st *stream)
{
    pthread_mutex_lock(&sim_capture_mutex);
    if (stream->capture) stream->capture->invalid = true;
    pthread_mutex_unlock(&sim_capture_mutex);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_refuse_context(struct CUctx_st *context, struct CUgreenCtx_st *green)
{
    bool refused = false;
    if (!atomic_load_explicit(&sim_captures_under_way, memory_order_acquire)) return CUDA_SUCCESS;
    pthread_mutex_lock(&sim_capture_mutex);
    for (struct sim_capture *capture = sim_captures; capture; capture = capture->next)
        if (capture->origin->context == context && (!green || capture->origin->green == green)) capture->invalid = refused = true;
    pthread_mutex_unlock(&sim_capture_mutex);
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Work in the legacy stream is ordered with the blocking streams, and a stream that is being captured cannot take part
 * in this order. */
CUresult sim_capture_implicit(struct CUstream_st *stream)
{
    bool refused = false;
    if (!stream->legacy) return CUDA_SUCCESS;
    sim_enter(); /* keeps the list of streams unchanged */
    for (struct CUstream_st *other = stream->context->streams; other; other = other->next)
        if (other->capture && !(other->flags & CU_STREAM_NON_BLOCKING)) other->capture->invalid = refused = true;
    sim_leave();
    return refused ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult sim_capture_check_use(struct CUstream_st *stream)
{
    if (!atomic_load_explicit(&sim_captures_under_way, memory_order_acquire)) return CUDA_SUCCESS;
    if (stream->capture) return sim_capture_refuse(stream);
    pthread_mutex_lock(&sim_capture_mutex);
    CUresult result = sim_capture_implicit(stream);
    pthread_mutex_unlock(&sim_capture_mutex);
    return result ? result : sim_capture_unsafe();
}

CUresult sim_capture_touches(struct CUstream_st *stream)
{
    if (!atomic_load_explicit(&sim_captures_under_way, memory_order_acquire)) return CUDA_SUCCESS;
    pthread_mutex_lock(&sim_capture_mutex);
    CUresult result =
        stream->capture && stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : sim_capture_implicit(stream);
    pthread_mutex_unlock(&sim_capture_mutex);
    return result;
}

/* --- Events in captures. --- */

static bool recorded_in(const struct CUevent_st *event, const struct sim_capture *capture)
{
    return event->capture == capture && event->capture_id == capture->id;
}

bool sim_capture_of_event(const struct CUevent_st *event)
{
    bool found = false;
    if (!event->capture || !atomic_load_explicit(&sim_captures_under_way, memory_order_acquire)) return false;
    pthread_mutex_lock(&sim_capture_mutex);
    for (struct sim_capture *capture = sim_captures; capture && !found; capture = capture->next)
        found = recorded_in(event, capture);
    pthread_mutex_unlock(&sim_capture_mutex);
    return found;
}

CUresult sim_capture_event_use(struct CUevent_st *event)
{
    if (sim_capture_of_event(event)) {
        pthread_mutex_lock(&sim_capture_mutex);
        event->capture->invalid = true;
        pthread_mutex_unlock(&sim_capture_mutex);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return sim_capture_unsafe();
}
