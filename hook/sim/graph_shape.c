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
    SIM_REFUSE(sim_graph_is_single(graph), CUDA_ERROR_NOT_SUPPORTED);
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
    SIM_REFUSE(sim_graph_has_memory(node->graph), CUDA_ERROR_NOT_SUPPORTED);
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
    CUgraphEdgeData *edges; /* NULL: the caller asks for none, which is an error if an edge has data */
    bool lossy;
};

static bool has_data(const CUgraphEdgeData *edge) { return edge && (edge->type || edge->from_port || edge->to_port); }

static void append(struct list *list, CUgraphNode node, CUgraphNode second, const CUgraphEdgeData *edge)
{
    if (list->into && list->found < list->capacity) {
        list->into[list->found] = node;
        if (list->second) list->second[list->found] = second;
        if (list->edges && edge) list->edges[list->found] = *edge;
        list->lossy |= !list->edges && has_data(edge);
    }
    list->found++;
}

static CUresult finish(struct list *list, size_t *count)
{
    if (list->into)
        for (size_t i = list->found; i < list->capacity; i++) list->into[i] = NULL;
    *count = list->into && list->capacity < list->found ? list->capacity : list->found;
    return list->lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE);
    struct list list = {.into = nodes, .capacity = *count};
    for (size_t i = 0; i < graph->count; i++) append(&list, graph->nodes[i], NULL, NULL);
    return finish(&list, count);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE);
    struct list list = {.into = nodes, .capacity = *count};
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->dependency_count) append(&list, graph->nodes[i], NULL, NULL);
    return finish(&list, count);
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_graph_is(graph) || !from != !to, CUDA_ERROR_INVALID_VALUE);
    struct list list = {.into = from, .second = to, .capacity = *count, .edges = edges};
    for (size_t i = 0; i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->dependency_count; j++)
            append(&list, graph->nodes[i]->dependencies[j], graph->nodes[i], &graph->nodes[i]->edges[j]);
    return finish(&list, count);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_node_is(node), CUDA_ERROR_INVALID_VALUE);
    struct list list = {.into = nodes, .capacity = *count, .edges = edges};
    for (size_t i = 0; i < node->dependency_count; i++) append(&list, node->dependencies[i], NULL, &node->edges[i]);
    return finish(&list, count);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_READY();
    SIM_REFUSE(!count || !sim_node_is(node), CUDA_ERROR_INVALID_VALUE);
    struct list list = {.into = nodes, .capacity = *count, .edges = edges};
    for (size_t i = 0; i < node->graph->count; i++)
        for (size_t j = 0; j < node->graph->nodes[i]->dependency_count; j++)
            if (node->graph->nodes[i]->dependencies[j] == node)
                append(&list, node->graph->nodes[i], NULL, &node->graph->nodes[i]->edges[j]);
    return finish(&list, count);
}

/* Whether such an edge may lead from one node to the other: only between kernels may the second start early. */
static bool fits(const CUgraphEdgeData *edge, CUgraphNode from, CUgraphNode to)
{
    bool kernels = from->type == CU_GRAPH_NODE_TYPE_KERNEL && to->type == CU_GRAPH_NODE_TYPE_KERNEL;
    if (edge->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) return !edge->to_port && (!edge->from_port || kernels);
    return edge->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && kernels && !edge->to_port &&
           (edge->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC || edge->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
}

static bool same(const CUgraphEdgeData *a, const CUgraphEdgeData *b)
{
    return a->type == b->type && a->from_port == b->from_port && a->to_port == b->to_port;
}

static bool of(const struct CUgraph_st *graph, CUgraphNode node) { return sim_node_is(node) && node->graph == graph; }

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                           const CUgraphEdgeData *edges, size_t count)
{
    SIM_READY();
    SIM_REFUSE(!sim_graph_is(graph) || (count && (!from || !to)), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SIM_REFUSE(!of(graph, from[i]) || !of(graph, to[i]) || from[i] == to[i], CUDA_ERROR_INVALID_VALUE);
        unsigned mark = sim_graph_mark_before(&from[i], 1);
        SIM_REFUSE(to[i]->mark == mark, CUDA_ERROR_INVALID_VALUE); /* the edge would make a cycle */
        SIM_REFUSE(edges && !fits(&edges[i], from[i], to[i]), CUDA_ERROR_INVALID_VALUE);
        SIM_REFUSE(!sim_node_depend(to[i], from[i], edges ? &edges[i] : NULL), CUDA_ERROR_OUT_OF_MEMORY);
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                              const CUgraphEdgeData *edges, size_t count)
{
    SIM_READY();
    SIM_REFUSE(!sim_graph_is(graph) || (count && (!from || !to)), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(count && sim_graph_has_memory(graph), CUDA_ERROR_NOT_SUPPORTED);
    for (size_t i = 0; i < count; i++) {
        SIM_REFUSE(!of(graph, from[i]) || !of(graph, to[i]), CUDA_ERROR_INVALID_VALUE);
        size_t at = 0;
        while (at < to[i]->dependency_count &&
               (to[i]->dependencies[at] != from[i] || (edges && !same(&to[i]->edges[at], &edges[i]))))
            at++; /* a caller that names no data removes an edge with any data (seen on an H200) */
        SIM_REFUSE(at == to[i]->dependency_count, CUDA_ERROR_INVALID_VALUE);
        sim_node_undepend(to[i], at);
    }
    return CUDA_SUCCESS;
}
