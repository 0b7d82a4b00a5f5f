/* Overlap: whether a be launch may run beside a busy hp, where contexts run together (MPS, threads of one process).
 *
 * hp's owner has granted a budget, and hp gives leave by it (budget.h). Within that leave the launch has to be of a kind
 * that pays: of known duration; not short of memory bandwidth when hp's own kernels are; and not something that would
 * fill the GPU: kernels run on a part of the SMs (partition.h); what cannot be moved there (a graph, whose kernels ignore the
 * stream's partition: measured on an H200; a copy; a kernel of a context that is not the primary one) only if it is shorter
 * than the window. */
#ifndef ORION_OVERLAP_H
#define ORION_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "be/stop.h"

struct orion_gpu;
struct orion_stream_record;
struct orion_process;
struct orion_work;

/* Whether the launch, of that expected time on the whole GPU (0: unknown), may run beside the hp clients that are busy. */
bool orion_overlap_allows(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                          uint64_t expected_ns);

/* Whether any be work at all may run beside the hp clients that are busy: hp's owner has granted a budget, and they give leave. */
bool orion_overlap_gives_permission(const struct orion_gpu *gpu);

/* How much be work may be in flight while hp is idle, given that an arriving hp can share the GPU with what is left of
 * it: a small part of what hp's busy periods usually last, and at least the share of the window. */
uint64_t orion_overlap_reach(const struct orion_gpu *gpu, uint64_t share_ns);

/* Whether a kernel should leave SMs to hp although hp is idle: it would hold them all for too long. */
bool orion_overlap_spares(const struct orion_gpu *gpu, const struct orion_work *work, uint64_t expected_ns);

/* hp: tells be what is being launched, so that be can choose what goes with it. */
void orion_overlap_tell(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work);

/* The stop of a GPU's hp where contexts run together. It arms nothing: what is queued behind the valve could not be moved to
 * a partition any more when hp comes and permits it. */
extern const struct orion_stop orion_overlap_stop;

#endif
