/* The hook's thread: one small thread for each GPU that the process uses.
 *
 * It joins the slot and keeps the busy pages of the neighbours mapped. It ends lingers, and it joins again after an
 * agent's restart. It holds the client's `alive` word as a robust futex: when the process dies for any reason, the
 * kernel marks the word before it tears down the address space.
 *
 * The thread starts with the GPU's first context, not when the library is loaded. It blocks all signals. It has its own
 * descriptor table, so a program that closes all its descriptors does not close those of the thread. It makes no driver
 * call, because the driver's descriptors are not in that table (see drain.h). Other threads wake it through the
 * notifier. */
#ifndef ORION_THREAD_H
#define ORION_THREAD_H

struct orion_gpu;
struct orion_process;

void orion_thread_start(struct orion_process *process, struct orion_gpu *gpu);

#endif
