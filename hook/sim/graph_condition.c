/* Conditional nodes. Kernels have no effects here, so no kernel sets a condition: a node has the value that its handle
 * assigns at each launch, or 0, and the body of a loop runs at most once.
 *
 * A body may have every node when the program adds it; the types that a body may not have are refused when the graph is
 * instantiated (seen with NCCL in a body, https://github.com/NVIDIA/nccl/issues/1986). */
#include <stdlib.h>

#include "graph_calls.h"

struct condition {
    uint32_t kind;
    unsigned at_launch;
};

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
                                                unsigned at_launch, unsigned flags)
{
    (void)context;
    GRAPH(graph, handle);
    SIM_REFUSE(flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT, CUDA_ERROR_INVALID_VALUE);
    struct condition *condition = sim_handle_new(SIM_CONDITION, sizeof *condition);
    SIM_REFUSE(!condition, CUDA_ERROR_OUT_OF_MEMORY);
    condition->at_launch = flags ? at_launch : 0;
    *handle = (CUgraphConditionalHandle)(uintptr_t)condition;
    return CUDA_SUCCESS;
}

static bool size_fits(CUgraphConditionalNodeType type, unsigned size)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF: return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE: return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH: return size > 0;
    default: return false;
    }
}

CUresult sim_node_set_condition(struct CUgraphNode_st *node, CUDA_CONDITIONAL_NODE_PARAMS *parameters)
{
    SIM_REFUSE(!sim_handle_is((void *)(uintptr_t)parameters->handle, SIM_CONDITION), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!size_fits(parameters->type, parameters->size), CUDA_ERROR_INVALID_VALUE);
    CUgraph *bodies = calloc(parameters->size, sizeof(CUgraph));
    SIM_REFUSE(!bodies, CUDA_ERROR_OUT_OF_MEMORY);
    node->condition.handle = parameters->handle;
    node->condition.type = parameters->type;
    node->condition.size = parameters->size;
    node->condition.bodies = bodies;
    for (unsigned i = 0; i < parameters->size; i++) {
        bodies[i] = sim_graph_new();
        SIM_REFUSE(!bodies[i], CUDA_ERROR_OUT_OF_MEMORY);
        bodies[i]->owned = true;
    }
    parameters->phGraph_out = bodies;
    return CUDA_SUCCESS;
}

const struct CUgraph_st *sim_node_chosen_body(const struct CUgraphNode_st *node)
{
    unsigned value = ((struct condition *)(uintptr_t)node->condition.handle)->at_launch, chosen = value;
    if (node->condition.type != CU_GRAPH_COND_TYPE_SWITCH) chosen = !value;
    return chosen < node->condition.size ? node->condition.bodies[chosen] : NULL;
}

bool sim_graph_fits_body(const struct CUgraph_st *graph)
{
    bool fits = true;
    for (size_t i = 0; fits && i < graph->count; i++) switch (graph->nodes[i]->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_MEMCPY:
        case CU_GRAPH_NODE_TYPE_MEMSET:
        case CU_GRAPH_NODE_TYPE_EMPTY:
        case CU_GRAPH_NODE_TYPE_CONDITIONAL: break;
        case CU_GRAPH_NODE_TYPE_GRAPH: fits = sim_graph_fits_body(graph->nodes[i]->child); break;
        default: fits = false;
        }
    return fits;
}
