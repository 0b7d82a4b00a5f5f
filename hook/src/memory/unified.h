/* Device memory that moves: in a slot whose grant says `unified`, the hook turns what the program allocates by cuMemAlloc and
 * cuMemAllocPitch into managed memory that prefers the GPU. NVIDIA's driver moves its pages to the host when others need the
 * room, and back when a kernel touches them.
 *
 * What the driver keeps on the GPU counts as resident: pools, memory of graphs, VMM, arrays and, as managed memory cannot be shared, what
 * other processes get. In such a slot a process may have no more of that than the slot is sure of, its request, because nobody
 * can take it back (account.c). Each process has this bound for itself, unlike the limit.
 *
 * On a real GPU the memory must fit (ORION_UNIFIED_WITHIN): an allocation for which the GPU has too little free is refused, and the
 * pages come at once, so that the next allocation sees them. Managed memory beyond the GPU makes every kernel wait for pages, and
 * has hung hosts. The simulated GPU pays for it with time only (ORION_UNIFIED_BEYOND).
 *
 * Before each turn of the slot a thread of the hook, the pager, has the pages come to the GPU (pager.h).
 *
 * Rejected: VMM that the hook unmaps and maps again (the program's kernels would fault where managed memory waits); to turn
 * pools into managed memory (the driver has managed pools from CUDA 13 on only, and programs ask for the pools of a device). */
#ifndef ORION_UNIFIED_H
#define ORION_UNIFIED_H

#include "memory/memory.h"

/* The kind of what cuMemAlloc and cuMemAllocPitch allocate on the device. Waits until the join has succeeded or failed. */
enum orion_memory_kind orion_unified_kind(CUdevice device);

/* In the place of these two functions, for ORION_MEMORY_UNIFIED. */
CUresult orion_unified_allocate(CUdevice device, CUdeviceptr *at, size_t bytes);
CUresult orion_unified_allocate_rows(CUdevice device, CUdeviceptr *at, size_t *pitch, size_t width, size_t height);

/* Whether the second one allocates what cuMemAllocPitch would, so that the driver need not say what is wrong. */
static inline bool orion_unified_is_rows(const size_t *pitch, size_t width, size_t height, unsigned element)
{
    return pitch != NULL && width != 0 && height != 0 && (element == 4 || element == 8 || element == 16);
}

#endif
