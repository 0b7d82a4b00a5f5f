/* Nodes by kind: adds them, and reads and changes what they do. */
#include <string.h>

#include "capture.h"
#include "context.h"
#include "copy.h"
#include "graph_calls.h"
#include "green.h"

/* A new node belongs to the green context that is current; a node of a CUkernel, to the context that the caller names.
 * Later parameters leave it there (the first two seen on an H200). */
static unsigned long long green_of(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    if (node->call.launch.kernel) return node->call.launch.green;
    const struct CUgreenCtx_st *green = sim_green_named(parameters->func ? NULL : parameters->ctx);
    return green ? green->id : 0;
}

/* Each context has functions of its own on a GPU; here a function serves all, so the current context stands for that of the function. */
static struct CUctx_st *context_of(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    if (node->call.launch.kernel) return node->call.launch.context;
    bool named = !parameters->func && sim_context_alive(parameters->ctx);
    if (!named) return sim_current();
    return parameters->ctx->green ? parameters->ctx->green->context : parameters->ctx;
}

CUresult sim_set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    void *gathered[SIM_PARAMETERS];
    struct sim_launch launch = {.kernel = sim_kernel(parameters->func ? (void *)parameters->func : (void *)parameters->kern),
                                .grid = {parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ},
                                .block = {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ},
                                .shared = parameters->sharedMemBytes,
                                .green = green_of(node, parameters),
                                .context = context_of(node, parameters)};
    launch.anywhere = !launch.green;
    SIM_REFUSE(!launch.kernel, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_check_shape(launch.kernel, launch.grid, launch.block, launch.shared));
    SIM_TRY(sim_gather_parameters(launch.kernel, parameters->kernelParams, parameters->extra, gathered));
    return sim_node_set_kernel(node, &launch, gathered);
}

CUresult sim_set_box(CUgraphNode node, const CUDA_MEMCPY3D *box)
{
    SIM_REFUSE(!box->WidthInBytes || !box->Height || !box->Depth, CUDA_ERROR_INVALID_VALUE);
    node->box = *box;
    return CUDA_SUCCESS;
}

CUresult sim_set_memset(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set)
{
    SIM_REFUSE(set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!set->dst || !set->width || !set->height, CUDA_ERROR_INVALID_VALUE);
    node->set = *set;
    return CUDA_SUCCESS;
}

CUresult sim_set_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host)
{
    SIM_REFUSE(!host->fn, CUDA_ERROR_INVALID_VALUE);
    node->host = *host;
    return CUDA_SUCCESS;
}

CUresult sim_set_event(CUgraphNode node, CUevent event)
{
    SIM_REFUSE(!sim_handle_is(event, SIM_EVENT), CUDA_ERROR_INVALID_HANDLE);
    node->event = event;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                         const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    ADD(KERNEL, sim_set_kernel(node, parameters));
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      const CUDA_MEMCPY3D *box, CUcontext context)
{
    (void)context;
    SIM_REFUSE(!box, CUDA_ERROR_INVALID_VALUE);
    ADD(MEMCPY, sim_set_box(node, box));
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
{
    (void)context;
    SIM_REFUSE(!set, CUDA_ERROR_INVALID_VALUE);
    ADD(MEMSET, sim_set_memset(node, set));
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                    const CUDA_HOST_NODE_PARAMS *host)
{
    SIM_REFUSE(!host, CUDA_ERROR_INVALID_VALUE);
    ADD(HOST, sim_set_host(node, host));
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    ADD(EMPTY, CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                           CUevent event)
{
    ADD(EVENT_RECORD, sim_set_event(node, event));
}

CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                         CUevent event)
{
    ADD(WAIT_EVENT, sim_set_event(node, event));
}

CUresult sim_set_child(CUgraphNode node, CUgraph child)
{
    struct CUgraphNode_st like = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child};
    return sim_node_set_like(node, &like);
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                          CUgraph child)
{
    SIM_REFUSE(!sim_graph_is(child) || child == graph, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(sim_graph_is_single(child), CUDA_ERROR_NOT_SUPPORTED);
    ADD(GRAPH, sim_set_child(node, child));
}

CUresult sim_set_any(CUgraphNode node, const CUgraphNodeParams *parameters)
{
    switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel;
        memcpy(&kernel, &parameters->kernel, sizeof kernel); /* the structure of v3 begins with the fields of v2 */
        return sim_set_kernel(node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: return sim_set_box(node, &parameters->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set;
        memcpy(&set, &parameters->memset, sizeof set);
        return sim_set_memset(node, &set);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = {parameters->host.fn, parameters->host.userData};
        return sim_set_host(node, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        SIM_REFUSE(!sim_graph_is(parameters->graph.graph), CUDA_ERROR_INVALID_VALUE);
        return sim_set_child(node, parameters->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return sim_set_event(node, parameters->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return sim_set_event(node, parameters->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
        memcpy(&batch, &parameters->memOp, sizeof batch);
        return sim_node_set_batch(node, &batch);
    }
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                   size_t count, CUgraphNodeParams *parameters)
{
    (void)edges;
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH: return cuGraphAddChildGraphNode(made, graph, dependencies, count, parameters->graph.graph);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        memcpy(&alloc, &parameters->alloc, sizeof alloc);
        CUresult result = cuGraphAddMemAllocNode(made, graph, dependencies, count, &alloc);
        parameters->alloc.dptr = alloc.dptr;
        return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return cuGraphAddMemFreeNode(made, graph, dependencies, count, parameters->free.dptr);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: ADD(CONDITIONAL, sim_node_set_condition(node, &parameters->conditional));
    default: ADD_OF_TYPE(parameters->type, sim_set_any(node, parameters));
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
    parameters->kern = (CUkernel)launch->kernel; /* this and the context also if the program named none (seen on an H200) */
    parameters->ctx = launch->context;
    return CUDA_SUCCESS;
}

SETS(cuGraphKernelNodeSetParams_v2, KERNEL, CUDA_KERNEL_NODE_PARAMS, sim_set_kernel)
GETS(cuGraphMemcpyNodeGetParams, MEMCPY, CUDA_MEMCPY3D, box)
SETS(cuGraphMemcpyNodeSetParams, MEMCPY, CUDA_MEMCPY3D, sim_set_box)
GETS(cuGraphMemsetNodeGetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, set)
SETS(cuGraphMemsetNodeSetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, sim_set_memset)
GETS(cuGraphHostNodeGetParams, HOST, CUDA_HOST_NODE_PARAMS, host)
SETS(cuGraphHostNodeSetParams, HOST, CUDA_HOST_NODE_PARAMS, sim_set_host)
GETS(cuGraphChildGraphNodeGetGraph, GRAPH, CUgraph, child)
GETS(cuGraphEventRecordNodeGetEvent, EVENT_RECORD, CUevent, event)
GETS(cuGraphEventWaitNodeGetEvent, WAIT_EVENT, CUevent, event)

CUresult CUDAAPI cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    NODE(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return sim_set_event(node, event);
}

CUresult CUDAAPI cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    NODE(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return sim_set_event(node, event);
}
