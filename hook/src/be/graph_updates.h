/* The program's updates of its executables: the identities of graphs (learning/graphs.h) and the hook's copies follow them.
 * The wrappers call these functions after a successful call of the program. If a copy cannot follow, the program's
 * executable runs until a later cuGraphExecUpdate, which sets all parameters.
 *
 * On an H200 the driver takes 65 ns a node for cuGraphExecUpdate and 150 ns to set a node, so the hook has to be as quick.
 * For cuGraphExecUpdate it reads each node of the program's graph once, and the edges, which show that the nodes are those
 * of the copy, in the same order. For a node that is set it calls the driver only if it has not seen the kernel before
 * (graph_parameters.h).
 *
 * Rejected: to set a node only in its piece, and in the program's executable once that is launched. Each call that takes the
 * executable, also one that the hook does not know, would then find old parameters. Rejected: to read an update's graph
 * only at the next launch in pieces, because the program may change or destroy it before. */
#ifndef ORION_GRAPH_UPDATES_H
#define ORION_GRAPH_UPDATES_H

#include <cuda.h>
#include <stdbool.h>

void orion_graph_updated(CUgraphExec exec, CUgraph graph);
void orion_graph_copy_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
void orion_graph_set_child(CUgraphExec exec, CUgraphNode node, CUgraph child);

/* The program has launched a kernel with clusters of several blocks, or set them for a node. From then on, an update may give a node
 * clusters that it did not have. */
void orion_graph_clusters_begin(void);

/* Kernels will update kernel nodes of the program's graphs. Such a graph can be instantiated once only, and pieces would not be updated. */
void orion_graph_device_updates_begin(void);

/* parameters: of the driver's structure for the type, or a CUevent *. */
void orion_graph_set(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, const void *parameters);
void orion_graph_set_any(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *parameters);

#endif
