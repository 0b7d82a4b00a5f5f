/* Where the arguments of a kernel lie, as the driver reports it since CUDA 12.4 (cuFuncGetParamInfo). Asked once for each
 * kernel of a graph. */
#ifndef ORION_ARGUMENT_LAYOUT_H
#define ORION_ARGUMENT_LAYOUT_H

#include <cuda.h>
#include <stdint.h>

struct orion_process;

#define ORION_ARGUMENTS_MOST 256u

struct orion_argument { uint32_t offset, size; };

/* A list, the newest layout first. It belongs to a copy of a graph. */
struct orion_layout {
    struct orion_layout *next;
    const void *function;
    uint32_t epoch; /* of struct orion_kernels: after code was unloaded, the handle may name another kernel */
    uint32_t count, bytes;
    struct orion_argument argument[];
};

/* The layout of the kernel; NULL: unknown. before: that of the node's last kernel, or NULL. */
const struct orion_layout *orion_layout_of(struct orion_process *process, struct orion_layout **layouts,
                                           const struct orion_layout *before, const CUDA_KERNEL_NODE_PARAMS *kernel);
void orion_layouts_free(struct orion_layout *layouts);

#endif
