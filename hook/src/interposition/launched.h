/* What wrappers make of the arguments of driver calls. */
#ifndef ORION_LAUNCHED_H
#define ORION_LAUNCHED_H

#include <cuda.h>

#include <stdbool.h>

#include "be/graph_updates.h"
#include "core/core.h"
#include "learning/kernels.h"

/* Whether a launch by attributes can run on fewer SMs. A cooperative launch cannot: its blocks must all run at once. */
static inline bool orion_may_move(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config->attrs != NULL && i < config->numAttrs; i++) {
        const CUlaunchAttributeValue *value = &config->attrs[i].value;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value->cooperative) return false;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && orion_blocks_of_cluster(value) > ORION_CLUSTER_PORTABLE)
            return false;
    }
    return true;
}

/* Notes what an attribute of a kernel changes for later calls. */
static inline void orion_attribute_set(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && orion_blocks_of_cluster(value) > 1) orion_graph_clusters_begin();
    if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE && value->deviceUpdatableKernelNode.deviceUpdatable)
        orion_graph_device_updates_begin();
}

/* Notes the events that a launch records, and its clusters, which a capture puts into a graph. True: the launch sets its priority. */
static inline bool orion_launch_noted(const CUlaunchConfig *config)
{
    bool sets_priority = false;
    for (unsigned i = 0; config->attrs != NULL && i < config->numAttrs; i++) {
        const CUlaunchAttributeValue *value = &config->attrs[i].value;
        orion_attribute_set(config->attrs[i].id, value);
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) orion_event_elsewhere(value->programmaticEvent.event);
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            orion_event_elsewhere(value->launchCompletionEvent.event);
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY) sets_priority = true;
    }
    return sets_priority;
}

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

#endif
