/* Nodes by kind: adds them, and reads and changes what they do. */
#include <string.h>

#include "capture.h"
#include "copy.h"
#include "graph_calls.h"

static CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    void *gathered[SIM_PARAMETERS];
    struct sim_launch launch = {sim_kernel(parameters->func ? (void *)parameters->func : (void *)parameters->kern),
                                {parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ},
                                {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ},
                                parameters->sharedMemBytes,
                                true};
    SIM_REFUSE(!launch.kernel, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_check_shape(launch.kernel, launch.grid, launch.block, launch.shared));
    SIM_TRY(sim_gather_parameters(launch.kernel, parameters->kernelParams, parameters->extra, gathered));
    return sim_node_set_kernel(node, &launch, gathered);
}

static CUresult set_box(CUgraphNode node, const CUDA_MEMCPY3D *box)
{
    SIM_REFUSE(!box->WidthInBytes || !box->Height || !box->Depth, CUDA_ERROR_INVALID_VALUE);
    node->box = *box;
    return CUDA_SUCCESS;
}

static CUresult set_memset(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set)
{
    SIM_REFUSE(set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!set->dst || !set->width || !set->height, CUDA_ERROR_INVALID_VALUE);
    node->set = *set;
    return CUDA_SUCCESS;
}

static CUresult set_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host)
{
    SIM_REFUSE(!host->fn, CUDA_ERROR_INVALID_VALUE);
    node->host = *host;
    return CUDA_SUCCESS;
}

static CUresult set_event(CUgraphNode node, CUevent event)
{
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    node->event = event;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                         const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    ADD(KERNEL, set_kernel(node, parameters));
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      const CUDA_MEMCPY3D *box, CUcontext context)
{
    (void)context;
    SIM_REFUSE(!box, CUDA_ERROR_INVALID_VALUE);
    ADD(MEMCPY, set_box(node, box));
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
{
    (void)context;
    SIM_REFUSE(!set, CUDA_ERROR_INVALID_VALUE);
    ADD(MEMSET, set_memset(node, set));
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                    const CUDA_HOST_NODE_PARAMS *host)
{
    SIM_REFUSE(!host, CUDA_ERROR_INVALID_VALUE);
    ADD(HOST, set_host(node, host));
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    ADD(EMPTY, CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                           CUevent event)
{
    ADD(EVENT_RECORD, set_event(node, event));
}

CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                         CUevent event)
{
    ADD(WAIT_EVENT, set_event(node, event));
}

static CUresult set_child(CUgraphNode node, CUgraph child)
{
    struct CUgraphNode_st like = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child};
    return sim_node_set_like(node, &like);
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                          CUgraph child)
{
    SIM_REFUSE(!sim_graph_is(child) || child == graph, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(sim_graph_is_single(child), CUDA_ERROR_NOT_SUPPORTED);
    ADD(GRAPH, set_child(node, child));
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                   size_t count, CUgraphNodeParams *parameters)
{
    (void)edges;
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel;
        memcpy(&kernel, &parameters->kernel, sizeof kernel); /* the structure of v3 begins with the fields of v2 */
        return cuGraphAddKernelNode_v2(made, graph, dependencies, count, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(made, graph, dependencies, count, &parameters->memcpy.copyParams, NULL);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set;
        memcpy(&set, &parameters->memset, sizeof set);
        return cuGraphAddMemsetNode(made, graph, dependencies, count, &set, NULL);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = {parameters->host.fn, parameters->host.userData};
        return cuGraphAddHostNode(made, graph, dependencies, count, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: return cuGraphAddChildGraphNode(made, graph, dependencies, count, parameters->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: return cuGraphAddEmptyNode(made, graph, dependencies, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(made, graph, dependencies, count, parameters->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(made, graph, dependencies, count, parameters->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
        memcpy(&batch, &parameters->memOp, sizeof batch);
        return cuGraphAddBatchMemOpNode(made, graph, dependencies, count, &batch);
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        memcpy(&alloc, &parameters->alloc, sizeof alloc);
        CUresult result = cuGraphAddMemAllocNode(made, graph, dependencies, count, &alloc);
        parameters->alloc.dptr = alloc.dptr;
        return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return cuGraphAddMemFreeNode(made, graph, dependencies, count, parameters->free.dptr);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: ADD(CONDITIONAL, sim_node_set_condition(node, &parameters->conditional));
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *parameters)
{
    NODE(node, CU_GRAPH_NODE_TYPE_KERNEL, parameters);
    const struct sim_launch *launch = &node->call.launch;
    memset(parameters, 0, sizeof *parameters);
    parameters->func = (CUfunction)launch->kernel;
    parameters->gridDimX = launch->grid[0], parameters->gridDimY = launch->grid[1];
    parameters->gridDimZ = launch->grid[2];
    parameters->blockDimX = launch->block[0], parameters->blockDimY = launch->block[1];
    parameters->blockDimZ = launch->block[2];
    parameters->sharedMemBytes = launch->shared;
    parameters->kernelParams = node->call.parameters;
    return CUDA_SUCCESS;
}

SETS(cuGraphKernelNodeSetParams_v2, KERNEL, CUDA_KERNEL_NODE_PARAMS, set_kernel)
GETS(cuGraphMemcpyNodeGetParams, MEMCPY, CUDA_MEMCPY3D, box)
SETS(cuGraphMemcpyNodeSetParams, MEMCPY, CUDA_MEMCPY3D, set_box)
GETS(cuGraphMemsetNodeGetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, set)
SETS(cuGraphMemsetNodeSetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, set_memset)
GETS(cuGraphHostNodeGetParams, HOST, CUDA_HOST_NODE_PARAMS, host)
SETS(cuGraphHostNodeSetParams, HOST, CUDA_HOST_NODE_PARAMS, set_host)
GETS(cuGraphChildGraphNodeGetGraph, GRAPH, CUgraph, child)
GETS(cuGraphEventRecordNodeGetEvent, EVENT_RECORD, CUevent, event)
GETS(cuGraphEventWaitNodeGetEvent, WAIT_EVENT, CUevent, event)

struct CUgraphNode_st *sim_node_in_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type)
{
    if (!sim_handle_is(exec, SIM_EXEC) || !sim_node_is(node)) return NULL;
    struct CUgraphNode_st *copy = sim_node_copy_in(exec->graph, node);
    return copy && copy->type == type ? copy : NULL;
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    IN_EXEC(KERNEL, parameters);
    return set_kernel(copy, parameters);
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *box, CUcontext context)
{
    (void)context;
    IN_EXEC(MEMCPY, box);
    return set_box(copy, box);
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set,
                                                CUcontext context)
{
    (void)context;
    IN_EXEC(MEMSET, set);
    return set_memset(copy, set);
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host)
{
    IN_EXEC(HOST, host);
    return set_host(copy, host);
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    IN_EXEC(GRAPH, sim_graph_is(child) ? child : NULL);
    SIM_REFUSE(child->count != copy->child->count, CUDA_ERROR_INVALID_VALUE);
    return set_child(copy, child);
}

CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    IN_EXEC(EVENT_RECORD, event);
    return set_event(copy, event);
}

CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    IN_EXEC(WAIT_EVENT, event);
    return set_event(copy, event);
}

static struct CUgraphNode_st *switchable(CUgraphExec exec, CUgraphNode node)
{
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET};
    struct CUgraphNode_st *copy = NULL;
    for (size_t i = 0; !copy && i < sizeof types / sizeof types[0]; i++) copy = sim_node_in_exec(exec, node, types[i]);
    return copy;
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
    SIM_READY();
    struct CUgraphNode_st *copy = switchable(exec, node);
    SIM_REFUSE(!copy, CUDA_ERROR_INVALID_VALUE);
    copy->disabled = !enabled;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled)
{
    SIM_READY();
    struct CUgraphNode_st *copy = switchable(exec, node);
    SIM_REFUSE(!copy || !enabled, CUDA_ERROR_INVALID_VALUE);
    *enabled = !copy->disabled;
    return CUDA_SUCCESS;
}
