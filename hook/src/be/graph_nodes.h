/* The nodes and edges of a graph that has a copy: which types can be copied, and how nodes are numbered. */
#ifndef ORION_GRAPH_NODES_H
#define ORION_GRAPH_NODES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* The nodes of a graph in the driver's order, and its edges as pairs of numbers in this order. */
struct orion_graph_nodes {
    uint32_t count, edges;
    const CUgraphNode *node;
    uint32_t *from, *to; /* NULL: only the sum is wanted */
    uint32_t *by_handle; /* hash table of numbers + 1; NULL: not made yet */
    uint32_t slots;      /* in by_handle; a power of two */
    uint64_t edge_sum;   /* a hash of the pairs and of the edges' types */
    bool plain;          /* no edge has a type */
};

/* Whether nodes of all these types can be copied: bits as in struct orion_graph_list. */
bool orion_graph_types_can_be_copied(uint32_t types);

/* Writes the nodes of a graph into `node`, which has room for count + 1. False: the graph has not `count` nodes. */
bool orion_graph_nodes_list(CUgraph graph, uint32_t count, CUgraphNode *node);

/* Lists the edges of a graph. False: the graph has not `edges` of them, or the driver refuses. scratch:
 * orion_graph_scratch bytes, which the functions below read. */
size_t orion_graph_scratch(uint32_t edges);
bool orion_graph_edges_list(CUgraph graph, uint32_t edges, void *scratch);

/* Numbers the edges in scratch: nodes->from, to, edge_sum and plain. False: no memory, or an edge of other nodes. */
bool orion_graph_edges_number(struct orion_graph_nodes *nodes, const void *scratch);

/* Whether the edges in scratch are plain, and are these pairs of numbers of `node`, in this order. It is quicker than
 * numbering them; a driver usually lists the edges of equal graphs in the same order. */
bool orion_graph_edges_are(uint32_t edges, const uint32_t *from, const uint32_t *to, const CUgraphNode *node, const void *scratch);

/* Frees the tables. The nodes stay the caller's. */
void orion_graph_nodes_free(struct orion_graph_nodes *nodes);

/* Makes by_handle. False: no memory. */
bool orion_graph_nodes_number(struct orion_graph_nodes *nodes);

/* UINT32_MAX: the node is not in the table. */
uint32_t orion_graph_number(const uint32_t *by_handle, uint32_t slots, const CUgraphNode *node, uint32_t stride,
                            CUgraphNode handle);

#endif
