/* Walking a graph's nodes: what they come to, see graphs.h. Off the launch path; the caller has the graph to itself, as
 * the driver demands of whoever instantiates it. */
#ifndef ORION_GRAPH_WALK_H
#define ORION_GRAPH_WALK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_process;

struct orion_graph_walk {
    uint64_t sum;            /* of the nodes' parts */
    bool whole;              /* every node says what will run */
    bool local;              /* some kernel has no name */
    bool collective;         /* some kernel is one: see collective.h */
    uint64_t kernels, needs; /* needs: the sum of the SMs that each kernel fills */
    uint64_t of_class[3];    /* kernels by enum orion_kernel_class */
    uint64_t largest, name;  /* threads of the largest kernel, and its name's hash */
};

void orion_graph_walk(struct orion_process *process, CUgraph graph, struct orion_graph_walk *walk);

/* What one node of a graph, a child graph's node included, comes to. */
void orion_graph_walk_node(struct orion_process *process, CUgraphNode node, struct orion_graph_walk *walk);

/* What a node whose work is of that identity adds to the sum. */
uint64_t orion_graph_part(uint64_t identity);

#endif
