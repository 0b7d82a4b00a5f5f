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
#define ADD_OF_TYPE(type_of_node, set) \
    do { \
        GRAPH(graph, made); \
        struct CUgraphNode_st *node; \
        SIM_TRY(sim_node_new(graph, type_of_node, dependencies, count, &node)); \
        CUresult result_ = (set); \
        if (result_) sim_node_free(node); \
        else *made = node; \
        return result_; \
    } while (0)
#define ADD(kind, set) ADD_OF_TYPE(CU_GRAPH_NODE_TYPE_##kind, set)

/* What the node does from now on (graph_node.c). Parameters are copied; on an error the node stays as it is. */
CUresult sim_set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters);
CUresult sim_set_box(CUgraphNode node, const CUDA_MEMCPY3D *box);
CUresult sim_set_memset(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sim_set_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host);
CUresult sim_set_event(CUgraphNode node, CUevent event);
CUresult sim_set_child(CUgraphNode node, CUgraph child);
CUresult sim_set_any(CUgraphNode node, const CUgraphNodeParams *parameters); /* of the node's type */

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

#define EXEC(exec, pointer) \
    SIM_READY(); \
    SIM_REFUSE(!(pointer) || !sim_handle_is(exec, SIM_EXEC), CUDA_ERROR_INVALID_VALUE)

/* The program names a node of an executable graph by the node of the original graph. */
#define IN_EXEC(kind, pointer) \
    SIM_READY(); \
    struct CUgraphNode_st *copy = sim_node_in_exec(exec, node, CU_GRAPH_NODE_TYPE_##kind); \
    SIM_REFUSE(!copy || !(pointer), CUDA_ERROR_INVALID_VALUE)

#endif
