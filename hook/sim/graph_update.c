/* Updates executables by graphs that have the same nodes and dependencies. */
#include <string.h>

#include "graph_calls.h"

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
    case CU_GRAPH_NODE_TYPE_KERNEL: /* seen on an H200: a kernel stays in its green context */
        return a->call.launch.green == b->call.launch.green ? result : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return a->box.srcMemoryType == b->box.srcMemoryType && a->box.dstMemoryType == b->box.dstMemoryType
                   ? result
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_GRAPH: return compare(a->child, b->child, &culprit);
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

/* Nodes of child graphs are kept, because programs know them. */
static CUresult adopt(const struct CUgraph_st *have, const struct CUgraph_st *wanted)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; !result && i < wanted->count; i++) {
        struct CUgraphNode_st *node = have->nodes[i];
        result = node->type == CU_GRAPH_NODE_TYPE_GRAPH ? adopt(node->child, wanted->nodes[i]->child)
                                                        : sim_node_set_like(node, wanted->nodes[i]);
    }
    return result;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    EXEC(exec, info);
    SIM_REFUSE(!sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *wanted = sim_graph_clone(graph);
    SIM_REFUSE(!wanted, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = CUDA_SUCCESS;
    memset(info, 0, sizeof *info);
    info->result = sim_graph_sort_all(wanted) ? compare(exec->graph, wanted, &info->errorNode) : CU_GRAPH_EXEC_UPDATE_ERROR;
    if (!info->result) result = adopt(exec->graph, wanted);
    sim_graph_free(wanted);
    return info->result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : result;
}
