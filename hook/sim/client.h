/* This process as a client of the machine: its entry in the state, its keeper thread, and the clean-up after clients
 * that died. */
#ifndef ORION_SIM_CLIENT_H
#define ORION_SIM_CLIENT_H

#include "shared.h"

/* Become a client: start the keeper thread and take a free entry of the state. False: no entry or no thread. */
bool sim_client_join(void);

/* Returns this process's entry in the state; NULL before the process has joined. */
struct sim_client *sim_own_client(void);
uint64_t sim_own_client_number(void);

/* Returns the position that the trace ring's head had when this client joined. */
uint64_t sim_trace_begin(void);

/* Under the lock: free what dead clients held. */
void sim_reap(void);

/* Under the lock: remove a context and everything in it. */
void sim_drop_context(uint64_t context);

#endif
