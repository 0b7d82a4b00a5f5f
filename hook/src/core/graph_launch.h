/* A program's launch of an executable graph: one launch, or one for each piece (be/graph_pieces.h). */
#ifndef ORION_GRAPH_LAUNCH_H
#define ORION_GRAPH_LAUNCH_H

#include <cuda.h>

#include "streams/stream_name.h"

typedef CUresult CUDAAPI orion_graph_launcher(CUgraphExec exec, CUstream stream);

/* After the program has instantiated the graph: whether a launch of it allocates memory (memory/graph_memory.h). */
void orion_graph_launch_made(CUgraphExec exec, CUgraph graph);

CUresult orion_graph_launch(orion_graph_launcher *real, CUgraphExec exec, struct orion_stream_name stream);

#endif
