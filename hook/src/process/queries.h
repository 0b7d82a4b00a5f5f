/* Queries of streams and events, and parking. A process that has left the GPU's memory (parking/) makes no driver call: the driver stops
 * each one. Not so the queries, which it answers from memory and without a lock. That memory is gone then, so it ends the process by
 * SIGSEGV (driver 580; JAX's runtime polls its streams in threads of its own; it happens without Orion, too). So the hook
 * stops the queries itself: each thread waits until the process is back, as in every other call. */
#ifndef ORION_QUERIES_H
#define ORION_QUERIES_H

#include <stdbool.h>
#include <stdint.h>

struct orion_process;

/* Before and after a query by the program. Waits while the process is away. */
void orion_query_begin(struct orion_process *process);
void orion_query_end(struct orion_process *process);

/* Before a query by the hook. False: the process is leaving or away, so make none, and call no orion_query_end. */
bool orion_query_try(struct orion_process *process);

/* From now on no query begins, and none runs. False: one still ran at `until`, in ns of orion_now; then all may go on. */
bool orion_queries_stop(struct orion_process *process, uint64_t until);
void orion_queries_continue(struct orion_process *process);

#endif
