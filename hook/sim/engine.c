/* Decides which operation runs when.
 *
 * Operations of a stream run in order. A kernel at the head of a stream may start when its context has the compute
 * engine; dispatch.c gives it SMs. In time-slice mode one context has the engine. It loses the engine when its work is
 * done, or when its slice is over and another context has work. The rest of an interrupted kernel continues when its
 * context has the engine again. A context with a stream that waits for an event keeps the engine like one with a kernel, as
 * on an H200; a stream that waits for a word of memory does not. A switch to another context may take time, in which no kernel runs. The contexts of MPS
 * clients count as one context. Each copy engine runs one copy at a
 * time.
 *
 * Rejected: a heap of future events (a scan of the few busy streams is faster than logging the heap's stores), and
 * random contention between kernels. */
#include "dispatch.h"
#include "engine.h"
#include "paging.h"
#include "state.h"
#include "trace.h"

uint64_t sim_group_of(struct sim_state *state, uint64_t stream) { return state->contexts[state->streams[stream].context].group; }

static void leave_busy(struct sim_state *state, uint64_t stream)
{
    uint64_t position = state->streams[stream].busy_position - 1, last = state->busy[state->busy_count - 1];
    SIM_PUT(state->busy[position], last);
    SIM_PUT(state->streams[last].busy_position, position + 1);
    SIM_PUT(state->streams[stream].busy_position, 0);
    SIM_PUT(state->busy_count, state->busy_count - 1);
}

static void free_stream(struct sim_state *state, uint64_t stream)
{
    SIM_PUT(state->streams[stream].generation, state->streams[stream].generation + 1);
    SIM_PUT(state->streams[stream].used, 0);
}

/* Take a running operation off its engine. For a kernel, this ends one piece in the trace. */
static void stop(struct sim_state *state, uint64_t stream)
{
    struct sim_op *op = sim_head_of(state, stream);
    if (!op->end_ns) return;
    SIM_PUT(op->remaining_ns, sim_remaining_ns(state, stream));
    if (op->kind == SIM_KERNEL) {
        sim_dispatch_release(stream);
        if (op->b & SIM_PAGED) SIM_PUT(op->b, op->b & ~(uint64_t)SIM_PAGED); /* what is left of it needs its pages again */
        sim_trace_piece(state, stream, op->a, op->name);
    } else if (op->kind == SIM_COPY) {
        SIM_PUT(state->gpus[sim_gpu_of(state, stream)].copying[op->sms], 0);
    }
    SIM_PUT(op->end_ns, 0);
}

static void complete(struct sim_state *state, uint64_t stream)
{
    struct sim_stream *of = &state->streams[stream];
    SIM_PUT(of->done, of->done + 1);
    SIM_PUT(of->ready_ns, state->now_ns);
    if (of->done == of->tail) {
        leave_busy(state, stream);
        if (of->closing) free_stream(state, stream);
    }
}

/* Complete the head of a stream if it is due at the present time. */
static bool settle_head(struct sim_state *state, uint64_t stream)
{
    struct sim_op *op = sim_head_of(state, stream);
    switch (op->kind) {
    case SIM_KERNEL:
    case SIM_COPY:
        if (!op->end_ns || op->end_ns > state->now_ns) return false;
        stop(state, stream);
        break;
    case SIM_RECORD:
        if (op->a < SIM_EVENTS && state->events[op->a].generation == op->b) SIM_PUT(state->events[op->a].time_ns, state->now_ns);
        break;
    case SIM_WAIT:
    case SIM_EVENT_WAIT:
        if (state->streams[op->a].generation == op->b && state->streams[op->a].done < op->c) return false;
        break;
    default:
        if (!op->end_ns) return false;
    }
    complete(state, stream);
    return true;
}

static void settle(struct sim_state *state)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint64_t at = 0; at < state->busy_count;) {
            uint64_t stream = state->busy[at];
            bool completed = settle_head(state, stream);
            changed |= completed;
            sim_commit_if_full();
            at += !completed; /* completed: check this index again, because another stream may have moved to it */
        }
    }
}

/* Which groups wait for or use the compute engine of a GPU. */
struct demand {
    bool holder;   /* the group that has the engine has kernels, or waits for events */
    bool others;   /* another group does */
    uint64_t next; /* the other group that ran longest ago */
};

static bool wants_engine(const struct sim_op *op) { return op->kind == SIM_KERNEL || op->kind == SIM_EVENT_WAIT; }

static struct demand demand_on(struct sim_state *state, uint64_t gpu)
{
    struct demand demand = {false, false, 0};
    uint64_t least = SIM_NEVER;
    for (uint64_t at = 0; at < state->busy_count; at++) {
        uint64_t stream = state->busy[at], group = sim_group_of(state, stream);
        if (sim_gpu_of(state, stream) != gpu || !wants_engine(sim_head_of(state, stream))) continue;
        if (group == state->gpus[gpu].group) {
            demand.holder = true;
            continue;
        }
        uint64_t last_ran = state->contexts[state->streams[stream].context].last_ran_ns;
        if (!demand.others || last_ran < least) {
            least = last_ran;
            demand.next = group;
        }
        demand.others = true;
    }
    return demand;
}

static void have_run_together(struct sim_state *state, uint64_t gpu)
{
    for (uint64_t i = 0; i < state->contexts_high; i++) {
        struct sim_context *of = &state->contexts[i];
        if (of->used && of->gpu == gpu && of->group == SIM_TOGETHER) SIM_PUT(of->last_ran_ns, state->now_ns);
    }
}

static void switch_to(struct sim_state *state, uint64_t gpu, uint64_t group)
{
    struct sim_gpu *of = &state->gpus[gpu];
    for (uint64_t at = 0; of->group && at < state->busy_count; at++) {
        uint64_t stream = state->busy[at];
        if (sim_gpu_of(state, stream) == gpu && sim_head_of(state, stream)->kind == SIM_KERNEL) stop(state, stream);
    }
    if (of->group == SIM_TOGETHER) have_run_together(state, gpu);
    else if (of->group) SIM_PUT(state->contexts[of->group - 1].last_ran_ns, state->now_ns);
    SIM_PUT(of->group, group);
    if (group && group != of->last_group) {
        SIM_PUT(of->switched_ns, state->now_ns + (of->last_group ? sim_machine->parameters.switch_ns : 0));
        SIM_PUT(of->last_group, group);
    }
    SIM_PUT(of->slice_start_ns, of->switched_ns > state->now_ns ? of->switched_ns : state->now_ns);
    SIM_PUT(of->slice_end_ns, 0);
}

/* Decide which group has the engine. A slice has no end while no other group waits. Once another group waits, the
 * slice ends at the next multiple of slice_ns after its start. */
static void arbitrate(struct sim_state *state, uint64_t gpu)
{
    struct sim_gpu *of = &state->gpus[gpu];
    struct demand demand = demand_on(state, gpu);
    uint64_t slice = sim_machine->parameters.slice_ns;
    if (!demand.holder) {
        if (of->group || demand.others) switch_to(state, gpu, demand.others ? demand.next : 0);
        if (of->group) demand = demand_on(state, gpu);
    } else if (demand.others && of->slice_end_ns && state->now_ns >= of->slice_end_ns) {
        switch_to(state, gpu, demand.next);
        demand = demand_on(state, gpu);
    }
    if (!demand.others) SIM_PUT(of->slice_end_ns, 0);
    else if (!of->slice_end_ns) {
        uint64_t passed = state->now_ns > of->slice_start_ns ? state->now_ns - of->slice_start_ns : 0;
        SIM_PUT(of->slice_end_ns, of->slice_start_ns + (passed / slice + 1) * slice);
    }
}

/* The stream whose waiting copy has been at the head longest; SIM_NEVER: no copy waits for the engine. */
static uint64_t first_copy(struct sim_state *state, uint64_t gpu, uint64_t engine)
{
    uint64_t best = SIM_NEVER;
    for (uint64_t at = 0; at < state->busy_count; at++) {
        uint64_t stream = state->busy[at];
        const struct sim_op *op = sim_head_of(state, stream);
        if (op->kind == SIM_COPY && op->sms == engine && !op->end_ns && sim_gpu_of(state, stream) == gpu &&
            (best == SIM_NEVER || state->streams[stream].ready_ns < state->streams[best].ready_ns))
            best = stream;
    }
    return best;
}

static void start_copies(struct sim_state *state, uint64_t gpu)
{
    for (uint64_t engine = 0; engine < SIM_ENGINES; engine++) {
        uint64_t stream = state->gpus[gpu].copying[engine] ? SIM_NEVER : first_copy(state, gpu, engine);
        if (stream == SIM_NEVER) continue;
        struct sim_op *op = sim_head_of(state, stream);
        uint64_t duration = op->b ? sim_paging_prefetch(stream, engine) : op->remaining_ns;
        SIM_PUT(state->gpus[gpu].copying[engine], stream + 1);
        SIM_PUT(op->end_ns, state->now_ns + duration);
        sim_commit_if_full();
    }
}

static uint64_t next_change(struct sim_state *state)
{
    uint64_t next = SIM_NEVER;
    for (uint64_t at = 0; at < state->busy_count; at++) {
        const struct sim_op *op = sim_head_of(state, state->busy[at]);
        uint64_t pages = op->kind == SIM_KERNEL && !op->end_ns ? sim_paging_due_ns(state, state->busy[at]) : 0;
        if (op->end_ns && op->end_ns < next) next = op->end_ns;
        if (pages > state->now_ns && pages < next) next = pages;
    }
    for (uint64_t gpu = 0; gpu < sim_machine->parameters.gpus; gpu++) {
        const struct sim_gpu *of = &state->gpus[gpu];
        if (of->slice_end_ns && of->slice_end_ns < next) next = of->slice_end_ns;
        if (of->switched_ns > state->now_ns && of->switched_ns < next) next = of->switched_ns;
    }
    return next;
}

void sim_run(void)
{
    struct sim_state *state = sim_state();
    SIM_PUT(state->next_ns, state->now_ns); /* until the last store: if this process dies, another repeats this */
    settle(state);
    for (uint64_t gpu = 0; gpu < sim_machine->parameters.gpus; gpu++) {
        arbitrate(state, gpu);
        sim_dispatch(gpu);
        start_copies(state, gpu);
    }
    SIM_PUT(state->next_ns, next_change(state));
}

void sim_advance(uint64_t now_ns)
{
    struct sim_state *state = sim_state();
    while (state->next_ns <= now_ns) {
        if (state->next_ns > state->now_ns) SIM_PUT(state->now_ns, state->next_ns);
        sim_run();
        sim_commit();
    }
    if (now_ns > state->now_ns) SIM_PUT(state->now_ns, now_ns);
}

void sim_drop_stream(uint64_t stream)
{
    struct sim_state *state = sim_state();
    struct sim_stream *of = &state->streams[stream];
    if (!of->used) return;
    if (of->busy_position) {
        stop(state, stream);
        leave_busy(state, stream);
    }
    SIM_PUT(of->done, of->tail);
    free_stream(state, stream);
}
