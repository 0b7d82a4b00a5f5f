/* What a call launches: a kernel (`function`, a CUfunction or a CUkernel) or an executable graph. All members are 0 for
 * other work. */
#ifndef ORION_LAUNCH_H
#define ORION_LAUNCH_H

#include <cuda.h>
#include <stdint.h>

#include "learning/graphs.h"
#include "learning/identity.h"
#include "learning/kernels.h"

struct orion_launch {
    const void *function, *graph;
    uint32_t grid_x, grid_y, grid_z;
    uint32_t block_x, block_y, block_z;
    uint32_t shared_bytes; /* dynamic */
};

/* The driver reads a node's `kern` only where there is no `func`. */
static inline const void *orion_function_of_node(const CUDA_KERNEL_NODE_PARAMS *node)
{
    return node->func != NULL ? (const void *)node->func : (const void *)node->kern;
}

static inline struct orion_launch orion_launch_of_node(const CUDA_KERNEL_NODE_PARAMS *node)
{
    return (struct orion_launch){
        .function = orion_function_of_node(node),
        .grid_x = node->gridDimX,
        .grid_y = node->gridDimY,
        .grid_z = node->gridDimZ,
        .block_x = node->blockDimX,
        .block_y = node->blockDimY,
        .block_z = node->blockDimZ,
        .shared_bytes = node->sharedMemBytes,
    };
}

static inline uint64_t orion_launch_identity_of(struct orion_kernel_key key, const struct orion_launch *launch)
{
    return orion_identity_shape(key.name, key.mark, launch->grid_x, launch->grid_y, launch->grid_z, launch->block_x,
                                launch->block_y, launch->block_z, launch->shared_bytes);
}

/* Computes the identity of a launch. The wrappers do not compute it, because hp's launches rarely need it. */
static inline uint64_t orion_launch_identity(struct orion_process *process, const struct orion_launch *launch)
{
    if (launch->graph != NULL) return orion_graph_identity(orion_graphs(process), launch->graph);
    return orion_launch_identity_of(orion_kernel_key(orion_kernels(process), launch->function), launch);
}

#endif
