/* The program's updates of its executables, which the hook's copies follow. The wrappers call these functions after a
 * successful call of the program. If a copy cannot follow, the program's executable runs until a later cuGraphExecUpdate,
 * which sets all parameters. */
#ifndef ORION_GRAPH_UPDATES_H
#define ORION_GRAPH_UPDATES_H

#include <cuda.h>
#include <stdbool.h>

void orion_graph_copy_updated(CUgraphExec exec, CUgraph graph);
void orion_graph_copy_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
void orion_graph_copy_child_set(CUgraphExec exec, CUgraphNode node, CUgraph child);

/* The copy's node for the program's node, whose parameters the caller sets, and then passes the result on. NULL: none. */
CUgraphNode orion_graph_copy_node(CUgraphExec exec, CUgraphNode node);
void orion_graph_copy_node_set(CUgraphExec exec, CUresult result);

#endif
