#include "memory/graph_memory.h"

#include <stddef.h>
#include <stdlib.h>

#include "generated/driver.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "system/mix.h"

#define NEIGHBOURHOOD 16u
#define DEPTH_MOST 8u /* of child graphs in child graphs */
#define NODES_MOST (1u << 20)

void orion_graph_memory_begins(void)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) atomic_store(&orion_graph_memory(process)->exists, true);
}

static _Atomic uint64_t *find(struct orion_graph_memory *memory, uint64_t exec, uint64_t wanted)
{
    uint64_t home = orion_mix(exec) >> 20;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        _Atomic uint64_t *entry = &memory->exec[(home + i) & (ORION_GRAPHS_WITH_MEMORY - 1)];
        if (atomic_load_explicit(entry, memory_order_relaxed) == wanted) return entry;
    }
    return NULL;
}

static bool allocates(CUgraph graph, unsigned depth);

static bool node_allocates(CUgraphNode node, unsigned depth)
{
    CUgraph child;
    CUgraphNodeType type;
    if (orion_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) return true;
    if (type != CU_GRAPH_NODE_TYPE_GRAPH) return false;
    return orion_driver.cuGraphChildGraphNodeGetGraph == NULL ||
           orion_driver.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS || allocates(child, depth + 1);
}

/* Also true if the driver does not show the nodes. */
static bool allocates(CUgraph graph, unsigned depth)
{
    size_t count = 0;
    bool found = false;
    if (depth >= DEPTH_MOST || orion_driver.cuGraphGetNodes == NULL || orion_driver.cuGraphNodeGetType == NULL ||
        orion_driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count > NODES_MOST)
        return true;
    CUgraphNode *nodes = malloc((count + 1) * sizeof *nodes);
    if (nodes == NULL || (count > 0 && orion_driver.cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS)) found = true;
    for (size_t i = 0; i < count && !found; i++) found = node_allocates(nodes[i], depth);
    free(nodes);
    return found;
}

bool orion_graph_memory_made(struct orion_process *process, CUgraphExec exec, CUgraph graph)
{
    struct orion_graph_memory *memory = orion_graph_memory(process);
    uint64_t word = (uint64_t)(uintptr_t)exec, none = 0;
    if (!orion_graph_memory_exists(process) || !allocates(graph, 0)) return false;
    if (find(memory, word, word) != NULL) return true;
    _Atomic uint64_t *entry;
    while ((entry = find(memory, word, 0)) != NULL) {
        if (atomic_compare_exchange_strong(entry, &none, word)) return true;
        none = 0;
    }
    atomic_store(&memory->full, true);
    return true;
}

void orion_graph_memory_ending(CUgraphExec exec)
{
    struct orion_process *process = orion_process_if_managed();
    uint64_t word = (uint64_t)(uintptr_t)exec;
    _Atomic uint64_t *entry = process == NULL || exec == NULL ? NULL : find(orion_graph_memory(process), word, word);
    if (entry != NULL) atomic_store(entry, 0);
}

void orion_graph_memory_launched(CUgraphExec exec, struct orion_stream_name stream, CUresult result)
{
    struct orion_process *process = orion_process_if_managed();
    uint64_t word = (uint64_t)(uintptr_t)exec;
    if (process == NULL || result != CUDA_SUCCESS || !orion_graph_memory_exists(process)) return;
    struct orion_graph_memory *memory = orion_graph_memory(process);
    if (find(memory, word, word) != NULL || atomic_load(&memory->full)) orion_pools_graph_launched(orion_memory_device_of(stream));
}

bool orion_graph_memory_ask(CUdevice device, CUmemPool_attribute attribute, uint64_t *bytes)
{
    CUgraphMem_attribute same =
        attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT : CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
    return orion_driver.cuDeviceGetGraphMemAttribute != NULL &&
           orion_driver.cuDeviceGetGraphMemAttribute(device, same, bytes) == CUDA_SUCCESS;
}
