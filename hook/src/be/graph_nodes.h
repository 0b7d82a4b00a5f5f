/* The nodes of a graph that has a copy: which types can be copied, how they are numbered, and how the parameters of one
 * graph get into another. */
#ifndef ORION_GRAPH_NODES_H
#define ORION_GRAPH_NODES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* The nodes of a graph in the driver's order, and its edges as pairs of numbers in this order. */
struct orion_graph_nodes {
    uint32_t count, edges;
    CUgraphNode *node;
    CUgraphNodeType *type;
    uint32_t *from, *to;
    uint32_t *by_handle; /* hash table of numbers + 1 */
    uint32_t slots;      /* in by_handle; a power of two */
    uint64_t edge_sum;   /* a hash of the pairs and of the edges' types */
};

/* Reads a graph. False: no memory, the driver refuses, or a node of the graph or of its child graphs has a type that
 * cannot be copied. The caller calls orion_graph_nodes_free in either case. */
bool orion_graph_nodes_read(CUgraph graph, struct orion_graph_nodes *nodes);
void orion_graph_nodes_free(struct orion_graph_nodes *nodes);

/* UINT32_MAX: the node is not in the table. */
uint32_t orion_graph_number(const uint32_t *by_handle, uint32_t slots, const CUgraphNode *node, uint32_t stride,
                            CUgraphNode handle);

/* Gives `to` the parameters of `from`, which has the same type; child graphs are copied node by node. False: not all of
 * them. Attributes of kernels stay: cuGraphExecUpdate refuses most changes of them, and none changes results. */
bool orion_graph_node_copy(CUgraphNodeType type, CUgraphNode from, CUgraphNode to);

/* Gives the nodes of `to` the parameters of the nodes of `from`, which has the same nodes in the same order. */
bool orion_graph_copy_parameters(CUgraph from, CUgraph to);

#endif
