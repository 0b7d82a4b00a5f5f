/* Executable graphs: made, launched and updated. graph_run.c queues their nodes. */
#include <string.h>

#include "capture.h"
#include "graph.h"

static bool sort(struct CUgraph_st *graph)
{
    bool good = sim_graph_sort(graph);
    for (size_t i = 0; good && i < graph->count; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) good = sort(node->child);
        for (unsigned j = 0; good && node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < node->condition.size; j++)
            good = sim_graph_fits_body(node->condition.bodies[j]) && sort(node->condition.bodies[j]);
    }
    return good;
}

/* Whether the device may launch the graph: it has work, and only work of these types. */
static bool fits_device(const struct CUgraph_st *graph)
{
    bool fits = graph->count > 0;
    for (size_t i = 0; fits && i < graph->count; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        fits = node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
               node->type == CU_GRAPH_NODE_TYPE_MEMSET || (node->type == CU_GRAPH_NODE_TYPE_GRAPH && fits_device(node->child));
    }
    return fits;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(!made || !sim_graph_is(graph) || (flags & ~15ull), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) &&
                   ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) || !fits_device(graph)),
               CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(graph->only, CUDA_ERROR_INVALID_VALUE);
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
    if (sim_graph_is_single(graph)) {
        exec->source = graph;
        graph->only = exec;
    }
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
    if (exec->source) exec->source->only = NULL;
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
    SIM_REFUSE(stream->capture && sim_graph_is_single(exec->graph), CUDA_ERROR_NOT_SUPPORTED);
    if (stream->capture) return sim_capture_child(stream, exec->graph);
    bool frees = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    SIM_REFUSE(sim_graph_unfreed(exec->graph, frees) && !frees, CUDA_ERROR_INVALID_VALUE);
    return sim_graph_run(stream, exec->graph);
}

/* Store the index of each node in its graph. */
static void number_nodes(const struct CUgraph_st *graph)
{
    for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->mark = (unsigned)i;
}

static CUgraphExecUpdateResult compare(const struct CUgraph_st *have, const struct CUgraph_st *wanted, CUgraphNode *culprit);

/* Compares what an update may not change in two nodes of the same type. */
static CUgraphExecUpdateResult compare_node(const struct CUgraphNode_st *a, const struct CUgraphNode_st *b)
{
    CUgraphNode culprit;
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    switch (a->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH: return a->child->count == b->child->count ? result : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return sim_node_same_batch(a, b) ? result : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return a->memory.start == b->memory.start ? result : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        if (a->condition.handle != b->condition.handle) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        for (unsigned i = 0; !result && i < a->condition.size; i++)
            result = compare(a->condition.bodies[i], b->condition.bodies[i], &culprit);
        return result;
    default: return result;
    }
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
            if (a->dependencies[j]->mark != b->dependencies[j]->mark || a->edges[j].type != b->edges[j].type ||
                a->edges[j].from_port != b->edges[j].from_port)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        CUgraphExecUpdateResult result = compare_node(a, b);
        if (result) return result;
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
