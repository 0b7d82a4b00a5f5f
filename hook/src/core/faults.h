/* Lost contexts: their driver calls fail permanently because a kernel faulted, the GPU failed, or the MPS server is
 * gone.
 *
 * Nothing runs in such a context any more, and no synchronise will ever succeed. So its work counts as drained;
 * otherwise an hp process that lives on would be busy for ever. The program handles the error itself. The record page
 * reports the error to the agent, which sees how many clients of the GPU have it (under MPS, one client's fault ends
 * all contexts). */
#ifndef ORION_FAULTS_H
#define ORION_FAULTS_H

#include <cuda.h>
#include <stdbool.h>

struct orion_stream_record;
struct orion_process;

/* Whether every later call in the context will return such an error, too. */
bool orion_fault_is_final(CUresult result);

/* Called when a call for work of that stream record failed. Ignores results that are not final faults. */
void orion_fault_seen(struct orion_process *process, struct orion_stream_record *stream_record, CUresult result);

#endif
