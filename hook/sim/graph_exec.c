/* Executable graphs. A launch queues the nodes in the stream, one after the other, in an order that respects their
 * dependencies. Branches do not overlap, so a graph takes the sum of its nodes' times. */
#include <string.h>

#include "capture.h"
#include "copy.h"
#include "graph.h"

static CUresult run_graph(struct CUstream_st *stream, const struct CUgraph_st *graph);

static CUresult run_node(struct CUstream_st *stream, const struct CUgraphNode_st *node)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return sim_submit_kernel(stream, &node->call.launch, node->call.parameters);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return sim_copy_box(stream, &node->box);
    case CU_GRAPH_NODE_TYPE_MEMSET: return sim_memset(stream, &node->set);
    case CU_GRAPH_NODE_TYPE_HOST: return sim_submit_host_function(stream, node->host.fn, node->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH: return run_graph(stream, node->child);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return cuEventRecord(node->event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return cuStreamWaitEvent(stream, node->event, 0);
    default: return CUDA_SUCCESS;
    }
}

static CUresult run_graph(struct CUstream_st *stream, const struct CUgraph_st *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->disabled) SIM_TRY(run_node(stream, graph->nodes[i]));
    return CUDA_SUCCESS;
}

static bool sort(struct CUgraph_st *graph)
{
    bool good = sim_graph_sort(graph);
    for (size_t i = 0; good && i < graph->count; i++)
        if (graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_GRAPH) good = sort(graph->nodes[i]->child);
    return good;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(!made || !sim_graph_is(graph) || (flags & ~15ull), CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *clone = sim_graph_clone(graph);
    struct CUgraphExec_st *exec = clone ? sim_handle_new(SIM_EXEC, sizeof *exec) : NULL;
    CUresult result = !exec ? CUDA_ERROR_OUT_OF_MEMORY : sort(clone) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result) {
        if (clone) sim_graph_free(clone);
        if (exec) sim_handle_free(exec);
        return result;
    }
    exec->graph = clone;
    exec->flags = flags;
    *made = exec;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

#define EXEC(exec, pointer) \
    SIM_READY(); \
    SIM_REFUSE(!(pointer) || !sim_handle_is(exec, SIM_EXEC), CUDA_ERROR_INVALID_VALUE)

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    EXEC(exec, flags);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
    EXEC(exec, exec);
    sim_graph_free(exec->graph);
    sim_handle_free(exec);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    struct CUstream_st *stream;
    EXEC(exec, exec);
    return sim_stream(handle, &stream);
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    EXEC(exec, exec);
    SIM_STREAM(stream, handle);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_child(stream, exec->graph);
    return run_graph(stream, exec->graph);
}

/* Store the index of each node in its graph. */
static void number_nodes(const struct CUgraph_st *graph)
{
    for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->mark = (unsigned)i;
}

static CUgraphExecUpdateResult compare(const struct CUgraph_st *have, const struct CUgraph_st *wanted, CUgraphNode *culprit)
{
    *culprit = NULL;
    if (have->count != wanted->count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    number_nodes(have);
    number_nodes(wanted);
    for (size_t i = 0; i < have->count; i++) {
        const struct CUgraphNode_st *a = have->nodes[i], *b = wanted->nodes[i];
        *culprit = wanted->nodes[i]->origin;
        if (a->type != b->type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->dependency_count != b->dependency_count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t j = 0; j < a->dependency_count; j++)
            if (a->dependencies[j]->mark != b->dependencies[j]->mark) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (a->type == CU_GRAPH_NODE_TYPE_GRAPH && a->child->count != b->child->count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    *culprit = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    EXEC(exec, info);
    SIM_REFUSE(!sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *wanted = sim_graph_clone(graph);
    SIM_REFUSE(!wanted, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = CUDA_SUCCESS;
    memset(info, 0, sizeof *info);
    info->result = sort(wanted) ? compare(exec->graph, wanted, &info->errorNode) : CU_GRAPH_EXEC_UPDATE_ERROR;
    for (size_t i = 0; !result && !info->result && i < wanted->count; i++)
        result = sim_node_set_like(exec->graph->nodes[i], wanted->nodes[i]);
    sim_graph_free(wanted);
    return info->result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : result;
}
