/* Graphs: nodes, their dependencies, copies. graph_node.c holds what nodes do, graph_exec.c runs them. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

_Static_assert(sizeof(struct CUgraphNode_st) <= 512, "a node fits into a handle's entry");

static _Atomic unsigned marks;

bool sim_graph_is(const void *handle) { return sim_handle_is(handle, SIM_GRAPH); }
bool sim_node_is(const void *handle) { return sim_handle_is(handle, SIM_NODE); }

struct CUgraph_st *sim_graph_new(void) { return sim_handle_new(SIM_GRAPH, sizeof(struct CUgraph_st)); }

void sim_graph_free(struct CUgraph_st *graph)
{
    if (graph->only) graph->only->source = NULL;
    while (graph->count) sim_node_free(graph->nodes[graph->count - 1]);
    free(graph->nodes);
    sim_handle_free(graph);
}

bool sim_node_depend(struct CUgraphNode_st *node, struct CUgraphNode_st *on, const CUgraphEdgeData *edge)
{
    for (size_t i = 0; i < node->dependency_count; i++)
        if (node->dependencies[i] == on) return true;
    void *grown = realloc(node->dependencies, (node->dependency_count + 1) * sizeof *node->dependencies);
    if (!grown) return false;
    node->dependencies = grown;
    grown = realloc(node->edges, (node->dependency_count + 1) * sizeof *node->edges);
    if (!grown) return false;
    node->edges = grown;
    node->edges[node->dependency_count] = edge ? *edge : (CUgraphEdgeData){0};
    node->dependencies[node->dependency_count++] = on;
    return true;
}

void sim_node_undepend(struct CUgraphNode_st *node, size_t at)
{
    size_t last = --node->dependency_count;
    node->dependencies[at] = node->dependencies[last];
    node->edges[at] = node->edges[last];
}

CUresult sim_node_new(struct CUgraph_st *graph, CUgraphNodeType type, struct CUgraphNode_st *const *dependencies, size_t count,
                      struct CUgraphNode_st **made)
{
    SIM_REFUSE(count && !dependencies, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        SIM_REFUSE(!sim_node_is(dependencies[i]) || dependencies[i]->graph != graph, CUDA_ERROR_INVALID_VALUE);
    if (graph->count == graph->capacity) {
        size_t more = graph->capacity ? graph->capacity * 2 : 16;
        void *grown = realloc(graph->nodes, more * sizeof *graph->nodes);
        SIM_REFUSE(!grown, CUDA_ERROR_OUT_OF_MEMORY);
        graph->nodes = grown;
        graph->capacity = more;
    }
    struct CUgraphNode_st *node = sim_handle_new(SIM_NODE, sizeof *node);
    SIM_REFUSE(!node, CUDA_ERROR_OUT_OF_MEMORY);
    node->type = type;
    node->graph = graph;
    graph->nodes[graph->count++] = node;
    for (size_t i = 0; i < count; i++)
        if (!sim_node_depend(node, dependencies[i], NULL)) {
            sim_node_free(node);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    *made = node;
    return CUDA_SUCCESS;
}

static void forget_dependency(struct CUgraphNode_st *node, const struct CUgraphNode_st *on)
{
    for (size_t i = node->dependency_count; i-- > 0;)
        if (node->dependencies[i] == on) sim_node_undepend(node, i);
}

static void free_bodies(struct CUgraphNode_st *node)
{
    for (unsigned i = 0; node->condition.bodies && i < node->condition.size; i++)
        if (node->condition.bodies[i]) sim_graph_free(node->condition.bodies[i]);
    free(node->condition.bodies);
}

void sim_node_free(struct CUgraphNode_st *node)
{
    struct CUgraph_st *graph = node->graph;
    size_t kept = 0;
    for (size_t i = 0; i < graph->count; i++) {
        forget_dependency(graph->nodes[i], node);
        if (graph->nodes[i] != node) graph->nodes[kept++] = graph->nodes[i];
    }
    graph->count = kept;
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        free(node->call.parameters);
        free(node->call.attributes);
    }
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH && node->child) sim_graph_free(node->child);
    if (node->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) free(node->batch.paramArray);
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) free_bodies(node);
    free(node->dependencies);
    free(node->edges);
    sim_handle_free(node);
}

CUresult sim_node_set_kernel(struct CUgraphNode_st *node, const struct sim_launch *launch, void *const *parameters)
{
    const struct sim_kernel *kernel = launch->kernel;
    size_t bytes = 0, pointers = ((size_t)kernel->parameter_count + 1) * sizeof(void *);
    int last = kernel->parameter_count - 1;
    if (last >= 0) bytes = kernel->parameter_offset[last] + kernel->parameter_size[last];
    void **block = calloc(1, pointers + bytes);
    SIM_REFUSE(!block, CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < kernel->parameter_count; i++) {
        block[i] = (char *)block + pointers + kernel->parameter_offset[i];
        memcpy(block[i], parameters[i], kernel->parameter_size[i]);
    }
    free(node->call.parameters);
    node->call.launch = *launch;
    node->call.parameters = block;
    return CUDA_SUCCESS;
}

CUresult sim_node_set_attributes(struct CUgraphNode_st *node, const CUlaunchAttribute *attributes, unsigned count)
{
    CUlaunchAttribute *copy = count ? malloc(count * sizeof *copy) : NULL;
    SIM_REFUSE(count && !copy, CUDA_ERROR_OUT_OF_MEMORY);
    if (count) memcpy(copy, attributes, count * sizeof *copy);
    free(node->call.attributes);
    node->call.attributes = copy;
    node->call.attribute_count = count;
    return CUDA_SUCCESS;
}

static CUresult copy_bodies(struct CUgraphNode_st *node, const struct CUgraphNode_st *other)
{
    CUgraph *bodies = calloc(other->condition.size, sizeof(CUgraph));
    bool good = bodies != NULL;
    for (unsigned i = 0; good && i < other->condition.size; i++) {
        bodies[i] = sim_graph_clone(other->condition.bodies[i]);
        good = bodies[i] != NULL;
        if (good) bodies[i]->owned = true;
    }
    free_bodies(node);
    node->condition = other->condition;
    node->condition.bodies = bodies;
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_node_set_like(struct CUgraphNode_st *node, const struct CUgraphNode_st *other)
{
    switch (other->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        SIM_TRY(sim_node_set_attributes(node, other->call.attributes, other->call.attribute_count));
        return sim_node_set_kernel(node, &other->call.launch, other->call.parameters);
    case CU_GRAPH_NODE_TYPE_MEMCPY: node->box = other->box; break;
    case CU_GRAPH_NODE_TYPE_MEMSET: node->set = other->set; break;
    case CU_GRAPH_NODE_TYPE_HOST: node->host = other->host; break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: node->event = other->event; break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return sim_node_set_batch(node, &other->batch);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE: node->memory = other->memory; break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return copy_bodies(node, other);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
        struct CUgraph_st *child = sim_graph_clone(other->child);
        SIM_REFUSE(!child, CUDA_ERROR_OUT_OF_MEMORY);
        if (node->child) sim_graph_free(node->child);
        child->owned = true;
        node->child = child;
        break;
    }
    default: break;
    }
    return CUDA_SUCCESS;
}

struct CUgraphNode_st *sim_node_copy_in(const struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->origin == node) return graph->nodes[i];
    return NULL;
}

struct CUgraph_st *sim_graph_clone(const struct CUgraph_st *graph)
{
    struct CUgraph_st *clone = sim_graph_new();
    bool good = clone != NULL;
    for (size_t i = 0; good && i < graph->count; i++) {
        struct CUgraphNode_st *node;
        good = !sim_node_new(clone, graph->nodes[i]->type, NULL, 0, &node) && !sim_node_set_like(node, graph->nodes[i]);
        if (good) {
            node->origin = graph->nodes[i];
            graph->nodes[i]->mark = (unsigned)i; /* the index of the node's copy */
        }
    }
    for (size_t i = 0; good && i < graph->count; i++)
        for (size_t j = 0; good && j < graph->nodes[i]->dependency_count; j++)
            good =
                sim_node_depend(clone->nodes[i], clone->nodes[graph->nodes[i]->dependencies[j]->mark], &graph->nodes[i]->edges[j]);
    if (!good && clone) {
        sim_graph_free(clone);
        clone = NULL;
    }
    return clone;
}

bool sim_graph_sort(struct CUgraph_st *graph)
{
    unsigned mark = atomic_fetch_add(&marks, 1) + (1u << 31); /* marks of walks never equal an index */
    for (size_t done = 0; done < graph->count; done++) {
        size_t at = done;
        for (; at < graph->count; at++) {
            const struct CUgraphNode_st *node = graph->nodes[at];
            size_t met = 0;
            while (met < node->dependency_count && node->dependencies[met]->mark == mark) met++;
            if (met == node->dependency_count) break;
        }
        if (at == graph->count) return false;
        struct CUgraphNode_st *next = graph->nodes[at];
        memmove(graph->nodes + done + 1, graph->nodes + done, (at - done) * sizeof *graph->nodes);
        graph->nodes[done] = next;
        next->mark = mark;
    }
    return true;
}

static void mark_before(struct CUgraphNode_st *node, unsigned mark)
{
    while (node->mark != mark) { /* the loop follows the first dependency, because chains are long and branches few */
        node->mark = mark;
        for (size_t i = 1; i < node->dependency_count; i++) mark_before(node->dependencies[i], mark);
        if (node->dependency_count) node = node->dependencies[0];
    }
}

unsigned sim_graph_mark_before(struct CUgraphNode_st *const *nodes, size_t count)
{
    unsigned mark = atomic_fetch_add(&marks, 1) + (1u << 31);
    for (size_t i = 0; i < count; i++) mark_before(nodes[i], mark);
    return mark;
}
