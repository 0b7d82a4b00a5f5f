/* Managed memory: its pages come to the GPU when a kernel needs them, and leave when others need the room.
 *
 * A kernel needs what it touches (touches.c): what of that is not on the GPU must have come in before the kernel begins. It comes in
 * blocks, as the driver moves them, at the rate of page faults (ORION_SIM_FAULT_GIB_PER_S). All contexts share one link to the
 * host. The context keeps the compute engine meanwhile, as a kernel does that waits for a page, and competes for time slices; while it
 * has lost the engine, no page is asked for. What has come for a kernel counts as used, although it may have left again before the last
 * block comes. Where a kernel touches more than the GPU has, it waits for what has no room, again and again.
 *
 * A prefetch is a copy at the rate of copies, without a kernel that waits. Memory is born on the GPU while it has room, and
 * else on the host. What leaves was not touched for longest; what belongs to the context that has the engine leaves last. It takes
 * the link at the rate of copies before the new pages come in its place. Ordinary memory drives pages out, too, as in NVIDIA's
 * driver, here at once. Which blocks of an allocation are on the GPU is not known, only how many.
 *
 * Not simulated: pages that the CPU touches, copies that fault, advice, and pages that stay on the host and are read over the
 * link. Rejected: page by page (programs of the tests touch none of their memory); a rate for each kernel (nobody knows it). */
#include "paging.h"
#include "allocation.h"
#include "engine.h"
#include "state.h"

#define COPY_START_NS 1000u

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

static uint64_t free_on(const struct sim_state *state, uint64_t gpu)
{
    return sim_machine->parameters.memory - state->gpus[gpu].memory;
}

/* -- What is where --------------------------------------------------------------------------------------------------- */

static void come(struct sim_state *state, struct sim_range *range, uint64_t bytes)
{
    struct sim_context *of = &state->contexts[range->context];
    SIM_PUT(state->gpus[of->gpu].memory, state->gpus[of->gpu].memory + bytes);
    SIM_PUT(of->memory, of->memory + bytes);
    SIM_PUT(of->resident, of->resident + bytes);
    SIM_PUT(range->resident, range->resident + bytes);
}

static void leave(struct sim_state *state, struct sim_range *range, uint64_t bytes)
{
    struct sim_context *of = &state->contexts[range->context];
    SIM_PUT(state->gpus[of->gpu].memory, state->gpus[of->gpu].memory - bytes);
    SIM_PUT(of->memory, of->memory - bytes);
    SIM_PUT(of->resident, of->resident - bytes);
    SIM_PUT(range->resident, range->resident - bytes);
}

/* Returns the next range that an operation of the context touches, from *at on; NULL: there is no more. */
static struct sim_range *next_touched(struct sim_state *state, uint64_t context, const struct sim_op *op, uint64_t *at)
{
    if (op->touches == SIM_TOUCHES_NONE || !state->contexts[context].managed) return NULL;
    bool all = op->touches == SIM_TOUCHES_ALL;
    uint64_t end = all ? state->ranges_high : op->b & SIM_PARTLY ? 1 : SIM_TOUCHED;
    while (*at < end) {
        uint64_t i = (*at)++, slot = all ? i : (op->touches >> (16 * i) & 0xffff) - 1;
        if (slot < state->ranges_high && state->ranges[slot].used && state->ranges[slot].context == context)
            return &state->ranges[slot];
    }
    return NULL;
}

static bool touches(struct sim_state *state, uint64_t context, const struct sim_op *op, const struct sim_range *range)
{
    const struct sim_range *touched;
    for (uint64_t at = 0; (touched = next_touched(state, context, op, &at));)
        if (touched == range) return true;
    return false;
}

/* -- What leaves ----------------------------------------------------------------------------------------------------- */

static bool leaves_before(const struct sim_state *state, const struct sim_range *one, const struct sim_range *other)
{
    const struct sim_context *of = &state->contexts[one->context], *others = &state->contexts[other->context];
    bool runs = state->gpus[of->gpu].group == of->group, other_runs = state->gpus[others->gpu].group == others->group;
    return runs != other_runs ? other_runs : one->touched_ns < other->touched_ns;
}

/* Make so much free, or as much as is possible without what `op` of the context touches (NULL: without none). Returns how much
 * left. */
static uint64_t evict(struct sim_state *state, uint64_t gpu, uint64_t bytes, uint64_t context, const struct sim_op *op)
{
    uint64_t left = 0;
    for (uint64_t room; (room = free_on(state, gpu)) < bytes;) {
        struct sim_range *victim = NULL;
        for (uint64_t slot = 0; slot < state->ranges_high; slot++) {
            struct sim_range *range = &state->ranges[slot];
            if (!range->used || !range->resident || state->contexts[range->context].gpu != gpu) continue;
            if (op && touches(state, context, op, range)) continue;
            if (!victim || leaves_before(state, range, victim)) victim = range;
        }
        if (!victim) break;
        uint64_t part = least(victim->resident, bytes - room);
        leave(state, victim, part);
        left += part;
        sim_commit_if_full();
    }
    return left;
}

bool sim_paging_make_room(uint64_t gpu, uint64_t bytes)
{
    struct sim_state *state = sim_state();
    uint64_t most = free_on(state, gpu);
    for (uint64_t slot = 0; slot < state->contexts_high && most < bytes; slot++)
        if (state->contexts[slot].used && state->contexts[slot].gpu == gpu) most += state->contexts[slot].resident;
    if (most < bytes) return false;
    evict(state, gpu, bytes, 0, NULL);
    return true;
}

/* -- What comes ------------------------------------------------------------------------------------------------------ */

/* Let `bytes` of a range's missing pages come for an operation, as far as there is room, in `duration_ns` and the time for what must
 * leave before. Returns when they have come; the link to the host is busy until then. */
static uint64_t bring(struct sim_state *state, struct sim_range *range, const struct sim_op *op, uint64_t bytes,
                      uint64_t duration_ns)
{
    uint64_t gpu = state->contexts[range->context].gpu, *link = &state->gpus[gpu].link_ns;
    uint64_t begin = *link > state->now_ns ? *link : state->now_ns;
    uint64_t left = evict(state, gpu, bytes, range->context, op), found = least(bytes, free_on(state, gpu));
    uint64_t end = begin + duration_ns + left * 1000 / SIM_HOST_BYTES_PER_US;
    come(state, range, found);
    if (found) SIM_PUT(range->touched_ns, state->now_ns);
    SIM_PUT(*link, end);
    SIM_PUT(range->pages_ns, end);
    return end;
}

static uint64_t context_of(const struct sim_state *state, uint64_t stream) { return state->streams[stream].context; }

uint64_t sim_paging_due_ns(struct sim_state *state, uint64_t stream)
{
    const struct sim_range *range;
    uint64_t due = 0;
    for (uint64_t at = 0; (range = next_touched(state, context_of(state, stream), sim_head_of(state, stream), &at));)
        if (range->pages_ns > state->now_ns && range->pages_ns > due) due = range->pages_ns;
    return due;
}

/* How much the kernel at the head of a stream misses; *first: the first range of which it misses something. */
static uint64_t missing(struct sim_state *state, uint64_t stream, struct sim_range **first)
{
    const struct sim_op *op = sim_head_of(state, stream);
    struct sim_range *range;
    uint64_t sum = 0;
    for (uint64_t at = 0; (range = next_touched(state, context_of(state, stream), op, &at));) {
        if (range->resident < range->bytes && !sum) *first = range;
        sum += range->bytes - range->resident;
    }
    return op->b & SIM_PARTLY ? least(sum, (op->touches >> 16) * SIM_BLOCK) : sum;
}

/* Lets the next block come for which the kernel at the head of a stream waits. */
static void fault(struct sim_state *state, uint64_t stream)
{
    struct sim_op *op = sim_head_of(state, stream);
    struct sim_range *range = NULL;
    uint64_t left = missing(state, stream, &range);
    if (!(op->b & SIM_PAGED)) {
        if (!left) return;
        SIM_PUT(op->b, op->b | SIM_PAGED);
        SIM_PUT(op->a, left);
    }
    SIM_PUT(op->a, least(op->a, left)); /* a prefetch may have brought the rest */
    if (!op->a || sim_paging_due_ns(state, stream)) return;
    uint64_t block = least(least(op->a, SIM_BLOCK), range->bytes - range->resident);
    bring(state, range, op, block, (uint64_t)((unsigned __int128)block * sim_machine->parameters.fault_ns >> 30));
    SIM_PUT(op->a, op->a - block);
}

void sim_paging_bring(uint64_t gpu)
{
    struct sim_state *state = sim_state();
    for (uint64_t at = 0; at < state->busy_count; at++) {
        uint64_t stream = state->busy[at];
        const struct sim_op *op = sim_head_of(state, stream);
        const struct sim_context *of = &state->contexts[context_of(state, stream)];
        if (op->kind != SIM_KERNEL || op->end_ns || of->gpu != gpu || of->group != state->gpus[gpu].group) continue;
        fault(state, stream);
        sim_commit_if_full();
    }
}

bool sim_paging_waits(struct sim_state *state, uint64_t stream)
{
    const struct sim_op *op = sim_head_of(state, stream);
    return sim_paging_due_ns(state, stream) || (op->b & SIM_PAGED && op->a);
}

void sim_paging_begins(uint64_t stream)
{
    struct sim_state *state = sim_state();
    struct sim_range *range;
    for (uint64_t at = 0; (range = next_touched(state, context_of(state, stream), sim_head_of(state, stream), &at));)
        SIM_PUT(range->touched_ns, state->now_ns);
}

uint64_t sim_paging_prefetch(uint64_t stream, enum sim_engine engine)
{
    struct sim_state *state = sim_state();
    const struct sim_op *op = sim_head_of(state, stream), own = {.touches = SIM_TOUCHES_ALL};
    uint64_t at = 0;
    struct sim_range *range = next_touched(state, context_of(state, stream), op, &at);
    if (!range) return COPY_START_NS;
    if (engine == SIM_DEVICE_TO_HOST) {
        uint64_t bytes = least(op->c, range->resident);
        leave(state, range, bytes);
        return COPY_START_NS + bytes * 1000 / SIM_HOST_BYTES_PER_US;
    }
    uint64_t bytes = least(op->c, range->bytes - range->resident);
    if (!bytes) return COPY_START_NS;
    /* In the place of other contexts' pages. */
    return bring(state, range, &own, bytes, COPY_START_NS + bytes * 1000 / SIM_HOST_BYTES_PER_US) - state->now_ns;
}

/* -- Allocations ----------------------------------------------------------------------------------------------------- */

bool sim_managed_take(struct CUctx_st *context, uint64_t bytes, uint64_t *range)
{
    uint64_t slot;
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        struct sim_context *of = &state->contexts[context->slot];
        slot = 0;
        while (slot < SIM_RANGES && state->ranges[slot].used) slot++;
        if (slot == SIM_RANGES) continue;
        struct sim_range *new = &state->ranges[slot];
        SIM_PUT(new->used, 1);
        SIM_PUT(new->context, context->slot);
        SIM_PUT(new->bytes, bytes);
        SIM_PUT(new->resident, 0);
        SIM_PUT(new->touched_ns, state->now_ns);
        SIM_PUT(new->pages_ns, 0);
        SIM_PUT(of->managed, of->managed + bytes);
        if (slot >= state->ranges_high) SIM_PUT(state->ranges_high, slot + 1);
        come(state, new, least(bytes, free_on(state, of->gpu)));
    } while (!sim_leave());
    *range = slot;
    return slot < SIM_RANGES;
}

void sim_managed_return(struct CUctx_st *context, uint64_t slot)
{
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        struct sim_range *range = &state->ranges[slot];
        struct sim_context *of = &state->contexts[context->slot];
        if (!range->used || range->context != context->slot) continue; /* the context has ended */
        leave(state, range, range->resident);
        SIM_PUT(of->managed, of->managed - range->bytes);
        SIM_PUT(range->used, 0);
    } while (!sim_leave());
}

void sim_paging_forget(uint64_t context)
{
    struct sim_state *state = sim_state();
    for (uint64_t slot = 0; slot < state->ranges_high; slot++) {
        struct sim_range *range = &state->ranges[slot];
        if (!range->used || range->context != context) continue;
        leave(state, range, range->resident);
        SIM_PUT(range->used, 0);
        sim_commit_if_full();
    }
    SIM_PUT(state->contexts[context].managed, 0);
}
