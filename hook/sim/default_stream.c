/* Which stream a handle names: also the default streams, that of a context and those of threads. */
#include <pthread.h>

#include "checkpoint.h"
#include "context.h"
#include "green.h"
#include "health.h"

/* The real driver frees the streams of a thread that ends. */
static pthread_key_t ends;
static pthread_once_t watching = PTHREAD_ONCE_INIT;
static void thread_ends(void *unused) { (void)unused, sim_checkpoint_read(); }
static void watch_ends(void) { pthread_key_create(&ends, thread_ends); }

/* A number that no other thread of this process ever has. */
static uint64_t this_thread(void)
{
    static _Atomic uint64_t numbers;
    static __thread uint64_t number;
    if (!number) {
        number = atomic_fetch_add(&numbers, 1) + 1;
        pthread_once(&watching, watch_ends);
        pthread_setspecific(ends, &number);
    }
    return number;
}

static struct CUstream_st *stream_of_thread(const struct CUctx_st *context, uint64_t thread)
{
    sim_enter();
    struct CUstream_st *stream = context->streams;
    while (stream && stream->thread != thread) stream = stream->next;
    sim_leave();
    return stream;
}

/* The calling thread's own default stream of a context. Context ids are never reused. */
static CUresult per_thread_stream(struct CUctx_st *context, struct CUstream_st **stream)
{
    static __thread struct {
        unsigned long long context;
        struct CUstream_st *stream;
    } used_last[SIM_GPUS]; /* these need no search */
    int index = (int)(context->id % SIM_GPUS);
    if (used_last[index].context != context->id) {
        uint64_t thread = this_thread();
        struct CUstream_st *own = stream_of_thread(context, thread);
        if (!own) {
            SIM_TRY(sim_stream_new(context, NULL, CU_STREAM_DEFAULT, 0, &own));
            own->thread = thread;
        }
        used_last[index].stream = own;
        used_last[index].context = context->id;
    }
    *stream = used_last[index].stream;
    return CUDA_SUCCESS;
}

CUresult sim_stream(CUstream handle, struct CUstream_st **stream)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        SIM_CONTEXT(context);
        struct CUgreenCtx_st *green = sim_green_named(NULL);
        bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == NULL && sim_per_thread_default);
        SIM_REFUSE(green && per_thread, CUDA_ERROR_INVALID_HANDLE);
        if (per_thread) return per_thread_stream(context, stream);
        *stream = green ? green->legacy : context->legacy;
        return CUDA_SUCCESS;
    }
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(handle, SIM_STREAM), CUDA_ERROR_INVALID_HANDLE);
    SIM_REFUSE(handle->detached, CUDA_ERROR_STREAM_DETACHED);
    *stream = handle;
    return sim_context_error(handle->context);
}
