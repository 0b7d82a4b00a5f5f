#include "be/graph_nodes.h"

#include <stdlib.h>

#include "generated/driver.h"
#include "system/mix.h"

#define DEPTH_MOST 8u /* of child graphs in child graphs */
#define NODES_MOST (1u << 20)

/* -- Reading --------------------------------------------------------------------------------------------------------- */

static bool list_nodes(CUgraph graph, CUgraphNode **nodes, size_t *count)
{
    *nodes = NULL;
    if (orion_driver.cuGraphGetNodes == NULL || orion_driver.cuGraphGetNodes(graph, NULL, count) != CUDA_SUCCESS) return false;
    if (*count > NODES_MOST || (*nodes = calloc(*count + 1, sizeof **nodes)) == NULL) return false;
    return *count == 0 || orion_driver.cuGraphGetNodes(graph, *nodes, count) == CUDA_SUCCESS;
}

static bool can_be_copied(CUgraphNode node, CUgraphNodeType *type, unsigned depth)
{
    CUgraph child;
    CUgraphNode *nodes = NULL;
    CUgraphNodeType inner;
    size_t count;
    if (orion_driver.cuGraphNodeGetType(node, type) != CUDA_SUCCESS) return false;
    switch ((int)*type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return true;
    case CU_GRAPH_NODE_TYPE_GRAPH: break;
    default: return false;
    }
    if (depth >= DEPTH_MOST || orion_driver.cuGraphChildGraphNodeGetGraph == NULL ||
        orion_driver.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS)
        return false;
    bool all = list_nodes(child, &nodes, &count);
    for (size_t i = 0; all && i < count; i++) all = can_be_copied(nodes[i], &inner, depth + 1);
    free(nodes);
    return all;
}

static uint32_t home_of(CUgraphNode handle, uint32_t slots)
{
    return (uint32_t)(orion_mix((uint64_t)(uintptr_t)handle) >> 20) & (slots - 1);
}

static bool number_nodes(struct orion_graph_nodes *nodes)
{
    for (nodes->slots = 4; nodes->slots < 2 * nodes->count; nodes->slots *= 2) {}
    nodes->by_handle = calloc(nodes->slots, sizeof *nodes->by_handle);
    for (uint32_t i = 0; nodes->by_handle != NULL && i < nodes->count; i++) {
        uint32_t slot = home_of(nodes->node[i], nodes->slots);
        while (nodes->by_handle[slot] != 0) slot = (slot + 1) & (nodes->slots - 1);
        nodes->by_handle[slot] = i + 1;
    }
    return nodes->by_handle != NULL;
}

uint32_t orion_graph_number(const uint32_t *by_handle, uint32_t slots, const CUgraphNode *node, uint32_t stride, CUgraphNode handle)
{
    for (uint32_t slot = home_of(handle, slots); by_handle[slot] != 0; slot = (slot + 1) & (slots - 1)) {
        const void *at = (const char *)node + (size_t)(by_handle[slot] - 1) * stride;
        if (*(const CUgraphNode *)at == handle) return by_handle[slot] - 1;
    }
    return UINT32_MAX;
}

/* The driver refuses to list the edges without their data if an edge has any (CUDA_ERROR_LOSSY_QUERY). */
static bool read_edges(CUgraph graph, struct orion_graph_nodes *nodes)
{
    size_t count = 0;
    if (orion_driver.cuGraphGetEdges_v2 == NULL ||
        orion_driver.cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count) != CUDA_SUCCESS || count > NODES_MOST)
        return false;
    CUgraphNode *from = calloc(2 * count + 1, sizeof *from), *to = from + count;
    CUgraphEdgeData *data = calloc(count + 1, sizeof *data);
    nodes->from = calloc(2 * count + 1, sizeof *nodes->from);
    nodes->to = nodes->from + count;
    nodes->edges = (uint32_t)count;
    bool read = from != NULL && data != NULL && nodes->from != NULL &&
                (count == 0 || orion_driver.cuGraphGetEdges_v2(graph, from, to, data, &count) == CUDA_SUCCESS);
    for (size_t i = 0; read && i < count; i++) {
        uint32_t first = orion_graph_number(nodes->by_handle, nodes->slots, nodes->node, sizeof *nodes->node, from[i]);
        uint32_t second = orion_graph_number(nodes->by_handle, nodes->slots, nodes->node, sizeof *nodes->node, to[i]);
        read = first != UINT32_MAX && second != UINT32_MAX;
        nodes->from[i] = first, nodes->to[i] = second;
        nodes->edge_sum += orion_mix(((uint64_t)first << 32) + second + ((uint64_t)data[i].type << 60) + 1);
    }
    free(from);
    free(data);
    return read;
}

bool orion_graph_nodes_read(CUgraph graph, struct orion_graph_nodes *nodes)
{
    size_t count;
    *nodes = (struct orion_graph_nodes){0};
    if (orion_driver.cuGraphNodeGetType == NULL || !list_nodes(graph, &nodes->node, &count)) return false;
    nodes->count = (uint32_t)count;
    nodes->type = calloc(count + 1, sizeof *nodes->type);
    for (size_t i = 0; i < count; i++)
        if (nodes->type == NULL || !can_be_copied(nodes->node[i], &nodes->type[i], 0)) return false;
    return number_nodes(nodes) && read_edges(graph, nodes);
}

void orion_graph_nodes_free(struct orion_graph_nodes *nodes)
{
    free(nodes->node);
    free(nodes->type);
    free(nodes->from); /* and `to` */
    free(nodes->by_handle);
    *nodes = (struct orion_graph_nodes){0};
}

/* -- Parameters ------------------------------------------------------------------------------------------------------ */

#define COPIES(get, set, structure) \
    do { \
        structure parameters; \
        return orion_driver.get != NULL && orion_driver.set != NULL && orion_driver.get(from, &parameters) == CUDA_SUCCESS && \
               orion_driver.set(to, COPIED(parameters)) == CUDA_SUCCESS; \
    } while (0)

static bool copy_kernel(CUgraphNode from, CUgraphNode to)
{
    CUDA_KERNEL_NODE_PARAMS parameters;
    return orion_driver.cuGraphKernelNodeGetParams_v2 != NULL && orion_driver.cuGraphKernelNodeSetParams_v2 != NULL &&
           orion_driver.cuGraphKernelNodeGetParams_v2(from, &parameters) == CUDA_SUCCESS &&
           orion_driver.cuGraphKernelNodeSetParams_v2(to, &parameters) == CUDA_SUCCESS;
}

static bool copy_child(CUgraphNode from, CUgraphNode to)
{
    CUgraph child, own;
    return orion_driver.cuGraphChildGraphNodeGetGraph != NULL &&
           orion_driver.cuGraphChildGraphNodeGetGraph(from, &child) == CUDA_SUCCESS &&
           orion_driver.cuGraphChildGraphNodeGetGraph(to, &own) == CUDA_SUCCESS && orion_graph_copy_parameters(child, own);
}

#define COPIED(parameters) &parameters
static bool copy_memcpy(CUgraphNode from, CUgraphNode to)
{
    COPIES(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D);
}
static bool copy_memset(CUgraphNode from, CUgraphNode to)
{
    COPIES(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS);
}
static bool copy_host(CUgraphNode from, CUgraphNode to)
{
    COPIES(cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS);
}
static bool copy_memory_operations(CUgraphNode from, CUgraphNode to)
{
    COPIES(cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS);
}
#undef COPIED
#define COPIED(parameters) parameters
static bool copy_record(CUgraphNode from, CUgraphNode to)
{
    COPIES(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent, CUevent);
}
static bool copy_wait(CUgraphNode from, CUgraphNode to)
{
    COPIES(cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent, CUevent);
}
#undef COPIED

bool orion_graph_node_copy(CUgraphNodeType type, CUgraphNode from, CUgraphNode to)
{
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return copy_kernel(from, to);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return copy_memcpy(from, to);
    case CU_GRAPH_NODE_TYPE_MEMSET: return copy_memset(from, to);
    case CU_GRAPH_NODE_TYPE_HOST: return copy_host(from, to);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return copy_memory_operations(from, to);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return copy_record(from, to);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return copy_wait(from, to);
    case CU_GRAPH_NODE_TYPE_GRAPH: return copy_child(from, to);
    case CU_GRAPH_NODE_TYPE_EMPTY: return true;
    default: return false;
    }
}

bool orion_graph_copy_parameters(CUgraph from, CUgraph to)
{
    struct orion_graph_nodes theirs, own;
    bool copied = orion_graph_nodes_read(from, &theirs);
    copied = orion_graph_nodes_read(to, &own) && copied; /* reads both, because both are freed below */
    copied = copied && theirs.count == own.count && theirs.edge_sum == own.edge_sum;
    for (uint32_t i = 0; copied && i < own.count; i++)
        copied = theirs.type[i] == own.type[i] && orion_graph_node_copy(own.type[i], theirs.node[i], own.node[i]);
    orion_graph_nodes_free(&theirs);
    orion_graph_nodes_free(&own);
    return copied;
}
