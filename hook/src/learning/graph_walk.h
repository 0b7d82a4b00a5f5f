/* A walk over a graph's nodes. It computes the graph's identity (graphs.h), its number of SMs and its class. The walk
 * is not on the launch path. No other thread may use the graph during the walk; the driver requires the same for
 * instantiating the graph. */
#ifndef ORION_GRAPH_WALK_H
#define ORION_GRAPH_WALK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_process;

struct orion_graph_walk {
    uint64_t sum;    /* sum of the nodes' parts */
    bool whole;      /* the nodes determine what will run */
    bool local;      /* a kernel has no name */
    bool collective; /* a kernel is a collective: see collective.h */
    /* The driver may run nodes of the graph itself in streams of its own: it has several roots, or not one edge less than nodes, or a
     * conditional node. */
    bool branches;
    bool child_branches;     /* the same of a child graph */
    uint32_t gpus;           /* bit i: kernels run in the primary context of GPU i; only in a process that uses several */
    uint64_t kernels, needs; /* number of kernels; sum of the SMs that each kernel fills */
    uint64_t of_class[3];    /* number of kernels by enum orion_kernel_class */
    uint64_t largest, name;  /* number of threads of the largest kernel, and the hash of its name */
};

/* The nodes that a walk has seen: those of the graph itself, in the driver's order. */
struct orion_graph_list {
    uint32_t count, edges;
    CUgraphNode *node; /* NULL: there is no list */
    CUgraphNodeType *type;
    uint64_t *part; /* what each node adds to the sum */
    uint32_t types; /* bit t: the graph or one of its child graphs has a node of type t; bit 31: of a later type */
};
void orion_graph_list_free(struct orion_graph_list *list);

/* list: NULL, or what the walk fills; a walk that is not `whole` leaves it without nodes. */
void orion_graph_walk(struct orion_process *process, CUgraph graph, struct orion_graph_walk *walk, struct orion_graph_list *list);

/* The same, for child graphs; and for one node of a graph, which may be a child graph. Both fill `sum`, `whole`, `local`,
 * `collective`, `branches` and `child_branches` only. */
void orion_graph_walk_child(struct orion_process *process, CUgraph graph, struct orion_graph_walk *walk,
                            struct orion_graph_list *list);
void orion_graph_walk_node(struct orion_process *process, CUgraphNode node, struct orion_graph_walk *walk);

/* The child graph that a node of this type is. False: the driver does not show it. */
bool orion_graph_child(CUgraphNode node, CUgraph *child);

/* What a node with work of that identity adds to the sum. */
uint64_t orion_graph_part(uint64_t identity);

#endif
