/* What calls about nodes have in common: the checks of their arguments. */
#ifndef ORION_SIM_GRAPH_CALLS_H
#define ORION_SIM_GRAPH_CALLS_H

#include "graph.h"

#define GRAPH(graph, pointer) \
    SIM_READY(); \
    SIM_REFUSE(!(pointer) || !sim_graph_is(graph), CUDA_ERROR_INVALID_VALUE)
#define NODE(node, of_type, pointer) \
    SIM_READY(); \
    SIM_REFUSE(!(pointer) || !sim_node_is(node) || (node)->type != (of_type), CUDA_ERROR_INVALID_VALUE)

/* Add a node and call `set` to define it; remove the node if that fails. */
#define ADD(kind, set) \
    do { \
        GRAPH(graph, made); \
        struct CUgraphNode_st *node; \
        SIM_TRY(sim_node_new(graph, CU_GRAPH_NODE_TYPE_##kind, dependencies, count, &node)); \
        CUresult result_ = (set); \
        if (result_) sim_node_free(node); \
        else *made = node; \
        return result_; \
    } while (0)

#define GETS(function, kind, type_of, member) \
    CUresult CUDAAPI function(CUgraphNode node, type_of *value) \
    { \
        NODE(node, CU_GRAPH_NODE_TYPE_##kind, value); \
        *value = node->member; \
        return CUDA_SUCCESS; \
    }
#define SETS(function, kind, type_of, set) \
    CUresult CUDAAPI function(CUgraphNode node, const type_of *value) \
    { \
        NODE(node, CU_GRAPH_NODE_TYPE_##kind, value); \
        return set(node, value); \
    }

/* The program names a node of an executable graph by the node of the original graph. */
#define IN_EXEC(kind, pointer) \
    SIM_READY(); \
    struct CUgraphNode_st *copy = sim_node_in_exec(exec, node, CU_GRAPH_NODE_TYPE_##kind); \
    SIM_REFUSE(!copy || !(pointer), CUDA_ERROR_INVALID_VALUE)

#endif
