/* Wrappers call these functions to make the identity of a launch from the handles in the driver call. */
#ifndef ORION_LAUNCHED_H
#define ORION_LAUNCHED_H

#include <cuda.h>

#include "learning/extent.h"
#include "learning/graphs.h"
#include "learning/identity.h"
#include "learning/kernels.h"
#include "process/process.h"

#define ORION_IDENTITY_UNMANAGED UINT64_C(1) /* a placeholder where nobody reads identities */

/* Only for graph nodes: ordinary launches leave their identity unread. */
static inline uint64_t orion_identity_kernel(const void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || !orion_graphs_are_read(process)) return ORION_IDENTITY_UNMANAGED;
    struct orion_kernel_key key = orion_kernel_key(orion_kernels(process), function);
    return orion_identity_shape(key.name, key.mark, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes);
}

/* Every part of the SMs that the driver makes can run clusters of this many blocks, which each GPU with clusters can run.
 * Larger ones need particular SMs, and the driver may refuse their launch (CUDA_ERROR_INVALID_CLUSTER_SIZE). */
#define ORION_CLUSTER_PORTABLE 8u

/* Whether a launch by attributes can run on fewer SMs. A cooperative launch cannot: its blocks must all run at once. */
static inline bool orion_may_move(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config->attrs != NULL && i < config->numAttrs; i++) {
        const CUlaunchAttributeValue *value = &config->attrs[i].value;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value->cooperative) return false;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
            (double)value->clusterDim.x * value->clusterDim.y * value->clusterDim.z > ORION_CLUSTER_PORTABLE)
            return false;
    }
    return true;
}

/* The identity of a graph node with its new parameters. This is a macro, because the structures of two ABIs have the
 * same members. */
#define orion_identity_kernel_node(node, kernel_function) \
    orion_identity_kernel((kernel_function), (node)->gridDimX, (node)->gridDimY, (node)->gridDimZ, (node)->blockDimX, \
                          (node)->blockDimY, (node)->blockDimZ, (node)->sharedMemBytes)

/* The parameters of a kernel node as the newer ABI passes them. */
#define orion_kernel_node_v2(node) \
    (&(CUDA_KERNEL_NODE_PARAMS_v2){.func = (node)->func, \
                                   .gridDimX = (node)->gridDimX, \
                                   .gridDimY = (node)->gridDimY, \
                                   .gridDimZ = (node)->gridDimZ, \
                                   .blockDimX = (node)->blockDimX, \
                                   .blockDimY = (node)->blockDimY, \
                                   .blockDimZ = (node)->blockDimZ, \
                                   .sharedMemBytes = (node)->sharedMemBytes, \
                                   .kernelParams = (node)->kernelParams, \
                                   .extra = (node)->extra})

/* The identity of a graph node with its new parameters, for any type of node. ORION_IDENTITY_NONE: the parameters of
 * this type do not affect GPU time. */
static inline uint64_t orion_identity_node(const CUgraphNodeParams *node)
{
    const void *function;
    switch ((int)node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        function = node->kernel.func != NULL ? (const void *)node->kernel.func : (const void *)node->kernel.kern;
        return orion_identity_kernel_node(&node->kernel, function);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return orion_copy_3d(&node->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: return orion_identity_memset_node(&node->memset);
    default: return ORION_IDENTITY_NONE;
    }
}

#endif
