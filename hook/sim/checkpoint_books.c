/* What a checkpoint changes in the state of the machine. The contents of device memory are host memory already, and stay
 * where they are. */
#include "checkpoint.h"
#include "client.h"
#include "sim.h"

/* The next context of this process from `slot` on; SIM_CONTEXTS: none. Under the lock. */
static uint64_t own_from(const struct sim_state *state, uint64_t slot)
{
    uint64_t client = sim_own_client_number();
    while (slot < state->contexts_high && !(state->contexts[slot].used && state->contexts[slot].client == client)) slot++;
    return slot < state->contexts_high ? slot : SIM_CONTEXTS;
}

#define EACH_OWN(state, slot) \
    uint64_t slot = own_from(state, 0); \
    slot < SIM_CONTEXTS; \
    slot = own_from(state, slot + 1)

uint64_t sim_books_bytes(void)
{
    uint64_t bytes = 0;
    sim_enter();
    const struct sim_state *state = sim_state();
    for (EACH_OWN(state, slot)) bytes += state->contexts[slot].memory + state->contexts[slot].away;
    sim_leave();
    return bytes;
}

/* The GPUs of this process's contexts, one bit each. */
static uint64_t own_gpus(void)
{
    uint64_t gpus = 0;
    sim_enter();
    const struct sim_state *state = sim_state();
    for (EACH_OWN(state, slot)) gpus |= UINT64_C(1) << state->contexts[slot].gpu;
    sim_leave();
    return gpus;
}

bool sim_books_any_mig(void) { return own_gpus() & sim_machine->parameters.mig; }

bool sim_books_any_lost(void)
{
    uint64_t gpus = own_gpus();
    for (unsigned gpu = 0; gpu < SIM_GPUS; gpu++)
        if (gpus >> gpu & 1 && atomic_load(&sim_machine->health[gpu].lost)) return true;
    return false;
}

/* A position behind the work of a stream of this process that has some; false: none has. */
static bool find_work(struct sim_position *behind)
{
    bool found = false;
    uint64_t client = sim_own_client_number();
    sim_enter();
    const struct sim_state *state = sim_state();
    for (uint64_t at = 0; at < state->busy_count && !found; at++) {
        const struct sim_stream *of = &state->streams[state->busy[at]];
        found = state->contexts[of->context].client == client;
        if (found) *behind = (struct sim_position){state->busy[at], of->generation, of->tail};
    }
    sim_leave();
    return found;
}

void sim_books_drain(void)
{
    for (struct sim_position behind; find_work(&behind);) sim_wait(&behind);
}

void sim_books_leave(void)
{
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        for (EACH_OWN(state, slot)) {
            struct sim_context *of = &state->contexts[slot];
            SIM_PUT(state->gpus[of->gpu].memory, state->gpus[of->gpu].memory - of->memory);
            SIM_PUT(of->away, of->memory);
            SIM_PUT(of->memory, 0);
        }
        struct sim_client *client = sim_own_client();
        if (client) SIM_PUT(client->away_ns, state->now_ns + sim_machine->parameters.listed_ns);
    } while (!sim_leave());
}

static bool is_room(const struct sim_state *state)
{
    uint64_t needed[SIM_GPUS] = {0};
    for (EACH_OWN(state, slot)) needed[state->contexts[slot].gpu] += state->contexts[slot].away;
    for (unsigned gpu = 0; gpu < SIM_GPUS; gpu++)
        if (needed[gpu] > sim_machine->parameters.memory - state->gpus[gpu].memory) return false;
    return true;
}

bool sim_books_return(void)
{
    bool fits;
    do {
        sim_enter();
        struct sim_state *state = sim_state();
        fits = is_room(state);
        for (EACH_OWN(state, slot)) {
            struct sim_context *of = &state->contexts[slot];
            if (!fits) break;
            SIM_PUT(state->gpus[of->gpu].memory, state->gpus[of->gpu].memory + of->away);
            SIM_PUT(of->memory, of->away);
            SIM_PUT(of->away, 0);
        }
        struct sim_client *client = sim_own_client();
        if (client && fits) SIM_PUT(client->away_ns, 0);
    } while (!sim_leave());
    return fits;
}
