/* Which executable graphs allocate device memory: after a launch of one the hook looks what graphs hold (pools.h). Other
 * launches pay nothing. The hook looks at the nodes of a graph only in a process that has made an allocation node or has
 * captured an allocation. */
#ifndef ORION_GRAPH_MEMORY_H
#define ORION_GRAPH_MEMORY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"
#include "streams/stream_name.h"

#define ORION_GRAPHS_WITH_MEMORY 1024u /* a power of two */

struct orion_graph_memory {
    _Atomic bool exists; /* a graph of this process allocates memory */
    _Atomic bool full;   /* an executable found no entry: from then on every launch counts as one that allocates */
    _Atomic uint64_t exec[ORION_GRAPHS_WITH_MEMORY];
};
ORION_PART(graph_memory)

static inline bool orion_graph_memory_exists(const struct orion_process *process)
{
    return atomic_load_explicit(&orion_graph_memory(process)->exists, memory_order_relaxed);
}

void orion_graph_memory_begins(void); /* the program makes an allocation node */
/* After a graph was instantiated: notes the executable if it allocates, and then returns true. */
bool orion_graph_memory_made(struct orion_process *process, CUgraphExec exec, CUgraph graph);
void orion_graph_memory_ending(CUgraphExec exec);
/* After an upload or a launch. */
void orion_graph_memory_launched(CUgraphExec exec, struct orion_stream_name stream, CUresult result);

/* The two attributes of a pool that the hook reads, for the memory of a device's graphs. */
bool orion_graph_memory_ask(CUdevice device, CUmemPool_attribute attribute, uint64_t *bytes);

#endif
