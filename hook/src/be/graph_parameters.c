#include "be/graph_parameters.h"

#include <stdlib.h>
#include <string.h>

#include "be/argument_layout.h"
#include "be/graph_copies.h"
#include "be/kept_kernel.h"
#include "generated/driver.h"
#include "learning/extent.h"
#include "learning/graph_walk.h"
#include "learning/kernels.h"
#include "learning/launch.h"
#include "process/process.h"

/* -- Parameters that are kept ---------------------------------------------------------------------------------------- */

/* Not calloc, which does not use glibc's cache of each thread. */
static struct orion_kept *new_kept(const struct orion_layout *layout, size_t bytes)
{
    struct orion_kept *kept = malloc(sizeof *kept + bytes);
    if (kept == NULL) return NULL;
    memset(kept->bytes, 0, bytes);
    kept->layout = layout, kept->epoch = 0;
    return kept;
}

bool orion_keep_argument(unsigned char *kept, const void *argument, uint32_t size)
{
    if (memcmp(kept, argument, size) == 0) return false;
    memcpy(kept, argument, size);
    return true;
}

/* A kernel's parameters in one buffer: CUDA_KERNEL_NODE_PARAMS.extra. NULL: not in this form, or not all of them. */
static const void *buffer_of(void **extra, uint32_t bytes)
{
    const void *buffer = NULL;
    size_t size = 0;
    for (; extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *(const size_t *)extra[1];
        else return NULL;
    }
    return size >= bytes ? buffer : NULL;
}

/* A CUkernel without a context runs in the current one, which may be another one when the node gets its parameters. The driver ignores
 * the context beside a CUfunction. */
static CUcontext context_of(const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    CUcontext context = kernel->func == NULL ? kernel->ctx : NULL;
    if (kernel->func == NULL && context == NULL && orion_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return NULL;
    return context;
}

/* False: these parameters cannot be kept, and what was kept is as before. */
static bool keep_kernel(struct orion_process *process, struct orion_layout **layouts, struct orion_copy_node *node,
                        const CUDA_KERNEL_NODE_PARAMS *kernel, struct orion_setting *setting)
{
    struct orion_kept *kept = node->kept;
    const struct orion_layout *layout = orion_layout_of(process, layouts, kept != NULL ? kept->layout : NULL, kernel);
    const void *buffer = layout != NULL && kernel->kernelParams == NULL ? buffer_of(kernel->extra, layout->bytes) : NULL;
    bool given = kernel->kernelParams != NULL || kernel->extra != NULL;
    /* A driver that reports no parameters of a kernel that gets some does not know this kind of handle. */
    if (layout == NULL || given != (layout->count > 0) || (kernel->kernelParams == NULL && given && buffer == NULL)) return false;
    if (kept == NULL || kept->layout != layout) {
        kept = new_kept(layout, ORION_ARGUMENTS_AT + layout->bytes);
        if (kept == NULL) return false;
        free(node->kept);
        node->kept = kept;
        setting->differs = true;
    }
    CUDA_KERNEL_NODE_PARAMS *before = orion_kept_kernel(kept);
    setting->reshaped = !orion_same_shape(before, kernel) || kept->epoch != layout->epoch;
    kept->epoch = layout->epoch;
    CUcontext context = context_of(kernel);
    setting->differs |= setting->reshaped || before->ctx != context;
    if (setting->differs) *before = *kernel, before->ctx = context;
    if (buffer != NULL) setting->differs |= orion_keep_argument(kept->bytes + ORION_ARGUMENTS_AT, buffer, layout->bytes);
    else setting->differs |= orion_keep_arguments(kept, kernel->kernelParams);
    return true;
}

static size_t size_of(CUgraphNodeType type)
{
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY: return sizeof(CUDA_MEMCPY3D);
    case CU_GRAPH_NODE_TYPE_MEMSET: return sizeof(CUDA_MEMSET_NODE_PARAMS);
    case CU_GRAPH_NODE_TYPE_HOST: return sizeof(CUDA_HOST_NODE_PARAMS);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return sizeof(CUevent);
    default: return 0;
    }
}

static bool keep(struct orion_process *process, struct orion_layout **layouts, struct orion_copy_node *node, const void *parameters,
                 struct orion_setting *setting)
{
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) return keep_kernel(process, layouts, node, parameters, setting);
    size_t size = size_of(node->type);
    if (size == 0) return false;
    setting->differs = node->kept == NULL;
    if (node->kept == NULL && (node->kept = new_kept(NULL, size)) == NULL) return false;
    setting->differs |= memcmp(node->kept->bytes, parameters, size) != 0;
    setting->reshaped = setting->differs;
    memcpy(node->kept->bytes, parameters, size);
    return true;
}

/* -- The driver ------------------------------------------------------------------------------------------------------ */

union parameters {
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY3D box;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
    CUevent event;
};

#define CALLED(name, ...) (orion_driver.name != NULL && orion_driver.name(__VA_ARGS__) == CUDA_SUCCESS)

static bool read(CUgraphNodeType type, CUgraphNode from, union parameters *into)
{
    CUgraphNodeType of_node;
    switch ((int)type) { /* each of these functions refuses a node of another type */
    case CU_GRAPH_NODE_TYPE_KERNEL: return CALLED(cuGraphKernelNodeGetParams_v2, from, &into->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return CALLED(cuGraphMemcpyNodeGetParams, from, &into->box);
    case CU_GRAPH_NODE_TYPE_MEMSET: return CALLED(cuGraphMemsetNodeGetParams, from, &into->set);
    case CU_GRAPH_NODE_TYPE_HOST: return CALLED(cuGraphHostNodeGetParams, from, &into->host);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return CALLED(cuGraphBatchMemOpNodeGetParams, from, &into->batch);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return CALLED(cuGraphEventRecordNodeGetEvent, from, &into->event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return CALLED(cuGraphEventWaitNodeGetEvent, from, &into->event);
    case CU_GRAPH_NODE_TYPE_EMPTY: return CALLED(cuGraphNodeGetType, from, &of_node) && of_node == type;
    default: return false;
    }
}

static bool give(CUgraphNodeType type, CUgraphNode to, const void *parameters)
{
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return CALLED(cuGraphKernelNodeSetParams_v2, to, parameters);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return CALLED(cuGraphMemcpyNodeSetParams, to, parameters);
    case CU_GRAPH_NODE_TYPE_MEMSET: return CALLED(cuGraphMemsetNodeSetParams, to, parameters);
    case CU_GRAPH_NODE_TYPE_HOST: return CALLED(cuGraphHostNodeSetParams, to, parameters);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return CALLED(cuGraphBatchMemOpNodeSetParams, to, parameters);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return CALLED(cuGraphEventRecordNodeSetEvent, to, *(const CUevent *)parameters);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return CALLED(cuGraphEventWaitNodeSetEvent, to, *(const CUevent *)parameters);
    default: return false;
    }
}

/* What is kept of a kernel, in the driver's form. */
static CUDA_KERNEL_NODE_PARAMS kept_kernel(struct orion_kept *kept, void **arguments)
{
    CUDA_KERNEL_NODE_PARAMS kernel = *orion_kept_kernel(kept);
    const struct orion_layout *layout = kept->layout;
    for (uint32_t i = 0; i < layout->count; i++) arguments[i] = kept->bytes + ORION_ARGUMENTS_AT + layout->argument[i].offset;
    kernel.kernelParams = layout->count > 0 ? arguments : NULL;
    kernel.extra = NULL;
    return kernel;
}

bool orion_parameters_give(const struct orion_copy_node *node)
{
    void *arguments[ORION_ARGUMENTS_MOST];
    if (node->type != CU_GRAPH_NODE_TYPE_KERNEL) return give(node->type, node->own, node->kept->bytes);
    CUDA_KERNEL_NODE_PARAMS kernel = kept_kernel(node->kept, arguments);
    return give(node->type, node->own, &kernel);
}

bool orion_parameters_give_exec(CUgraphExec exec, const struct orion_copy_node *node)
{
    void *arguments[ORION_ARGUMENTS_MOST];
    CUDA_KERNEL_NODE_PARAMS kernel = kept_kernel(node->kept, arguments);
    return CALLED(cuGraphExecKernelNodeSetParams_v2, exec, node->own, &kernel);
}

/* -- Setting --------------------------------------------------------------------------------------------------------- */

static uint64_t identity_of_kernel(struct orion_process *process, const CUDA_KERNEL_NODE_PARAMS *kernel, bool *collective)
{
    struct orion_launch launch = orion_launch_of_node(kernel);
    uint64_t identity = orion_launch_identity(process, &launch);
    *collective = orion_kernel_is_collective(orion_kernels(process), launch.function);
    return identity;
}

uint64_t orion_parameters_identity(struct orion_process *process, CUgraphNodeType type, const void *parameters, bool *collective)
{
    *collective = false;
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return identity_of_kernel(process, parameters, collective);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return orion_copy_3d((const CUDA_MEMCPY3D *)parameters);
    case CU_GRAPH_NODE_TYPE_MEMSET: return orion_identity_memset_node((const CUDA_MEMSET_NODE_PARAMS *)parameters);
    default: return ORION_IDENTITY_NONE;
    }
}

struct orion_setting orion_parameters_set(struct orion_process *process, struct orion_layout **layouts,
                                          struct orion_copy_node *node, const void *parameters)
{
    struct orion_setting setting = {0};
    if (!keep(process, layouts, node, parameters, &setting)) {
        free(node->kept);
        node->kept = NULL;
        node->behind = node->due = false;
        setting = (struct orion_setting){.failed = !give(node->type, node->own, parameters), .differs = true, .reshaped = true};
    }
    if (node->kept != NULL && setting.differs) node->behind = true;
    uint64_t identity = ORION_IDENTITY_NONE;
    if (setting.reshaped) identity = orion_parameters_identity(process, node->type, parameters, &setting.collective);
    uint64_t part = identity != ORION_IDENTITY_NONE ? orion_graph_part(identity) : node->part;
    setting.reshaped = part != node->part;
    setting.local = orion_identity_is_local(identity);
    node->part = part;
    node->due |= setting.differs && node->kept != NULL && node->type == CU_GRAPH_NODE_TYPE_KERNEL;
    return setting;
}

/* A kernel that an update puts into a node may need clusters of another shape. */
static bool are_clusters_alike(struct orion_copy_node *node, CUgraphNode from)
{
    const CUlaunchAttributeID shapes[] = {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION};
    node->no_clusters = true;
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CUlaunchAttributeValue mine = {0}, other = {0}; /* both shapes have the same place */
        if (CALLED(cuGraphKernelNodeGetAttribute, node->own, shapes[i], &mine) !=
                CALLED(cuGraphKernelNodeGetAttribute, from, shapes[i], &other) ||
            memcmp(&mine.clusterDim, &other.clusterDim, sizeof mine.clusterDim) != 0)
            return node->no_clusters = false;
        if (orion_blocks_of_cluster(&mine) > 1) node->no_clusters = false;
    }
    return true;
}

struct orion_setting orion_parameters_follow(struct orion_process *process, struct orion_layout **layouts,
                                             struct orion_copy_node *node, CUgraphNode from)
{
    union parameters parameters;
    if (!read(node->type, from, &parameters)) return (struct orion_setting){.failed = true};
    if (node->type == CU_GRAPH_NODE_TYPE_EMPTY) return (struct orion_setting){0};
    /* Before the parameters are kept: a later update with the same ones must not pass as one of arguments only. */
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL && !are_clusters_alike(node, from)) return (struct orion_setting){.failed = true};
    return orion_parameters_set(process, layouts, node, &parameters);
}
