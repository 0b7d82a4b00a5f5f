/* The structure of graphs: creates and destroys graphs, adds and removes nodes and edges. */
#include "capture.h"
#include "graph.h"

CUresult CUDAAPI cuGraphCreate(CUgraph *graph, unsigned flags)
{
    SIM_READY();
    SIM_REFUSE(!graph || flags, CUDA_ERROR_INVALID_VALUE);
    *graph = sim_graph_new();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
    SIM_READY();
    SIM_REFUSE(!sim_graph_is(graph) || graph->owned, CUDA_ERROR_INVALID_VALUE);
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphClone(CUgraph *clone, CUgraph graph)
{
    SIM_READY();
    SIM_REFUSE(!clone || !sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE);
    *clone = sim_graph_clone(graph);
    return *clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode node, CUgraph clone)
{
    SIM_READY();
    SIM_REFUSE(!found || !sim_node_is(node) || !sim_graph_is(clone), CUDA_ERROR_INVALID_VALUE);
    *found = sim_node_copy_in(clone, node);
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode node)
{
    SIM_READY();
    SIM_REFUSE(!sim_node_is(node), CUDA_ERROR_INVALID_VALUE);
    sim_node_free(node);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SIM_READY();
    SIM_REFUSE(!type || !sim_node_is(node), CUDA_ERROR_INVALID_VALUE);
    *type = node->type;
    return CUDA_SUCCESS;
}

/* A list that a call returns as CUDA does. A caller without an array gets only the count. A caller with an array gets
 * as many entries as fit, and NULL in the rest of the array. */
struct list {
    CUgraphNode *into, *second;
    size_t capacity, found;
};

static void append(struct list *list, CUgraphNode node, CUgraphNode second)
{
    if (list->into && list->found < list->capacity) list->into[list->found] = node;
    if (list->second && list->found < list->capacity) list->second[list->found] = second;
    list->found++;
}

static CUresult finish(struct list *list, CUgraphEdgeData *edges, size_t *count)
{
    if (list->into)
        for (size_t i = list->found; i < list->capacity; i++) list->into[i] = NULL;
    *count = list->into && list->capacity < list->found ? list->capacity : list->found;
    for (size_t i = 0; list->into && edges && i < *count; i++) edges[i] = (CUgraphEdgeData){0};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, NULL, *count, 0};
    for (size_t i = 0; i < graph->count; i++) append(&list, graph->nodes[i], NULL);
    return finish(&list, NULL, count);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, NULL, *count, 0};
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->dependency_count) append(&list, graph->nodes[i], NULL);
    return finish(&list, NULL, count);
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_graph_is(graph) || !from != !to, CUDA_ERROR_INVALID_VALUE);
    struct list list = {from, to, *count, 0};
    for (size_t i = 0; i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->dependency_count; j++)
            append(&list, graph->nodes[i]->dependencies[j], graph->nodes[i]);
    return finish(&list, edges, count);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_node_is(node), CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, NULL, *count, 0};
    for (size_t i = 0; i < node->dependency_count; i++) append(&list, node->dependencies[i], NULL);
    return finish(&list, edges, count);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_node_is(node), CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, NULL, *count, 0};
    for (size_t i = 0; i < node->graph->count; i++)
        for (size_t j = 0; j < node->graph->nodes[i]->dependency_count; j++)
            if (node->graph->nodes[i]->dependencies[j] == node) append(&list, node->graph->nodes[i], NULL);
    return finish(&list, edges, count);
}

static bool of(const struct CUgraph_st *graph, CUgraphNode node) { return sim_node_is(node) && node->graph == graph; }

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                           const CUgraphEdgeData *edges, size_t count)
{
    (void)edges;
    SIM_READY();
    SIM_REFUSE(!sim_graph_is(graph) || (count && (!from || !to)), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SIM_REFUSE(!of(graph, from[i]) || !of(graph, to[i]) || from[i] == to[i], CUDA_ERROR_INVALID_VALUE);
        unsigned mark = sim_graph_mark_before(&from[i], 1);
        SIM_REFUSE(to[i]->mark == mark, CUDA_ERROR_INVALID_VALUE); /* the edge would make a cycle */
        SIM_REFUSE(!sim_node_depend(to[i], from[i]), CUDA_ERROR_OUT_OF_MEMORY);
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                              const CUgraphEdgeData *edges, size_t count)
{
    (void)edges;
    SIM_READY();
    SIM_REFUSE(!sim_graph_is(graph) || (count && (!from || !to)), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SIM_REFUSE(!of(graph, from[i]) || !of(graph, to[i]), CUDA_ERROR_INVALID_VALUE);
        size_t at = 0;
        while (at < to[i]->dependency_count && to[i]->dependencies[at] != from[i]) at++;
        SIM_REFUSE(at == to[i]->dependency_count, CUDA_ERROR_INVALID_VALUE);
        to[i]->dependencies[at] = to[i]->dependencies[--to[i]->dependency_count];
    }
    return CUDA_SUCCESS;
}
