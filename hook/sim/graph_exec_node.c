/* Nodes of executables: what calls change in them. */
#include "graph_calls.h"

struct CUgraphNode_st *sim_node_in_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type)
{
    if (!sim_handle_is(exec, SIM_EXEC) || !sim_node_is(node)) return NULL;
    struct CUgraphNode_st *copy = sim_node_copy_in(exec->graph, node);
    return copy && copy->type == type ? copy : NULL;
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    IN_EXEC(KERNEL, parameters);
    return sim_set_kernel(copy, parameters);
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *box, CUcontext context)
{
    (void)context;
    IN_EXEC(MEMCPY, box);
    return sim_set_box(copy, box);
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set,
                                                CUcontext context)
{
    (void)context;
    IN_EXEC(MEMSET, set);
    return sim_set_memset(copy, set);
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host)
{
    IN_EXEC(HOST, host);
    return sim_set_host(copy, host);
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    IN_EXEC(GRAPH, sim_graph_is(child) ? child : NULL);
    SIM_REFUSE(child->count != copy->child->count, CUDA_ERROR_INVALID_VALUE);
    return sim_set_child(copy, child);
}

CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    IN_EXEC(EVENT_RECORD, event);
    return sim_set_event(copy, event);
}

CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    IN_EXEC(WAIT_EVENT, event);
    return sim_set_event(copy, event);
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

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *parameters)
{
    SIM_READY();
    SIM_REFUSE(!parameters || !sim_node_is(node) || node->type != parameters->type, CUDA_ERROR_INVALID_VALUE);
    return sim_set_any(node, parameters);
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters)
{
    SIM_READY();
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    struct CUgraphNode_st *copy = sim_node_in_exec(exec, node, parameters->type);
    SIM_REFUSE(!copy, CUDA_ERROR_INVALID_VALUE);
    if (copy->type == CU_GRAPH_NODE_TYPE_GRAPH) return cuGraphExecChildGraphNodeSetParams(exec, node, parameters->graph.graph);
    return sim_set_any(copy, parameters);
}
