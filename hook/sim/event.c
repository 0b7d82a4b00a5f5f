/* Events. An event holds a position in a stream. A timing event also has an event slot, an entry of the shared state
 * that holds the time (event_slot.h). */
#include <stdlib.h>

#include "capture.h"
#include "checkpoint.h"
#include "client.h"
#include "event_slot.h"
#include "health.h"
#include "sim.h"

#define FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUresult CUDAAPI cuEventCreate(CUevent *made, unsigned flags)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!made || (flags & ~(unsigned)FLAGS), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_VALUE);
    struct CUevent_st *event = sim_handle_new(SIM_EVENT, sizeof *event);
    SIM_REFUSE(!event, CUDA_ERROR_OUT_OF_MEMORY);
    event->context = context;
    event->flags = flags;
    event->slot = SIM_NEVER;
    while (!(flags & CU_EVENT_DISABLE_TIMING)) {
        sim_enter();
        event->slot = sim_event_slot_take(sim_own_client_number());
        if (event->slot != SIM_NEVER) event->slot_generation = sim_state()->events[event->slot].generation;
        if (sim_leave()) break;
    }
    if (!(flags & CU_EVENT_DISABLE_TIMING) && event->slot == SIM_NEVER) {
        sim_handle_free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = event;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event)
{
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    uint64_t client = sim_own_client_number();
    while (event->slot != SIM_NEVER) {
        sim_enter();
        const struct sim_event *slot = &sim_state()->events[event->slot];
        if (slot->used && slot->client == client && slot->generation == event->slot_generation) sim_event_slot_free(event->slot);
        if (sim_leave()) break;
    }
    sim_capture_forget_frontier(&event->frontier, &event->frontier_count);
    sim_handle_free(event);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SIM_REFUSE(flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(event->context != stream->context, CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_record(stream, event, flags);
    SIM_REFUSE(flags & CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_ILLEGAL_STATE);
    event->capture = NULL;
    return sim_submit_record(stream, event);
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }

/* Reads under a sequence lock. Writes are rare and short. The death of a process during a write does no harm, because
 * its events end with it. */
struct sim_position sim_event_position(struct CUevent_st *event)
{
    for (;;) {
        unsigned before = atomic_load_explicit(&event->version, memory_order_acquire);
        struct sim_position at = {__atomic_load_n(&event->at.stream, __ATOMIC_RELAXED),
                                  __atomic_load_n(&event->at.generation, __ATOMIC_RELAXED),
                                  __atomic_load_n(&event->at.number, __ATOMIC_ACQUIRE)};
        if (!(before & 1) && atomic_load_explicit(&event->version, memory_order_relaxed) == before) return at;
    }
}

void sim_event_set_position(struct CUevent_st *event, const struct sim_position *at)
{
    unsigned before = atomic_load(&event->version) & ~1u;
    while (!atomic_compare_exchange_weak(&event->version, &before, before + 1))
        before &= ~1u; /* fails while another thread writes */
    __atomic_store_n(&event->at.stream, at->stream, __ATOMIC_RELEASE);
    __atomic_store_n(&event->at.generation, at->generation, __ATOMIC_RELEASE);
    __atomic_store_n(&event->at.number, at->number, __ATOMIC_RELEASE);
    atomic_store_explicit(&event->version, before + 2, memory_order_release);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SIM_REFUSE(flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture || sim_capture_of_event(event)) return sim_capture_wait(stream, event, flags);
    SIM_REFUSE(flags & CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_ILLEGAL_STATE);
    struct sim_position on = sim_event_position(event);
    return sim_submit_event_wait(stream, &on);
}

CUresult CUDAAPI cuEventQuery(CUevent event)
{
    sim_checkpoint_read();
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_capture_event_use(event));
    struct sim_position at = sim_event_position(event);
    if (!sim_query(&at)) return CUDA_ERROR_NOT_READY;
    return sim_context_error(event->context);
}

CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
    sim_checkpoint_read();
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_capture_event_use(event));
    struct sim_position at = sim_event_position(event);
    sim_wait(&at);
    return sim_context_error(event->context);
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    sim_checkpoint_read();
    SIM_READY();
    SIM_REFUSE(!milliseconds, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_handle_is(start, SIM_EVENT) || !sim_handle_is(end, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SIM_REFUSE(start->slot == SIM_NEVER || end->slot == SIM_NEVER, CUDA_ERROR_INVALID_HANDLE);
    struct sim_position first = sim_event_position(start), last = sim_event_position(end);
    SIM_REFUSE(!first.number || !last.number, CUDA_ERROR_INVALID_HANDLE);
    if (!sim_query(&first) || !sim_query(&last)) return CUDA_ERROR_NOT_READY;
    const struct sim_event *slots = sim_state()->events;
    *milliseconds = (float)((double)(int64_t)(slots[end->slot].time_ns - slots[start->slot].time_ns) / 1e6);
    return CUDA_SUCCESS;
}
