/* The notifier wakes a GPU's thread, and starts the thread again if it has died.
 *
 * Upper layers define what the thread does (agent/thread.h). They pass its body once, when they start it. */
#ifndef ORION_NOTIFIER_H
#define ORION_NOTIFIER_H

#include <stdint.h>

struct orion_gpu;
struct orion_process;

/* Starts the GPU's thread unless it runs. If the thread cannot be created, the GPU stays unmanaged. */
void orion_notifier_start(struct orion_process *process, struct orion_gpu *gpu, void *(*body)(void *gpu));

/* Makes the GPU's thread run at `when` (CLOCK_MONOTONIC ns) at the latest. Makes a system call only if the thread would
 * sleep longer. Also does what orion_thread_revive does. */
void orion_thread_wake_by(struct orion_gpu *gpu, uint64_t when);

/* Starts the GPU's thread again if it has died while the process lives on. Some programs end threads that they do not
 * know. */
void orion_thread_revive(struct orion_gpu *gpu);

#endif
