/* The hook's thread: one small thread for each GPU that the process uses.
 *
 * It joins the slot, holds the client's `alive` word as a robust futex (so the kernel tells everyone of the process's
 * death, by whatever means, before the address space is torn down), ends lingers, keeps the neighbours mapped and comes
 * back after an agent's restart. It is started with the GPU's first context, not at load; all signals are blocked in it;
 * its descriptor table is its own, so a program that closes every descriptor does not cut it off. It makes no driver
 * call: the driver's descriptors are not its own (see drain.h). Others wake it by the notifier. */
#ifndef ORION_THREAD_H
#define ORION_THREAD_H

struct orion_gpu;
struct orion_process;

void orion_thread_start(struct orion_process *process, struct orion_gpu *gpu);

#endif
