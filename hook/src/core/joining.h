/* The first use of a GPU creates its state and starts its thread, which joins the slot. */
#ifndef ORION_JOINING_H
#define ORION_JOINING_H

#include <cuda.h>

struct orion_gpu;
struct orion_process;

/* The GPU's state, created at first use. NULL: no memory, or too many GPUs. */
struct orion_gpu *orion_gpu_of(CUdevice device);

/* The orion_owner function (process.h) while no scheduler of threads runs. Returns the GPU's state; NULL: the process
 * has no role on the GPU. Waits, for a bounded time, until the join has succeeded or failed. */
struct orion_gpu *orion_owner_by_device(struct orion_process *process, CUstream stream, CUdevice device);

#endif
