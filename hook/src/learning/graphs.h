/* Executable graphs by their handles. The hook learns durations by identity (identity.h). The identity of a graph is
 * made from its nodes, so the hook recognises a graph that is captured again, in this process or a later one.
 *
 * The hook walks the nodes when the program instantiates or updates the graph, never at a launch. For an hp client it
 * does not walk them, unless hp publishes its launches: nobody else reads the identities of hp's graphs. On an H200 the walk
 * takes 35 ns a node; instantiating takes 4 us a node and updating 0.1 us. The identity is a hash of a sum over the
 * nodes, including those of child graphs. So the order in which the driver lists the nodes does not matter. When a node
 * changes, the hook subtracts its old part from the sum and adds the new part. A node's part contains what determines
 * its duration: the kernel and its shape, or about how many bytes it copies. It contains no arguments and no addresses,
 * because programs change those with every token. Conditional nodes, and graphs that the device launches or updates, do
 * not determine what will run. For them the hook makes the identity from the handle, and each change clears what the
 * hook learnt of that identity.
 *
 * The tables have a fixed size. A graph can be in a few entries only, and a launch searches these entries. If all of
 * them are in use, a new graph replaces the oldest one, and one with a collective last of all. The replaced graph's
 * identity is then made from its handle. */
#ifndef ORION_GRAPHS_H
#define ORION_GRAPHS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "learning/identity.h"
#include "process/process.h"

#define ORION_GRAPHS 8192u      /* executable graphs and pieces of them (be/graph_pieces.h); a power of two */
#define ORION_GRAPH_NODES 4096u /* nodes that changed after their graph was instantiated; a power of two */

struct orion_graph {
    _Atomic uint64_t exec;     /* 0: free */
    _Atomic uint64_t identity; /* read on the launch path; the lock guards the members that are not _Atomic */
    uint64_t sum;              /* sum of the nodes' parts */
    uint64_t name;             /* hash of the largest kernel's name; see orion_kernel_text */
    uint32_t sms;              /* how many SMs a kernel fills: the mean over the kernels */
    uint32_t kernel_class;     /* the class of most of the kernels */
    uint32_t kernels;
    uint32_t made;     /* `clock` when the entry was made */
    bool local, whole; /* a node's identity is local; the nodes determine what will run */
    /* Since the graph was made, it has contained a collective; the driver may run it in several streams. Read on the launch path. */
    _Atomic bool collective, branches;
    _Atomic uint32_t gpus;
    bool child_branches; /* those of child graphs */
};

struct orion_graph_node {
    uint64_t exec, node, part; /* part: what the node adds to the sum while it is enabled */
    uint32_t made;             /* as in the graph's entry; a record with another value is free */
    bool enabled;
};

struct orion_graphs {
    _Atomic uint32_t lock; /* changes are rare and short; a launch does not take it */
    uint32_t clock;
    struct orion_graph entry[ORION_GRAPHS];
    struct orion_graph_node changed[ORION_GRAPH_NODES];
};
ORION_PART(graphs)

/* The identity of a launch of the graph. */
uint64_t orion_graph_identity(struct orion_graphs *graphs, const void *exec);

/* Whether the graph has an identity that is made from its nodes. */
bool orion_graph_is_known(struct orion_graphs *graphs, const void *exec);

/* Whether the graph contains a collective, see collective.h. The second function: a node that was set is one, from now on. */
bool orion_graph_is_collective(struct orion_graphs *graphs, const void *exec);
void orion_graph_gets_collective(struct orion_process *process, CUgraphExec exec);

/* Whether the driver may run nodes of the graph in streams of its own, which wait for one another: nodes that may run side by side,
 * bodies of conditional nodes, and graphs that the device may launch, wherever they are launched (docs/results/programs.md). The walk
 * only counts edges and roots. It takes a tree with one root for a chain (no capture makes one), and a chain with a needless edge for a
 * graph with branches; a caller that has the levels of the graph's own nodes says how it is. */
bool orion_graph_has_branches(struct orion_graphs *graphs, const void *exec);
void orion_graph_set_branches(struct orion_graphs *graphs, const void *exec, bool own);

/* On which of the process's GPUs kernels of the graph run, in the primary contexts: bit i for GPU i. 0: not known, as in a process that
 * uses one GPU. */
uint32_t orion_graph_gpus(struct orion_graphs *graphs, const void *exec);

/* Whether the program may launch it from a kernel. Asks the driver. */
bool orion_graph_device_may_launch(CUgraphExec exec);

/* Facts of a graph, for orion_kernel_note. False: they are not known. */
struct orion_graph_facts {
    uint64_t name;
    uint32_t sms, kernel_class, kernels;
};
bool orion_graph_facts(struct orion_graphs *graphs, const void *exec, struct orion_graph_facts *facts);

/* Whether a client of this process reads identities and facts of graphs: a be client, an hp client that publishes its
 * launches, or a client whose role is not known yet. If none does, the hook does not walk graphs, and a graph that is
 * made or changed then has an identity that is made from its handle, until the program updates it again. */
bool orion_graphs_are_read(const struct orion_process *process);

/* The wrappers report changes of graphs, after the driver's call; orion_graph_ending comes before it. */
struct orion_graph_list; /* graph_walk.h; NULL, or what the walk fills if it happens */
void orion_graph_made_listing(CUgraphExec exec, CUgraph graph, struct orion_graph_list *list);
static inline void orion_graph_made(CUgraphExec exec, CUgraph graph) /* from `graph`, or updated by it */
{
    orion_graph_made_listing(exec, graph, NULL);
}
void orion_graph_node_set(CUgraphExec exec, CUgraphNode node, uint64_t identity); /* NONE: no effect on GPU time */
void orion_graph_child_set(CUgraphExec exec, CUgraphNode node, CUgraph child);
void orion_graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
void orion_graph_ending(CUgraphExec exec);

/* For a caller that knows the parts of the graph's nodes: one of them was `before` and is `after`; 0: it is disabled. */
void orion_graph_part_changed(struct orion_process *process, CUgraphExec exec, uint64_t before, uint64_t after, bool local);

#endif
