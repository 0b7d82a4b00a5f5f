/* Event slots: entries of the shared state (shared.h) that hold the time stamps of timing events. All functions need
 * the lock. */
#ifndef ORION_SIM_EVENT_SLOT_H
#define ORION_SIM_EVENT_SLOT_H

#include "shared.h"

uint64_t sim_event_slot_take(uint64_t client); /* SIM_NEVER: none left */
void sim_event_slot_free(uint64_t slot);
void sim_event_slots_drop(uint64_t client);

#endif
