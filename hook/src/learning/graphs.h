/* Executable graphs by their handles: an identity made of their nodes, so that a graph that is captured again, in this
 * process or the next, is known again.
 *
 * The nodes are walked when the graph is instantiated or updated, never at a launch (35 ns a node on an H200, where
 * instantiating takes 4 us a node and updating 0.1 us). The identity is a hash of a sum over the nodes, those of child
 * graphs included, so the order in which the driver lists them does not matter, and a change of one node takes its old
 * part off the sum and adds the new one. What decides how long a node takes goes in (a kernel and its shape, about how
 * many bytes are copied), arguments and addresses do not: programs change those with every token. Where the nodes do not
 * say what will run (conditional nodes, graphs that the device launches or updates), the handle is the identity, and
 * what was learnt of it is forgotten with every change.
 *
 * Fixed, bounded tables; the least recently made graph of a neighbourhood makes room and goes by its handle from then
 * on. A launch makes one probe. */
#ifndef ORION_GRAPHS_H
#define ORION_GRAPHS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "learning/identity.h"
#include "process/process.h"

#define ORION_GRAPHS 2048u      /* executable graphs; a power of two */
#define ORION_GRAPH_NODES 1024u /* nodes that differ from the graph that they were instantiated from; a power of two */

struct orion_graph {
    _Atomic uint64_t exec;     /* 0: free */
    _Atomic uint64_t identity; /* read on the launch path; the rest by those that hold the lock */
    uint64_t sum;              /* over the nodes */
    uint64_t name;             /* of its largest kernel; see orion_kernel_text */
    uint32_t sms;              /* mean over its kernels of what each fills */
    uint32_t kernel_class;     /* of most of its kernels */
    uint32_t made;             /* the clock then */
    bool local, whole;         /* made of handles; all nodes are known */
    _Atomic bool collective;   /* some kernel was one when it was made; read on the launch path */
};

struct orion_graph_node {
    uint64_t exec, node, part;
    bool enabled;
}; /* exec 0: free; what the node adds to the sum now */

struct orion_graphs {
    _Atomic uint32_t lock; /* changes are rare and short; a launch does not take it */
    uint32_t clock;
    bool nodes_changed; /* of any graph, ever */
    struct orion_graph entry[ORION_GRAPHS];
    struct orion_graph_node changed[ORION_GRAPH_NODES];
};
ORION_PART(graphs)

/* The identity of a launch of the graph. */
uint64_t orion_graph_identity(struct orion_graphs *graphs, const void *exec);

/* Whether it has a collective, see collective.h. */
bool orion_graph_is_collective(struct orion_graphs *graphs, const void *exec);

/* What a graph is made of, for orion_kernel_note. False: it is not known. */
struct orion_graph_facts {
    uint64_t name;
    uint32_t sms, kernel_class;
};
bool orion_graph_facts(struct orion_graphs *graphs, const void *exec, struct orion_graph_facts *facts);

/* What they are made of; after the driver's call, but for the last. */
void orion_graph_made(CUgraphExec exec, CUgraph graph);                           /* instantiated from it, or updated by it */
void orion_graph_node_set(CUgraphExec exec, CUgraphNode node, uint64_t identity); /* NONE: nothing that matters */
void orion_graph_child_set(CUgraphExec exec, CUgraphNode node, CUgraph child);
void orion_graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
void orion_graph_ending(CUgraphExec exec);

#endif
