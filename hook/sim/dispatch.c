/* Chooses the SMs of a kernel, and computes how long the kernel takes on them.
 *
 * A kernel of duration d that needs n SMs has d * n of work, and runs on at most n SMs at a time. A kernel on a stream
 * of a green context may use the SMs of that green context. Every other kernel may use all SMs. Kernels are served by
 * priority, their own or that of their stream, then in the order in which they reached the head of their streams. Each
 * kernel takes the SMs that it needs from the free SMs that it may use. A kernel that got fewer SMs runs longer in
 * proportion. The kernel gets more SMs when other kernels end. On the hardware, the remaining blocks of a kernel get more
 * SMs in the same way. A kernel keeps its SMs until it ends or its context loses the engine, because blocks are not
 * preempted.
 *
 * A kernel whose blocks wait for each other (a grid barrier) advances only while it has all the SMs that it needs. With
 * fewer, its blocks spin: the kernel keeps its SMs and never ends, unless it gets the others.
 *
 * A kernel that waits for kernels of other GPUs keeps its SMs, too, and advances once it has met them.
 *
 * Ordinary kernels get SMs with high numbers first, because green contexts have the SMs with low numbers. So an
 * ordinary kernel uses the SMs of green contexts last.
 *
 * Rejected: a kernel waits until all SMs that it needs are free (a long kernel on half of the SMs would stop all
 * others); whole waves (the images do not contain the duration of a block); several kernels on one SM. */
#include "dispatch.h"
#include "engine.h"
#include "paging.h"
#include "state.h"

struct sim_sms sim_all_sms(void)
{
    struct sim_sms all = {{0}};
    uint64_t count = sim_machine->parameters.sms;
    for (unsigned i = 0; i < SIM_SM_WORDS && count > 64u * i; i++)
        all.word[i] = count - 64u * i >= 64 ? UINT64_MAX : (UINT64_C(1) << (count - 64u * i)) - 1;
    return all;
}

uint64_t sim_count_sms(const struct sim_sms *sms)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < SIM_SM_WORDS; i++) count += (uint64_t)__builtin_popcountll(sms->word[i]);
    return count;
}

static bool is_empty(const struct sim_sms *sms)
{
    uint64_t any = 0;
    for (unsigned i = 0; i < SIM_SM_WORDS; i++) any |= sms->word[i];
    return !any;
}

/* Returns at most `most` SMs of the set: those with the highest numbers. */
static struct sim_sms highest(const struct sim_sms *sms, uint64_t most)
{
    struct sim_sms chosen = {{0}};
    if (sim_count_sms(sms) <= most) return *sms;
    for (unsigned i = SIM_SM_WORDS; i-- > 0 && most;)
        for (uint64_t left = sms->word[i]; left && most; most--) {
            uint64_t bit = UINT64_C(1) << (63 - __builtin_clzll(left));
            chosen.word[i] |= bit;
            left &= ~bit;
        }
    return chosen;
}

static bool anywhere(const struct sim_op *op) { return op->b & SIM_ANYWHERE; }

static bool spins(const struct sim_op *op) { return op->kind == SIM_KERNEL && op->end_ns == SIM_NEVER; }

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

/* The largest number of SMs that the kernel can ever have. */
static uint64_t width(struct sim_state *state, uint64_t stream, const struct sim_op *op)
{
    return anywhere(op) ? op->sms : least(op->sms, sim_count_sms(&state->streams[stream].allowed));
}

/* Work takes `work_ns` on `from` SMs. Returns how long the same work takes on `to` SMs, rounded up. */
static uint64_t rescale(uint64_t work_ns, uint64_t from, uint64_t to)
{
    return from == to ? work_ns : (uint64_t)(((unsigned __int128)work_ns * from + to - 1) / to);
}

uint64_t sim_remaining_ns(struct sim_state *state, uint64_t stream)
{
    const struct sim_op *op = sim_head_of(state, stream);
    if (spins(op)) return op->remaining_ns;
    uint64_t left = op->end_ns > state->now_ns ? op->end_ns - state->now_ns : 0;
    return op->kind == SIM_KERNEL ? rescale(left, sim_count_sms(&state->streams[stream].held), op->sms) : left;
}

uint64_t sim_least_ns(struct sim_state *state, uint64_t stream, const struct sim_op *op)
{
    uint64_t left = op->end_ns > state->now_ns ? op->end_ns - state->now_ns : 0;
    if (op->kind != SIM_KERNEL) return op->end_ns ? left : op->remaining_ns;
    uint64_t most = op->c == SIM_SPINS_FOR_SMS ? op->sms : width(state, stream, op);
    if (!op->end_ns || spins(op)) return rescale(op->remaining_ns, op->sms, most);
    return (uint64_t)((unsigned __int128)left * sim_count_sms(&state->streams[stream].held) / most);
}

/* The free SMs that the head of a stream may use. */
static struct sim_sms available(struct sim_state *state, uint64_t stream, const struct sim_sms *unused)
{
    struct sim_sms sms = *unused;
    if (!anywhere(sim_head_of(state, stream)))
        for (unsigned i = 0; i < SIM_SM_WORDS; i++) sms.word[i] &= state->streams[stream].allowed.word[i];
    return sms;
}

static uint64_t priority_of(struct sim_state *state, uint64_t stream)
{
    uint64_t own = sim_head_of(state, stream)->b >> SIM_PRIORITY;
    return own ? own : state->streams[stream].priority;
}

static bool before(struct sim_state *state, uint64_t this, uint64_t other)
{
    uint64_t mine = priority_of(state, this), its = priority_of(state, other);
    return mine != its ? mine < its : state->streams[this].ready_ns < state->streams[other].ready_ns;
}

/* Returns the stream of the first kernel, by `before`, that needs SMs and can get at least one. SIM_NEVER: no kernel. */
static uint64_t first_in_line(struct sim_state *state, uint64_t gpu, const struct sim_sms *unused)
{
    uint64_t best = SIM_NEVER;
    for (uint64_t at = 0; at < state->busy_count; at++) {
        uint64_t stream = state->busy[at];
        const struct sim_op *op = sim_head_of(state, stream);
        if (op->kind != SIM_KERNEL || sim_gpu_of(state, stream) != gpu || sim_group_of(state, stream) != state->gpus[gpu].group)
            continue;
        if (!op->end_ns && sim_paging_waits(state, stream)) continue;
        if (best != SIM_NEVER && !before(state, stream, best)) continue;
        struct sim_sms possible = available(state, stream, unused);
        if (!is_empty(&possible) && (!op->end_ns || sim_count_sms(&state->streams[stream].held) < op->sms)) best = stream;
    }
    return best;
}

/* Start the kernel on the SMs that it can get, or continue it with more SMs. */
static void give_sms(struct sim_state *state, uint64_t stream, struct sim_sms *unused)
{
    struct sim_op *op = sim_head_of(state, stream);
    struct sim_stream *of = &state->streams[stream];
    struct sim_gpu *gpu = &state->gpus[sim_gpu_of(state, stream)];
    uint64_t held = sim_count_sms(&of->held), left = op->end_ns ? sim_remaining_ns(state, stream) : op->remaining_ns;
    struct sim_sms possible = available(state, stream, unused), more = highest(&possible, op->sms - held);
    for (unsigned i = 0; i < SIM_SM_WORDS; i++) {
        unused->word[i] &= ~more.word[i];
        SIM_PUT(of->held.word[i], of->held.word[i] | more.word[i]);
        SIM_PUT(gpu->held.word[i], gpu->held.word[i] | more.word[i]);
    }
    if (!op->end_ns) {
        SIM_PUT(op->a, state->now_ns);
        sim_paging_begins(stream);
    }
    held += sim_count_sms(&more);
    bool waits = op->c == SIM_SPINS_FOR_PEERS || (op->c == SIM_SPINS_FOR_SMS && held < op->sms);
    if (waits) SIM_PUT(op->remaining_ns, left);
    SIM_PUT(op->end_ns, waits ? SIM_NEVER : state->now_ns + rescale(left, op->sms, held));
    sim_commit_if_full();
}

void sim_dispatch_met(uint64_t stream)
{
    struct sim_state *state = sim_state();
    struct sim_op *op = sim_head_of(state, stream);
    SIM_PUT(op->c, SIM_SPINS_NEVER);
    if (!spins(op)) return;
    uint64_t held = sim_count_sms(&state->streams[stream].held);
    SIM_PUT(op->end_ns, state->now_ns + rescale(op->remaining_ns, op->sms, held));
}

void sim_dispatch(uint64_t gpu)
{
    struct sim_state *state = sim_state();
    struct sim_sms unused = sim_all_sms();
    if (state->now_ns < state->gpus[gpu].switched_ns) return;
    sim_paging_bring(gpu);
    for (unsigned i = 0; i < SIM_SM_WORDS; i++) unused.word[i] &= ~state->gpus[gpu].held.word[i];
    while (!is_empty(&unused)) {
        uint64_t stream = first_in_line(state, gpu, &unused);
        if (stream == SIM_NEVER) return;
        give_sms(state, stream, &unused);
    }
}

void sim_dispatch_release(uint64_t stream)
{
    struct sim_state *state = sim_state();
    struct sim_gpu *gpu = &state->gpus[sim_gpu_of(state, stream)];
    struct sim_stream *of = &state->streams[stream];
    for (unsigned i = 0; i < SIM_SM_WORDS; i++) {
        SIM_PUT(gpu->held.word[i], gpu->held.word[i] & ~of->held.word[i]);
        SIM_PUT(of->held.word[i], 0);
    }
}
