/* Lost contexts: driver calls that fail for good, since a kernel faulted, the GPU did, or the MPS server is gone.
 *
 * Nothing runs in such a context any more, and no synchronise will ever succeed again: its work counts as drained, or an
 * hp process that lives on would be busy for ever. The error itself is the program's to see; the record page tells the
 * agent, which sees how many clients of the GPU share the fate (under MPS one client's fault ends all contexts). */
#ifndef ORION_FAULTS_H
#define ORION_FAULTS_H

#include <cuda.h>
#include <stdbool.h>

struct orion_stream_record;
struct orion_process;

/* Whether a call that answers so will answer so for ever. */
bool orion_fault_is_final(CUresult result);

/* A call about that stream record's work failed; anything but a final fault is no business of this. */
void orion_fault_seen(struct orion_process *process, struct orion_stream_record *stream_record, CUresult result);

#endif
