/* Overlap: whether a be launch may run beside a busy hp, where contexts run together (MPS, threads of one process).
 *
 * A be launch may do so only if all these conditions hold. hp's owner has granted a budget. hp's process permits
 * overlap now, within that budget (budget.h). The launch's duration is known. Memory bandwidth does not limit both the
 * launch and hp's kernels. The launch does not fill the GPU, because the hook moves kernels to a part of the SMs
 * (partition.h). The hook cannot move graphs (their kernels ignore the stream's partition: measured on an H200), unless a
 * piece is one kernel (lone_kernel.h). Nor can it move copies, kernels whose blocks may wait for each other, and kernels of
 * a context that is not the primary one. Such work must fit into the client's share of the window. */
#ifndef ORION_OVERLAP_H
#define ORION_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "be/stop.h"

struct orion_gpu;
struct orion_stream_record;
struct orion_process;
struct orion_work;

/* Whether the hook may run the launch on fewer SMs than the program gave it: see partition.h. */
bool orion_overlap_may_move(struct orion_process *process, const struct orion_work *work);

/* Whether any be work may run beside the hp clients that are busy: a budget is granted, and each of them permits
 * overlap now. */
bool orion_overlap_is_permitted(const struct orion_gpu *gpu);

/* How much of the client's work may be in flight while hp is idle. An arriving hp shares the GPU with all be work until that is
 * complete. So the limit is a small part of hp's typical busy period, divided among the clients as the window is, and at least the
 * client's share of the window. */
uint64_t orion_overlap_limit(const struct orion_gpu *gpu, uint64_t share_ns);

/* Whether a kernel should run on a part of the SMs although hp is idle, because the kernel would occupy all SMs for too
 * long. */
bool orion_overlap_leaves_sms(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work,
                              uint64_t expected_ns);

/* Called by hp: publishes the launch, so that be can choose what runs beside it. */
void orion_overlap_publish(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work);

/* What makes be launches wait while a GPU's hp is busy, where contexts run together (struct orion_stop, be/stop.h). The
 * launching thread waits on the CPU, and streams get no wait: if work waited in a stream when hp
 * arrives and permits overlap, the hook could no longer move that work to a partition. */
extern const struct orion_stop orion_overlap_stop;

#endif
