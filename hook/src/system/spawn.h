/* Starts the hook's own threads in the program's process. */
#ifndef ORION_SPAWN_H
#define ORION_SPAWN_H

#include <stdatomic.h>
#include <stdint.h>

/* Starts a detached thread with a small stack, all signals blocked, and the CPUs that the process had when the hook was
 * loaded. Returns 0, or -1; does not change errno. */
int orion_thread_spawn(void *(*body)(void *), void *argument);

/* Does so if *runs is 0, which becomes 1. On failure it is 0 again, so that a later call tries again. */
int orion_thread_spawn_once(_Atomic uint32_t *runs, void *(*body)(void *), void *argument);

#endif
