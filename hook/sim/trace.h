/* The timeline for ORION_SIM_TRACE: the times at which each kernel had the compute engine. */
#ifndef ORION_SIM_TRACE_H
#define ORION_SIM_TRACE_H

#include "shared.h"

/* Read ORION_SIM_TRACE. cuInit calls this once, before the process has a keeper. */
void sim_trace_choose(void);

/* Is this process tracing? */
bool sim_trace_wanted(void);

/* Under the lock: record that a kernel of `stream` ran from `start_ns` until now. */
void sim_trace_piece(struct sim_state *state, uint64_t stream, uint64_t start_ns, uint64_t label);

/* Append this process's pieces to its file. */
void sim_trace_drain(void);

/* Returns a label such as "kernel gemm", which serves as the name of an operation. It is valid until the process ends.
 * */
uint64_t sim_trace_label(const char *kind, const char *name);

#endif
