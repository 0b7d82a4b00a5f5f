/* Queues operations and waits for them (see queue.h).
 *
 * A waiter sleeps until the earliest time at which its operation can complete, then checks again. That time is a lower
 * bound: the sum of the times of the operations that are earlier in the queue, as if they had the device alone. The
 * bound is never before the machine's next change. When two contexts are time-sliced, each check halves the remaining
 * time, so a few checks find the end to the microsecond. */
#include <stdlib.h>
#include <string.h>

#include "queue.h"
#include "clock.h"
#include "dispatch.h"
#include "effect.h"
#include "engine.h"
#include "state.h"

#define CHECK_NS 4000000u /* check at least this often, because another client may have died */
#define DEPTH 4           /* an operation may wait for a second that also waits; follow at most this many */
#define ROOM 32           /* wait until a full queue has this many free entries, to wake less often */
#define VIRTUAL_QUERY_NS 1000u
#define SPIN_CHECK_NS 20000u

uint64_t sim_push(uint64_t stream, const struct sim_op *op)
{
    struct sim_state *state = sim_state();
    struct sim_stream *of = &state->streams[stream];
    uint64_t tail = atomic_load_explicit(&of->tail, memory_order_relaxed);
    *sim_op_at(state, stream, tail) = *op;
    sim_crash_point();
    SIM_PUT(of->tail, tail + 1);
    if (!of->busy_position) {
        SIM_PUT(state->busy[state->busy_count], stream);
        SIM_PUT(of->busy_position, state->busy_count + 1);
        SIM_PUT(state->busy_count, state->busy_count + 1);
        SIM_PUT(of->ready_ns, state->now_ns);
        sim_run();
    }
    return tail + 1;
}

bool sim_reached(const struct sim_position *position)
{
    if (position->number == 0) return true;
    const struct sim_stream *of = &sim_state()->streams[position->stream];
    return atomic_load_explicit(&of->done, memory_order_acquire) >= position->number ||
           __atomic_load_n(&of->generation, __ATOMIC_RELAXED) != position->generation;
}

static uint64_t alone(struct sim_state *state, const struct sim_position *position, int depth)
{
    const struct sim_stream *of = &state->streams[position->stream];
    uint64_t at = state->now_ns;
    if (of->generation != position->generation || !depth) return at;
    for (uint64_t number = of->done; number < position->number; number++) {
        const struct sim_op *op = sim_op_at(state, position->stream, number);
        if (op->kind == SIM_KERNEL || op->kind == SIM_COPY)
            at = (op->end_ns ? state->now_ns : at) + sim_least_ns(state, position->stream, op);
        else if (op->kind == SIM_WAIT || op->kind == SIM_EVENT_WAIT) {
            struct sim_position on = {op->a, op->b, op->c};
            uint64_t then = alone(state, &on, depth - 1);
            at = then > at ? then : at;
        }
    }
    return at;
}

uint64_t sim_earliest(const struct sim_position *position)
{
    struct sim_state *state = sim_state();
    uint64_t at = alone(state, position, DEPTH);
    return state->next_ns > at ? state->next_ns : at;
}

bool sim_query(const struct sim_position *position)
{
    sim_refresh();
    if (sim_reached(position)) return true;
    if (sim_machine->parameters.virtual_clock) atomic_fetch_add(&sim_machine->virtual_ns, VIRTUAL_QUERY_NS);
    if (sim_now_ns() < atomic_load_explicit(&sim_state()->next_ns, memory_order_relaxed)) return false;
    sim_enter();
    bool reached = sim_reached(position);
    sim_leave();
    return reached;
}

static bool spins;

void sim_choose_waiting(void)
{
    const char *set = getenv("ORION_SIM_SPIN");
    spins = set && !strcmp(set, "1") && !sim_machine->parameters.virtual_clock;
}

static void spin(uint64_t until_ns)
{
    uint64_t now = sim_monotonic_ns(), soon = now + SPIN_CHECK_NS;
    while (now < until_ns && now < soon) {
        sim_pause();
        now = sim_monotonic_ns();
    }
}

void sim_wait(const struct sim_position *position)
{
    sim_refresh();
    while (!sim_reached(position)) {
        uint32_t seen = atomic_load(&sim_effects_done);
        sim_enter();
        bool reached = sim_reached(position);
        uint64_t until = reached ? 0 : sim_earliest(position), now = sim_state()->now_ns;
        sim_leave();
        if (reached) return;
        if (until != SIM_NEVER && until > now + CHECK_NS && !sim_machine->parameters.virtual_clock) until = now + CHECK_NS;
        if (spins) spin(until);
        else sim_sleep_until(until, &sim_effects_done, seen);
    }
}

void sim_enter_with_room(uint64_t stream, uint64_t count)
{
    for (;;) {
        sim_enter();
        const struct sim_stream *of = &sim_state()->streams[stream];
        uint64_t tail = of->tail, queued = tail - of->done;
        if (queued + count <= SIM_QUEUE) return;
        uint64_t drain = count > ROOM ? count : ROOM;
        struct sim_position enough = {stream, of->generation, tail - SIM_QUEUE + drain};
        sim_leave();
        sim_wait(&enough);
    }
}
