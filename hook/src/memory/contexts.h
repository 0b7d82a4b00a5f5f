/* Device memory that ends with a context: what cuMemAlloc, cuMemAllocPitch and cuMemAllocManaged allocate, and arrays, says the
 * documentation of cuCtxDestroy. Memory of cuMemCreate and of pools does not.
 *
 * The call that ends a context runs beside allocations of other threads, and a new context may get the same handle at once. So an entry notes
 * how many ends had begun when it was made, and an end gives back only entries that were there before it began. An allocation that returns
 * meanwhile counts on, until the next end of a context with this handle, or until the driver gives its address again. */
#ifndef ORION_CONTEXTS_H
#define ORION_CONTEXTS_H

#include <cuda.h>
#include <stdint.h>

struct orion_process;

/* The context with which memory ends that the thread has just allocated on the device: the current one; if that is a green context, the
 * primary context. NULL: not known. Without green contexts one look at the thread suffices. */
CUcontext orion_memory_context(struct orion_process *process, CUdevice device);
void orion_memory_has_green(struct orion_process *process); /* before the driver creates a green context of the program */

/* After the program has got the device's primary context. */
void orion_memory_primary_is(struct orion_process *process, CUdevice device, CUcontext context);

/* Before the driver's call. The other two come once the end is certain. */
uint32_t orion_memory_ending(struct orion_process *process);
void orion_memory_ended(struct orion_process *process, CUcontext context, uint32_t ending);
void orion_memory_primary_ended(struct orion_process *process, CUdevice device, uint32_t ending);

#endif
