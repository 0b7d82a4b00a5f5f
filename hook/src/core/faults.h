/* Lost contexts: their driver calls fail permanently because a kernel faulted, the GPU failed, or the MPS server is
 * gone.
 *
 * Nothing runs in such a context any more, and no synchronising call will ever succeed. So the context's work counts as
 * complete (drained). Otherwise an hp process that continues would count as busy for ever. The program handles the
 * error itself.
 * The record page reports the error to the agent, which sees how many clients of the GPU have the same error (under
 * MPS, one client's fault ends all contexts). */
#ifndef ORION_FAULTS_H
#define ORION_FAULTS_H

#include <cuda.h>

struct orion_stream_record;
struct orion_process;

/* Called when a call for work of that stream record failed. Ignores errors after which the context still works. */
void orion_fault_seen(struct orion_process *process, struct orion_stream_record *stream_record, CUresult result);

#endif
