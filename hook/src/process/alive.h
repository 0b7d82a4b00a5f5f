/* The `alive` word: a robust futex in the busy page, held by the GPU's thread for as long as the process lives.
 *
 * The kernel marks it (FUTEX_OWNER_DIED) when the thread ends, by whatever means, before the address space is torn
 * down. Refused: a pthread robust mutex (it puts pointers into the page), a file lock or a socket's end (a process with
 * gigabytes resident takes up to a second to get there, a forked child keeps them, a closed descriptor drops them). */
#ifndef ORION_ALIVE_H
#define ORION_ALIVE_H

#include <stdbool.h>

struct orion_gpu;

void orion_alive_hold(struct orion_gpu *gpu); /* by the GPU's thread, and only by it */
bool orion_alive_is_held(const struct orion_gpu *gpu);

#endif
