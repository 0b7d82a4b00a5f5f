/* The first use of a GPU creates its state and starts its thread, which joins the slot. */
#ifndef ORION_JOINING_H
#define ORION_JOINING_H

#include <cuda.h>

struct orion_gpu;
struct orion_process;

/* The GPU's state, created at first use. NULL: no memory, or too many GPUs. */
struct orion_gpu *orion_gpu_of(CUdevice device);

/* The owner of streams (process.h) unless a scheduler of threads runs: the GPU's state, or NULL if it has no role.
 * Waits until the GPU's join is decided. */
struct orion_gpu *orion_owner_by_device(struct orion_process *process, CUstream stream, CUdevice device);

#endif
