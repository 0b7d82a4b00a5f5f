#include "be/lone_kernel.h"

#include "be/graph_cut.h"
#include "be/graph_lengths.h"
#include "be/window.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "learning/graph_walk.h"
#include "learning/kernels.h"
#include "learning/launch.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "streams/capture.h"
#include "streams/stream_records.h"

#define DEPTH_MOST 8u /* of child graphs within child graphs */

bool orion_lone_kernels_matter(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    CUcontext current = NULL;
    if (atomic_load(&orion_graph_copies(process)->some) & ORION_SOME_BY_DEVICE) return false;
    return stream_record != NULL && stream_record->green == NULL && orion_policy_overlaps(stream_record->gpu) &&
           orion_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == stream_record->context;
}

/* The node itself, or the only node of the child graph that it is. NULL: there are several. */
static CUgraphNode innermost(CUgraphNode node)
{
    CUgraphNodeType type;
    for (unsigned depth = 0; depth < DEPTH_MOST; depth++) {
        CUgraph child;
        size_t count = 0;
        if (orion_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return NULL;
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) return node;
        if (type != CU_GRAPH_NODE_TYPE_GRAPH || !orion_graph_child(node, &child) ||
            orion_driver.cuGraphGetNodes(child, NULL, &count) != CUDA_SUCCESS || count != 1 ||
            orion_driver.cuGraphGetNodes(child, &node, &count) != CUDA_SUCCESS)
            return NULL;
    }
    return NULL;
}

/* Without the attributes below, a launch by cuLaunchKernel does the same as the node. Other attributes affect only time. */
static bool is_plain(CUgraphNode node)
{
    CUlaunchAttributeValue cooperative = {0}, cluster = {0};
    if (orion_driver.cuGraphKernelNodeGetAttribute == NULL) return false;
    if (orion_driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative) != CUDA_SUCCESS ||
        orion_driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster) != CUDA_SUCCESS)
        return false;
    return cooperative.cooperative == 0 && orion_blocks_of_cluster(&cluster) <= 1;
}

static void find(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    CUgraphNode node = piece->count == 1 ? innermost(copy->node[piece->first].own) : NULL;
    piece->lone = node != NULL && is_plain(node) ? node : NULL;
    piece->searched = true;
}

static bool read(const struct orion_graph_copy *copy, struct orion_piece *piece, CUDA_KERNEL_NODE_PARAMS *kernel)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    if (!piece->searched) find(copy, piece);
    bool done = piece->lone != NULL && !copy->node[piece->first].disabled && orion_piece_settle(copy, piece) &&
                orion_driver.cuGraphKernelNodeGetParams_v2 != NULL &&
                orion_driver.cuGraphKernelNodeGetParams_v2(piece->lone, kernel) == CUDA_SUCCESS;
    orion_capture_unrelax(&relaxed);
    return done;
}

/* What fits into the window stays an executable, so that the durations of all pieces are learnt (graph_lengths.h). What the kernel
 * has taken as a kernel counts more than an estimate of the piece. */
static bool is_long(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_piece *piece,
                    const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    struct orion_launch launch = orion_launch_of_node(kernel);
    struct orion_kernel_facts facts = {0};
    orion_kernel_facts(orion_durations(process), orion_launch_identity(process, &launch), &facts);
    uint64_t expected = facts.expected_ns != 0 ? facts.expected_ns : orion_length_of(process, piece->exec);
    return expected > orion_window_share(gpu);
}

bool orion_lone_kernel_of(struct orion_process *process, const struct orion_stream_record *stream_record,
                          const struct orion_graph_copy *copy, struct orion_piece *piece, CUDA_KERNEL_NODE_PARAMS *kernel)
{
    return read(copy, piece, kernel) && (kernel->ctx == NULL || kernel->ctx == stream_record->context) &&
           is_long(process, stream_record->gpu, piece, kernel);
}

void orion_lone_kernel_refused(struct orion_piece *piece) { piece->lone = NULL; }
