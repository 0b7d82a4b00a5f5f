/* What a call launches: a kernel (`function`, a CUfunction or a CUkernel) or an executable graph. All members are 0 for
 * other work. */
#ifndef ORION_LAUNCH_H
#define ORION_LAUNCH_H

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

/* Computes the identity of a launch. The wrappers do not compute it, because hp's launches rarely need it. */
static inline uint64_t orion_launch_identity(struct orion_process *process, const struct orion_launch *launch)
{
    if (launch->graph != NULL) return orion_graph_identity(orion_graphs(process), launch->graph);
    struct orion_kernel_key key = orion_kernel_key(orion_kernels(process), launch->function);
    return orion_identity_shape(key.name, key.mark, launch->grid_x, launch->grid_y, launch->grid_z, launch->block_x,
                                launch->block_y, launch->block_z, launch->shared_bytes);
}

#endif
