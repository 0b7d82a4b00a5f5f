/* Nodes that allocate and free device memory. An allocation has the same address in every launch, so the address space
 * of a node is reserved when the node is made, and never returned. Allocating and freeing take effect when the graph is
 * launched, as stream-ordered allocation does here (pool.c). */
#include <pthread.h>

#include "allocation.h"
#include "graph_calls.h"

static bool has(const struct CUgraph_st *graph, CUgraphNodeType type)
{
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->type == type) return true;
    return false;
}

bool sim_graph_has_memory(const struct CUgraph_st *graph)
{
    return has(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC) || has(graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
}

bool sim_graph_is_single(const struct CUgraph_st *graph)
{
    return sim_graph_has_memory(graph) || has(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL);
}

CUresult sim_node_set_allocation(struct CUgraphNode_st *node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    SIM_REFUSE(!parameters->bytesize || parameters->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(parameters->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    void *pages = sim_pages(parameters->bytesize);
    SIM_REFUSE(!pages, CUDA_ERROR_OUT_OF_MEMORY);
    node->memory.start = parameters->dptr = (CUdeviceptr)(uintptr_t)pages;
    node->memory.size = parameters->bytesize;
    node->memory.device = parameters->poolProps.location.id;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                        CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    ADD(MEM_ALLOC, sim_node_set_allocation(node, parameters));
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    NODE(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, parameters);
    *parameters = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                               .poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                               .poolProps.location.id = node->memory.device,
                                               .bytesize = node->memory.size,
                                               .dptr = node->memory.start};
    return CUDA_SUCCESS;
}

static struct CUgraphNode_st *node_of(const struct CUgraph_st *graph, CUgraphNodeType type, CUdeviceptr start)
{
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->type == type && graph->nodes[i]->memory.start == start) return graph->nodes[i];
    return NULL;
}

/* The new node is already part of the graph, and its address is still 0. */
CUresult sim_node_set_free(struct CUgraphNode_st *node, CUdeviceptr start)
{
    struct sim_allocation found;
    bool other_graph = sim_allocation_find(start, &found) && found.start == start && found.memory == SIM_OF_GRAPH;
    bool own = node_of(node->graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, start) != NULL;
    SIM_REFUSE(!start || node_of(node->graph, CU_GRAPH_NODE_TYPE_MEM_FREE, start) || (!own && !other_graph),
               CUDA_ERROR_INVALID_VALUE);
    node->memory.start = start;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                       CUdeviceptr start)
{
    ADD(MEM_FREE, sim_node_set_free(node, start));
}

GETS(cuGraphMemFreeNodeGetParams, MEM_FREE, CUdeviceptr, memory.start)

CUresult sim_graph_allocate(struct CUctx_st *context, const struct CUgraphNode_st *node)
{
    return sim_device_memory_at(context, node->memory.start, node->memory.size);
}

CUresult sim_graph_free_memory(CUdeviceptr start)
{
    struct sim_allocation allocation;
    SIM_REFUSE(!sim_allocation_find(start, &allocation) || allocation.start != start || allocation.memory != SIM_OF_GRAPH,
               CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_allocation_remove(start, &allocation), CUDA_ERROR_INVALID_VALUE);
    sim_device_memory_free(&allocation);
    return CUDA_SUCCESS;
}

bool sim_graph_unfreed(const struct CUgraph_st *graph, bool free_it)
{
    struct sim_allocation found;
    bool unfreed = false;
    for (size_t i = 0; i < graph->count; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !sim_allocation_find(node->memory.start, &found)) continue;
        unfreed = true;
        if (free_it) sim_graph_free_memory(node->memory.start);
    }
    return unfreed;
}
