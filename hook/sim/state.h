/* Enters and changes the shared state; shared.h says what happens when a process dies in the middle of a change. */
#ifndef ORION_SIM_STATE_H
#define ORION_SIM_STATE_H

#include "shared.h"

extern struct sim_header *sim_machine;        /* NULL until sim_open */
extern struct sim_region *_Atomic sim_region; /* the region that this process last saw as current */

static inline struct sim_state *sim_state(void) { return &atomic_load_explicit(&sim_region, memory_order_acquire)->state; }

/* Map the machine's file; make the machine if there is none. False: no machine can be opened or made. */
bool sim_open(void);

/* Enter the state and advance it to the present time. Between enter and leave, a call never blocks, and it changes
 * process memory only in ways that can be repeated. */
void sim_enter(void);

/* Leave the state. False: the region was abandoned meanwhile and the state lacks the stores, so do the work again. */
bool sim_leave(void);

/* Call before a read without the lock: makes this process see the valid region. */
void sim_refresh(void);

/* Make the stores so far permanent. The state must be consistent. */
void sim_commit(void);
void sim_commit_if_full(void); /* commit if the log could overflow */

/* Logged store of one word. This is the only way to change the state. */
void sim_put(volatile uint64_t *word, uint64_t value);
#define SIM_PUT(field, value) sim_put((volatile uint64_t *)&(field), (value))

/* A numbered point for the crash test. ORION_SIM_CRASH_AT=n kills the process at the n-th point that it passes;
 * ORION_SIM_STOP_AT=n stops it there. */
void sim_crash_point(void);

#endif
