/* Creates and destroys contexts: the entry in the shared state, the default streams, and the wait for queued work. */
#include "capture.h"
#include "client.h"
#include "context.h"
#include "health.h"
#include "mps.h"

struct CUstream_st *sim_context_stream_after(const struct CUctx_st *context, const struct CUgreenCtx_st *green,
                                             unsigned long long after)
{
    struct CUstream_st *next = NULL;
    for (struct CUstream_st *stream = context->streams; stream; stream = stream->next)
        if (stream->id > after && (!green || stream->green == green) && (!next || stream->id < next->id)) next = stream;
    return next;
}

void sim_context_wait(struct CUctx_st *context, const struct CUgreenCtx_st *green)
{
    struct CUstream_st *stream = NULL;
    for (unsigned long long after = 0;;) {
        struct sim_position position;
        sim_enter();
        stream = sim_context_stream_after(context, green, after);
        if (stream) {
            position = sim_stream_position(stream);
            after = stream->id;
        }
        sim_leave();
        if (!stream) return;
        sim_wait(&position);
    }
}

/* Take a context entry of the shared state; SIM_NEVER: all are in use. */
static uint64_t take_slot(CUdevice device)
{
    uint64_t slot, client = sim_own_client_number();
    bool together = sim_mps_client();
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        slot = 0;
        while (slot < SIM_CONTEXTS && state->contexts[slot].used) slot++;
        if (slot < SIM_CONTEXTS) {
            struct sim_context *of = &state->contexts[slot];
            SIM_PUT(of->used, 1);
            SIM_PUT(of->client, client);
            SIM_PUT(of->gpu, (uint64_t)sim_device_gpu(device));
            SIM_PUT(of->memory, 0);
            SIM_PUT(of->managed, 0);
            SIM_PUT(of->resident, 0);
            SIM_PUT(of->away, 0);
            SIM_PUT(of->last_ran_ns, 0);
            SIM_PUT(of->group, together ? SIM_TOGETHER : slot + 1);
            if (slot >= state->contexts_high) SIM_PUT(state->contexts_high, slot + 1);
        }
    } while (!sim_leave());
    return slot < SIM_CONTEXTS ? slot : SIM_NEVER;
}

unsigned long long sim_context_new_id(void)
{
    static _Atomic unsigned long long ids;
    return atomic_fetch_add(&ids, 1) + 1;
}

static void drop_slot(uint64_t slot)
{
    do {
        sim_enter();
        sim_drop_context(slot);
    } while (!sim_leave());
}

CUresult sim_context_make(CUdevice device, unsigned flags, struct CUctx_st **made)
{
    SIM_REFUSE(sim_device_lost(device), CUDA_ERROR_DEVICE_UNAVAILABLE);
    SIM_REFUSE(!sim_client_join(), CUDA_ERROR_OUT_OF_MEMORY);
    struct CUctx_st *context = sim_handle_new(SIM_CONTEXT, sizeof *context);
    SIM_REFUSE(!context, CUDA_ERROR_OUT_OF_MEMORY);
    context->slot = take_slot(device);
    context->device = device;
    context->flags = flags;
    context->references = 1;
    context->id = sim_context_new_id();
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7u << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool charged = context->slot != SIM_NEVER && sim_memory_take(context, sim_machine->parameters.context_memory);
    if (charged) result = sim_stream_new(context, NULL, CU_STREAM_DEFAULT, 0, &context->legacy);
    if (result) {
        if (context->slot != SIM_NEVER) drop_slot(context->slot);
        sim_handle_free(context);
        return result;
    }
    context->legacy->legacy = true;
    result = sim_stream_new(context, NULL, CU_STREAM_NON_BLOCKING, 0, &context->everything);
    SIM_REFUSE(result, result);
    *made = context;
    return CUDA_SUCCESS;
}

void sim_context_destroy(struct CUctx_st *context)
{
    uint64_t client = sim_own_client_number();
    sim_context_wait(context, NULL);
    sim_capture_end_in(context);
    do {
        sim_enter();
        struct sim_context *of = &sim_state()->contexts[context->slot];
        if (of->used && of->client == client) sim_drop_context(context->slot);
    } while (!sim_leave());
    sim_enter();
    context->dead = true;
    sim_greens_forget(context);
    while (context->streams) {
        struct CUstream_st *stream = context->streams;
        context->streams = stream->next;
        sim_handle_free(stream);
    }
    sim_leave();
    sim_handle_free(context);
}
