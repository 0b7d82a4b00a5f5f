/* Queues work in a stream, ordered with the default stream. */
#include <stdlib.h>
#include <string.h>

#include "effect.h"
#include "graph.h"
#include "touches.h"
#include "trace.h"

#define DEVICE_BYTES_PER_US 2000000u /* 2 TB/s within the device */
#define COPY_START_NS 1000u

static bool pending(const struct CUstream_st *stream)
{
    const struct sim_stream *of = &sim_state()->streams[stream->slot];
    return of->done != of->tail && of->generation == stream->generation;
}

static struct sim_op wait_for(const struct sim_position *on, enum sim_kind kind)
{
    return (struct sim_op){.kind = kind, .a = on->stream, .b = on->generation, .c = on->number};
}

static void push_wait(struct CUstream_st *stream, const struct sim_position *on, enum sim_kind kind)
{
    struct sim_op wait = wait_for(on, kind);
    sim_push(stream->slot, &wait);
}

/* Makes the stream wait for pending work in the other streams of its context, except streams with one of the flags
 * `without`. A stream of a green context waits only for the streams of that green context. */
static void push_waits(struct CUstream_st *stream, unsigned without, enum sim_kind kind)
{
    unsigned waits = 0;
    for (struct CUstream_st *other = stream->context->streams; other; other = other->next)
        if (other != stream && !(other->flags & without) && (!stream->green || other->green == stream->green) && pending(other) &&
            waits++ < SIM_QUEUE / 2) {
            struct sim_position on = sim_stream_position(other);
            push_wait(stream, &on, kind);
        }
}

/* The legacy stream and blocking streams wait for each other, as for events. A non-blocking stream waits for none. */
static void order(struct CUstream_st *stream)
{
    struct CUstream_st *legacy = stream->context->legacy;
    struct sim_position on;
    if (stream->flags & CU_STREAM_NON_BLOCKING) return;
    if (stream != legacy) {
        on = sim_stream_position(legacy);
        if (pending(legacy)) push_wait(stream, &on, SIM_EVENT_WAIT);
        return;
    }
    push_waits(legacy, CU_STREAM_NON_BLOCKING, SIM_EVENT_WAIT);
}

/* Enters the state with room for an operation and the waits before it. Only under the lock is it known whether there are streams for
 * which the legacy stream waits. */
static void enter_with_room(const struct CUstream_st *stream)
{
    sim_enter_with_room(stream->slot, stream->legacy ? 1 : 2);
    const struct sim_stream *of = &sim_state()->streams[stream->slot];
    uint64_t room = SIM_QUEUE / 2 + 1;
    if (!stream->legacy || !stream->context->streams->next || of->tail - of->done + room <= SIM_QUEUE) return;
    sim_leave();
    sim_enter_with_room(stream->slot, room);
}

CUresult sim_submit(struct CUstream_st *stream, const struct sim_op *op, struct sim_position *at)
{
    uint64_t number;
    do {
        enter_with_room(stream);
        order(stream);
        number = sim_push(stream->slot, op);
    } while (!sim_leave());
    if (at) *at = (struct sim_position){stream->slot, stream->generation, number};
    return CUDA_SUCCESS;
}

CUresult sim_wait_for_streams(struct CUstream_st *stream)
{
    do {
        sim_enter_with_room(stream->slot, SIM_QUEUE / 2);
        push_waits(stream, 0, SIM_WAIT);
    } while (!sim_leave());
    return CUDA_SUCCESS;
}

static uint64_t parameter(const struct sim_kernel *kernel, void *const *parameters, int index)
{
    uint64_t value = 0;
    if (parameters && parameters[index])
        memcpy(&value, parameters[index], kernel->parameter_size[index] < 8 ? kernel->parameter_size[index] : 8);
    return value;
}

struct fault {
    struct CUctx_st *context;
    CUresult error;
};

static bool run_fault(void *data)
{
    const struct fault *fault = data;
    fault->context->sticky = fault->error;
    return true;
}

/* After a faulty kernel has run, its context is unusable. */
static CUresult submit_fault(struct CUstream_st *stream, CUresult error)
{
    struct fault *fault = malloc(sizeof *fault);
    SIM_REFUSE(!fault, CUDA_ERROR_OUT_OF_MEMORY);
    *fault = (struct fault){stream->context, error};
    return sim_submit_host(stream, run_fault, fault, 0);
}

struct entry {
    struct sim_log *log;
    uint64_t value;
};

static bool append(void *data)
{
    const struct entry *entry = data;
    struct sim_log *log = entry->log;
    log->entries[log->count] = entry->value;
    __atomic_store_n(&log->count, log->count + 1, __ATOMIC_RELEASE);
    return true;
}

/* The keeper appends the entry, so entries of all streams of the process have one order. */
static CUresult submit_entry(struct CUstream_st *stream, const struct sim_kernel *kernel, void *const *parameters)
{
    struct sim_log *log = (struct sim_log *)(uintptr_t)parameter(kernel, parameters, kernel->log_parameter);
    if (!log) return CUDA_SUCCESS;
    struct entry *entry = malloc(sizeof *entry);
    SIM_REFUSE(!entry, CUDA_ERROR_OUT_OF_MEMORY);
    *entry = (struct entry){log, parameter(kernel, parameters, kernel->log_parameter + 1)};
    return sim_submit_host(stream, append, entry, 0);
}

/* The number of SMs that a launch fills if each SM holds as many of its blocks as fit. */
static uint64_t sms_of_grid(const struct sim_launch *launch)
{
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    int each = sim_blocks_per_sm((int)(launch->block[0] * launch->block[1] * launch->block[2]), launch->shared);
    return each > 0 ? (blocks + (uint64_t)each - 1) / (uint64_t)each : blocks;
}

CUresult sim_submit_kernel(struct CUstream_st *stream, const struct sim_launch *launch, void *const *parameters)
{
    const struct sim_kernel *kernel = launch->kernel;
    uint64_t duration = kernel->duration_ns, sms = kernel->sms_of_grid ? sms_of_grid(launch) : kernel->sms;
    if (kernel->duration_parameter >= 0) duration = parameter(kernel, parameters, kernel->duration_parameter) * 1000;
    if (kernel->sms_parameter >= 0) sms = parameter(kernel, parameters, kernel->sms_parameter);
    uint64_t most = sim_machine->parameters.sms;
    if (sms < 1) sms = 1;
    struct sim_op op = {.kind = SIM_KERNEL,
                        .remaining_ns = duration ? duration : 1,
                        .name = kernel->label,
                        .sms = sms > most && !kernel->barrier ? most : sms,
                        .b = (launch->anywhere ? SIM_ANYWHERE : 0) | (uint64_t)launch->priority << SIM_PRIORITY,
                        .c = kernel->barrier ? SIM_SPINS_FOR_SMS : SIM_SPINS_NEVER,
                        .touches = sim_touches_of(kernel, parameters)};
    if (kernel->meets_parameter < 0) SIM_TRY(sim_submit(stream, &op, NULL));
    else
        SIM_TRY(sim_submit_meeting(stream, &op, parameter(kernel, parameters, kernel->meets_parameter),
                                   parameter(kernel, parameters, kernel->meets_parameter + 1)));
    if (kernel->log_parameter >= 0) SIM_TRY(submit_entry(stream, kernel, parameters));
    return kernel->error ? submit_fault(stream, kernel->error) : CUDA_SUCCESS;
}

CUresult sim_submit_copy(struct CUstream_st *stream, enum sim_engine engine, size_t bytes)
{
    uint64_t rate = engine == SIM_DEVICE_TO_DEVICE ? DEVICE_BYTES_PER_US : SIM_HOST_BYTES_PER_US;
    struct sim_op op = {.kind = SIM_COPY, .remaining_ns = COPY_START_NS + bytes * 1000 / rate, .sms = engine};
    return sim_submit(stream, &op, NULL);
}

CUresult sim_submit_prefetch(struct CUstream_st *stream, enum sim_engine engine, uintptr_t start, size_t bytes)
{
    struct sim_op op = {.kind = SIM_COPY, .sms = engine, .b = 1, .c = bytes, .touches = sim_touches_at(start)};
    return sim_submit(stream, &op, NULL);
}

CUresult sim_submit_memset(struct CUstream_st *stream, uintptr_t start, size_t bytes)
{
    static _Atomic uint64_t label;
    if (!label) label = sim_trace_label("memset", "memset");
    struct sim_op op = {.kind = SIM_KERNEL,
                        .remaining_ns = COPY_START_NS + bytes * 1000 / DEVICE_BYTES_PER_US,
                        .sms = sim_machine->parameters.sms,
                        .b = SIM_PARTLY,
                        .touches = sim_touches_part(start, bytes),
                        .name = label};
    return sim_submit(stream, &op, NULL);
}

CUresult sim_submit_host(struct CUstream_st *stream, bool (*run)(void *), void *data, uint64_t early_ns)
{
    struct sim_op op = {.kind = SIM_EFFECT};
    struct sim_position at;
    SIM_TRY(sim_submit(stream, &op, &at));
    sim_effect_add(&at, run, data, early_ns);
    return CUDA_SUCCESS;
}

CUresult sim_submit_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct sim_op op = {.kind = SIM_RECORD, .a = event->slot, .b = event->slot_generation};
    struct sim_position at;
    SIM_TRY(sim_submit(stream, &op, &at));
    sim_event_set_position(event, &at);
    return CUDA_SUCCESS;
}

static CUresult submit_wait(struct CUstream_st *stream, const struct sim_position *on, enum sim_kind kind)
{
    struct sim_op op = wait_for(on, kind);
    return sim_reached(on) ? CUDA_SUCCESS : sim_submit(stream, &op, NULL);
}

CUresult sim_submit_wait(struct CUstream_st *stream, const struct sim_position *on) { return submit_wait(stream, on, SIM_WAIT); }
CUresult sim_submit_event_wait(struct CUstream_st *stream, const struct sim_position *on)
{
    return submit_wait(stream, on, SIM_EVENT_WAIT);
}
