/* Event slots (see event_slot.h). Freed slots form a linked list (`next`). Freeing a slot also increments its
 * generation: a cuEventRecord that is still queued for the destroyed event then finds another generation and writes no
 * time. */
#include "event_slot.h"
#include "state.h"

uint64_t sim_event_slot_take(uint64_t client)
{
    struct sim_state *state = sim_state();
    uint64_t slot = state->event_free - 1;
    if (state->event_free) {
        SIM_PUT(state->event_free, state->events[slot].next);
    } else {
        if (state->events_high >= SIM_EVENTS) return SIM_NEVER;
        slot = state->events_high;
        SIM_PUT(state->events_high, slot + 1);
    }
    SIM_PUT(state->events[slot].used, 1);
    SIM_PUT(state->events[slot].client, client);
    SIM_PUT(state->events[slot].time_ns, 0);
    return slot;
}

void sim_event_slot_free(uint64_t slot)
{
    struct sim_state *state = sim_state();
    SIM_PUT(state->events[slot].used, 0);
    SIM_PUT(state->events[slot].generation, state->events[slot].generation + 1);
    SIM_PUT(state->events[slot].next, state->event_free);
    SIM_PUT(state->event_free, slot + 1);
}

void sim_event_slots_drop(uint64_t client)
{
    struct sim_state *state = sim_state();
    for (uint64_t slot = 0; slot < state->events_high; slot++)
        if (state->events[slot].used && state->events[slot].client == client) {
            sim_event_slot_free(slot);
            sim_commit();
        }
}
