/* The notifier: whoever needs a GPU's thread wakes it here, and starts it again if it has died.
 *
 * What the thread does is the business of upper layers (agent/thread.h): they give its body once, when they start it. */
#ifndef ORION_NOTIFIER_H
#define ORION_NOTIFIER_H

#include <stdint.h>

struct orion_gpu;
struct orion_process;

/* Starts the GPU's thread unless it runs. Where no thread is to be had, the GPU stays unmanaged. */
void orion_notifier_start(struct orion_process *process, struct orion_gpu *gpu, void *(*body)(void *gpu));

/* Makes the GPU's thread look by `when` (CLOCK_MONOTONIC ns); a system call only if it would sleep longer. Starts the
 * thread again if it alone has died. */
void orion_thread_wake_by(struct orion_gpu *gpu, uint64_t when);

/* Starts the GPU's thread again if it alone has died (a program that ends threads it does not know). */
void orion_thread_revive(struct orion_gpu *gpu);

#endif
