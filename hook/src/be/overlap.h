/* Overlap: whether a be launch may run beside a busy hp, where contexts run together (MPS, threads of one process).
 *
 * hp's owner has granted a budget, and hp's process permits overlap within it (budget.h). The launch must also be of a
 * kind that pays. Its duration must be known. It must not be short of memory bandwidth while hp's kernels are. It must
 * not fill the GPU: kernels run on a part of the SMs (partition.h). Work that cannot be moved there must be shorter
 * than the window: a graph (its kernels ignore the stream's partition: measured on an H200), a copy, a kernel of a
 * context that is not the primary one. */
#ifndef ORION_OVERLAP_H
#define ORION_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "be/stop.h"

struct orion_gpu;
struct orion_stream_record;
struct orion_process;
struct orion_work;

/* Whether the launch may run beside the hp clients that are busy. expected_ns: its time on the whole GPU, 0:
 * unknown. */
bool orion_overlap_allows(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                          uint64_t expected_ns);

/* Whether any be work may run beside the hp clients that are busy: a budget is granted, and each of them permits
 * overlap now. */
bool orion_overlap_is_permitted(const struct orion_gpu *gpu);

/* How much be work may be in flight while hp is idle. An arriving hp can share the GPU with the rest of it. So this is
 * a small part of hp's typical busy period, and at least the share of the window. */
uint64_t orion_overlap_limit(const struct orion_gpu *gpu, uint64_t share_ns);

/* Whether a kernel should leave SMs to hp although hp is idle, because it would occupy all of them for too long. */
bool orion_overlap_leaves_sms(const struct orion_gpu *gpu, const struct orion_work *work, uint64_t expected_ns);

/* Called by hp: publishes the launch, so that be can choose what runs beside it. */
void orion_overlap_publish(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work);

/* The stop of a GPU's hp where contexts run together. It arms nothing: work that is queued behind the valve could not
 * be moved to a partition any more when hp comes and permits overlap. */
extern const struct orion_stop orion_overlap_stop;

#endif
