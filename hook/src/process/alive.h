/* The `alive` word: a robust futex in the busy page. The GPU's thread holds the futex while the process lives.
 *
 * When the thread ends for any reason, the kernel marks the futex (FUTEX_OWNER_DIED). The kernel does this before it
 * frees the address space. Rejected: a pthread robust mutex (it puts pointers into the page); a file lock or the end of
 * a socket (a process with gigabytes of resident memory releases these up to a second later, a forked child keeps them,
 * and closing a descriptor drops them). */
#ifndef ORION_ALIVE_H
#define ORION_ALIVE_H

#include <stdbool.h>

struct orion_gpu;

void orion_alive_hold(struct orion_gpu *gpu); /* only the GPU's thread may call this */
bool orion_alive_is_held(const struct orion_gpu *gpu);

#endif
