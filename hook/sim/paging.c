/* Managed memory: its pages come to the GPU when a kernel needs them, and leave when others need the room.
 *
 * The simulation does not know which pages a kernel touches. So each kernel needs all managed memory of its context: what is
 * not on the GPU must have come in before the kernel begins. It comes in pieces of the size of the driver's blocks, at the rate of page
 * faults (ORION_SIM_FAULT_GIB_PER_S). All contexts share one link to the host. The context keeps the compute engine meanwhile, as
 * a kernel does that waits for a page, and competes for time slices; while it has lost the engine, no page is asked for. What has come
 * for a kernel counts as used, although it may have left again before the last piece comes. Where the memory of one context exceeds the
 * GPU, each of its kernels waits for what has no room, again and again.
 *
 * A prefetch is a copy at the rate of copies, without a kernel that waits. Memory is born on the GPU while it has room, and
 * else on the host. What leaves is of the contexts that have neither run nor got pages for longest; a context's own pages leave last. The way out
 * costs no time: it runs beside the way in. Ordinary memory drives pages out, too, as in NVIDIA's driver.
 *
 * Not simulated: pages that the CPU touches, copies that fault, advice, and pages that stay on the host and are read over the
 * link. Rejected: page by page (programs of the tests touch none of their memory); a rate for each kernel (nobody knows it). */
#include "paging.h"
#include "allocation.h"
#include "engine.h"
#include "state.h"

#define COPY_START_NS 1000u
#define FAULTED_AT_ONCE (UINT64_C(2) << 20)

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

static uint64_t free_on(const struct sim_state *state, uint64_t gpu)
{
    return sim_machine->parameters.memory - state->gpus[gpu].memory;
}

static void come(struct sim_state *state, struct sim_context *of, uint64_t bytes)
{
    SIM_PUT(state->gpus[of->gpu].memory, state->gpus[of->gpu].memory + bytes);
    SIM_PUT(of->memory, of->memory + bytes);
    SIM_PUT(of->resident, of->resident + bytes);
}

static void leave(struct sim_state *state, struct sim_context *of, uint64_t bytes)
{
    SIM_PUT(state->gpus[of->gpu].memory, state->gpus[of->gpu].memory - bytes);
    SIM_PUT(of->memory, of->memory - bytes);
    SIM_PUT(of->resident, of->resident - bytes);
}

/* When the context last ran or got pages; one that runs now is the newest. */
static uint64_t used_ns(const struct sim_state *state, const struct sim_context *of)
{
    if (state->gpus[of->gpu].group == of->group) return SIM_NEVER;
    return of->fetched_ns > of->last_ran_ns ? of->fetched_ns : of->last_ran_ns;
}

static struct sim_context *longest_unused(struct sim_state *state, uint64_t gpu, const struct sim_context *spared)
{
    struct sim_context *victim = NULL;
    for (uint64_t slot = 0; slot < state->contexts_high; slot++) {
        struct sim_context *of = &state->contexts[slot];
        if (!of->used || of->gpu != gpu || !of->resident || of == spared) continue;
        if (!victim || used_ns(state, of) < used_ns(state, victim)) victim = of;
    }
    return victim;
}

/* Make so much free, or as much as is possible without the pages of `spared` (NULL: without none). */
static void evict(struct sim_state *state, uint64_t gpu, uint64_t bytes, const struct sim_context *spared)
{
    for (uint64_t room; (room = free_on(state, gpu)) < bytes;) {
        struct sim_context *victim = longest_unused(state, gpu, spared);
        if (!victim) return;
        leave(state, victim, least(victim->resident, bytes - room));
        sim_commit_if_full();
    }
}

bool sim_paging_make_room(uint64_t gpu, uint64_t bytes)
{
    struct sim_state *state = sim_state();
    uint64_t most = free_on(state, gpu);
    for (uint64_t slot = 0; slot < state->contexts_high && most < bytes; slot++)
        if (state->contexts[slot].used && state->contexts[slot].gpu == gpu) most += state->contexts[slot].resident;
    if (most < bytes) return false;
    evict(state, gpu, bytes, NULL);
    return true;
}

/* Let up to `bytes` of a context's missing pages come; returns how much found room. */
static uint64_t bring(struct sim_state *state, struct sim_context *of, uint64_t bytes)
{
    bytes = least(bytes, of->managed - of->resident);
    evict(state, of->gpu, bytes, of);
    uint64_t found = least(bytes, free_on(state, of->gpu));
    come(state, of, found);
    if (found) SIM_PUT(of->fetched_ns, state->now_ns);
    return found;
}

/* The link to the host is busy for so long with pages of the context. Returns when they have come. */
static uint64_t use_link(struct sim_state *state, struct sim_context *of, uint64_t duration_ns)
{
    uint64_t *link = &state->gpus[of->gpu].link_ns, begin = *link > state->now_ns ? *link : state->now_ns;
    SIM_PUT(*link, begin + duration_ns);
    SIM_PUT(of->pages_ns, begin + duration_ns);
    return begin + duration_ns;
}

/* Lets the next piece come for which the kernel at the head of a stream waits. */
static void fault(struct sim_state *state, struct sim_context *of, struct sim_op *op)
{
    uint64_t missing = of->managed - of->resident;
    if (!(op->b & SIM_PAGED)) {
        if (!missing) return;
        SIM_PUT(op->b, op->b | SIM_PAGED);
        SIM_PUT(op->a, missing);
    }
    SIM_PUT(op->a, least(op->a, missing)); /* a prefetch may have brought the rest */
    uint64_t piece = least(op->a, FAULTED_AT_ONCE);
    if (!piece || of->pages_ns > state->now_ns) return;
    bring(state, of, piece);
    use_link(state, of, (uint64_t)((unsigned __int128)piece * sim_machine->parameters.fault_ns >> 30));
    SIM_PUT(op->a, op->a - piece);
}

void sim_paging_bring(uint64_t gpu)
{
    struct sim_state *state = sim_state();
    for (uint64_t at = 0; at < state->busy_count; at++) {
        uint64_t stream = state->busy[at];
        struct sim_op *op = sim_head_of(state, stream);
        struct sim_context *of = &state->contexts[state->streams[stream].context];
        if (op->kind != SIM_KERNEL || op->end_ns || of->gpu != gpu || of->group != state->gpus[gpu].group) continue;
        fault(state, of, op);
        sim_commit_if_full();
    }
}

bool sim_paging_waits(const struct sim_state *state, uint64_t stream)
{
    const struct sim_op *op = sim_head_of((struct sim_state *)(uintptr_t)state, stream);
    return state->contexts[state->streams[stream].context].pages_ns > state->now_ns || (op->b & SIM_PAGED && op->a);
}

uint64_t sim_paging_prefetch(uint64_t stream, enum sim_engine engine, uint64_t bytes)
{
    struct sim_state *state = sim_state();
    struct sim_context *of = &state->contexts[state->streams[stream].context];
    if (engine == SIM_DEVICE_TO_HOST) {
        bytes = least(bytes, of->resident);
        leave(state, of, bytes);
        return COPY_START_NS + bytes * 1000 / SIM_HOST_BYTES_PER_US;
    }
    uint64_t moved = bring(state, of, bytes);
    if (!moved) return COPY_START_NS;
    return use_link(state, of, COPY_START_NS + moved * 1000 / SIM_HOST_BYTES_PER_US) - state->now_ns;
}

void sim_managed_take(struct CUctx_st *context, uint64_t bytes)
{
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        struct sim_context *of = &state->contexts[context->slot];
        SIM_PUT(of->managed, of->managed + bytes);
        come(state, of, least(bytes, free_on(state, of->gpu)));
    } while (!sim_leave());
}

/* Nobody knows which part of the context's pages on the GPU are those of this memory: as many as of the whole. */
void sim_managed_return(struct CUctx_st *context, uint64_t bytes)
{
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        struct sim_context *of = &state->contexts[context->slot];
        uint64_t whole = of->managed, gone = least(bytes, whole); /* a destroyed context has none */
        if (whole) leave(state, of, (uint64_t)((unsigned __int128)of->resident * gone / whole));
        SIM_PUT(of->managed, whole - gone);
    } while (!sim_leave());
}
