#include "be/graph_nodes.h"

#include <stdlib.h>

#include "generated/driver.h"
#include "system/mix.h"

#define BIT(type) (1u << CU_GRAPH_NODE_TYPE_##type)

bool orion_graph_types_can_be_copied(uint32_t types)
{
    return (types & ~(BIT(KERNEL) | BIT(MEMCPY) | BIT(MEMSET) | BIT(HOST) | BIT(GRAPH) | BIT(EMPTY) | BIT(EVENT_RECORD) |
                      BIT(WAIT_EVENT) | BIT(BATCH_MEM_OP))) == 0;
}

bool orion_graph_nodes_list(CUgraph graph, uint32_t count, CUgraphNode *node)
{
    size_t found = (size_t)count + 1; /* room for one more, so that a larger graph shows */
    return orion_driver.cuGraphGetNodes != NULL && orion_driver.cuGraphGetNodes(graph, node, &found) == CUDA_SUCCESS &&
           found == count;
}

static uint32_t home_of(CUgraphNode handle, uint32_t slots)
{
    return (uint32_t)(orion_mix((uint64_t)(uintptr_t)handle) >> 20) & (slots - 1);
}

bool orion_graph_nodes_number(struct orion_graph_nodes *nodes)
{
    if (nodes->by_handle != NULL) return true;
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

static uint32_t number_of(struct orion_graph_nodes *nodes, CUgraphNode handle)
{
    if (!orion_graph_nodes_number(nodes)) return UINT32_MAX;
    return orion_graph_number(nodes->by_handle, nodes->slots, nodes->node, sizeof *nodes->node, handle);
}

/* Two nodes and the data of each edge, and room for one more, so that a larger graph shows. */
size_t orion_graph_scratch(uint32_t edges) { return ((size_t)edges + 1) * (2 * sizeof(CUgraphNode) + sizeof(CUgraphEdgeData)); }

/* The driver refuses to list the edges without their data if an edge has any (CUDA_ERROR_LOSSY_QUERY). */
bool orion_graph_edges_list(CUgraph graph, uint32_t edges, void *scratch)
{
    size_t most = (size_t)edges + 1, count = most;
    CUgraphNode *from = scratch;
    void *data = from + 2 * most;
    return orion_driver.cuGraphGetEdges_v2 != NULL &&
           orion_driver.cuGraphGetEdges_v2(graph, from, from + most, data, &count) == CUDA_SUCCESS && count == edges;
}

/* The next node is the first guess: the driver lists the edges of most graphs in the order of the nodes. */
bool orion_graph_edges_number(struct orion_graph_nodes *nodes, const void *scratch)
{
    const CUgraphNode *from = scratch, *to = from + nodes->edges + 1, *node = nodes->node;
    const CUgraphEdgeData *data = (const void *)(to + nodes->edges + 1);
    uint32_t first = UINT32_MAX, second = 0, count = nodes->count; /* the first guesses are 0 and 1 */
    nodes->edge_sum = 0, nodes->plain = true;
    for (uint32_t i = 0; i < nodes->edges; i++) {
        if (++first >= count || node[first] != from[i]) first = number_of(nodes, from[i]);
        if (++second >= count || node[second] != to[i]) second = number_of(nodes, to[i]);
        if (first == UINT32_MAX || second == UINT32_MAX) return false;
        if (nodes->from != NULL) nodes->from[i] = first, nodes->to[i] = second;
        nodes->edge_sum += orion_mix(((uint64_t)first << 32) + second + ((uint64_t)data[i].type << 60) + 1);
        nodes->plain = nodes->plain && data[i].type == 0;
    }
    return true;
}

bool orion_graph_edges_are(uint32_t edges, const uint32_t *from, const uint32_t *to, const CUgraphNode *node, const void *scratch)
{
    const CUgraphNode *listed_from = scratch, *listed_to = listed_from + edges + 1;
    const CUgraphEdgeData *data = (const void *)(listed_to + edges + 1);
    for (uint32_t i = 0; i < edges; i++)
        if (node[from[i]] != listed_from[i] || node[to[i]] != listed_to[i] || data[i].type != 0) return false;
    return true;
}

void orion_graph_nodes_free(struct orion_graph_nodes *nodes)
{
    free(nodes->from); /* and `to` */
    free(nodes->by_handle);
    *nodes = (struct orion_graph_nodes){0};
}
