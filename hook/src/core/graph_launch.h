/* A program's launch of an executable graph: one launch, or one for each piece (be/graph_pieces.h). */
#ifndef ORION_GRAPH_LAUNCH_H
#define ORION_GRAPH_LAUNCH_H

#include <cuda.h>

#include "streams/stream_name.h"

typedef CUresult CUDAAPI orion_graph_launcher(CUgraphExec exec, CUstream stream);

CUresult orion_graph_launch(orion_graph_launcher *real, CUgraphExec exec, struct orion_stream_name stream);

#endif
