/* Entering and changing the shared state; see shared.h for how it survives its users. */
#ifndef ORION_SIM_STATE_H
#define ORION_SIM_STATE_H

#include "shared.h"

extern struct sim_header *sim_machine;          /* NULL until sim_open */
extern struct sim_region *_Atomic sim_region;   /* the region that this process last saw as current */

static inline struct sim_state *sim_state(void) {
    return &atomic_load_explicit(&sim_region, memory_order_acquire)->state;
}

/* Map the machine, making it if there is none. False: it cannot be had. */
bool sim_open(void);

/* Enter the state, brought up to now. Between enter and leave nothing blocks and nothing of the process is changed that
 * cannot be set again. */
void sim_enter(void);

/* Leave it. False: the region was abandoned meanwhile and what was done is not part of the state: do it again. */
bool sim_leave(void);

/* Before looking without the lock: see to it that this process sees the region that counts. */
void sim_refresh(void);

/* Make what was stored so far stay. The state must make sense as it is. */
void sim_commit(void);
void sim_commit_if_full(void); /* once so much was stored that the log could overflow */

/* Logged store of one word; the only way to change the state. */
void sim_put(volatile uint64_t *word, uint64_t value);
#define SIM_PUT(field, value) sim_put((volatile uint64_t *)&(field), (value))

/* A numbered place for the crash test: ORION_SIM_CRASH_AT=n kills the process at the n-th that it passes,
 * ORION_SIM_STOP_AT=n stops it there. */
void sim_crash_point(void);

#endif
