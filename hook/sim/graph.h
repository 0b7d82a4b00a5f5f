/* Graphs and their nodes. */
#ifndef ORION_SIM_GRAPH_H
#define ORION_SIM_GRAPH_H

#include "sim.h"

/* The attributes of a kernel launch besides its parameters. */
struct sim_launch {
    struct sim_kernel *kernel;
    unsigned grid[3], block[3], shared;
    unsigned priority; /* of its own, + SIM_PRIORITIES; 0: that of its stream */
    /* True: the kernel may use every SM, even if it is launched in the stream of a green context. True for the nodes of
     * graphs, unless they belong to a green context. */
    bool anywhere;
    unsigned long long green; /* a node: the id of the green context that it belongs to; 0: none */
    struct CUctx_st *context; /* a node: the context in which it runs, for one of a green context its primary one */
};

struct CUgraphNode_st {
    uint32_t kind;
    CUgraphNodeType type;
    struct CUgraph_st *graph;
    struct CUgraphNode_st **dependencies;
    CUgraphEdgeData *edges; /* one for each dependency; kept for the program, without effect on the order of kernels */
    size_t dependency_count;
    struct CUgraphNode_st *origin; /* the node that this node is a copy of */
    unsigned mark;                 /* set by walks over the graph: the number of the last walk, or an index */
    bool disabled;
    union {
        struct {
            struct sim_launch launch;
            void **parameters;
            CUlaunchAttribute *attributes; /* kept for the program, without effect */
            unsigned attribute_count;
        } call; /* `parameters` is one allocation: the pointers, then the values that they point to */
        CUDA_MEMCPY3D box;
        CUDA_MEMSET_NODE_PARAMS set;
        CUDA_HOST_NODE_PARAMS host;
        struct CUgraph_st *child;
        CUevent event;
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch; /* `paramArray` belongs to the node */
        struct {
            CUdeviceptr start;
            size_t size;
            int device;
        } memory; /* what an allocation node allocates; a free node frees `start` */
        struct {
            CUgraphConditionalHandle handle;
            CUgraphConditionalNodeType type;
            unsigned size;
            CUgraph *bodies; /* `size` graphs, which the program may not destroy */
        } condition;
    };
};

struct CUgraph_st {
    uint32_t kind;
    struct CUgraphNode_st **nodes;
    size_t count, capacity;
    bool owned;                  /* true: this is the child graph of a node, and the program may not destroy it */
    struct CUgraphExec_st *only; /* of a graph of which only one executable may exist: that executable */
};

struct CUgraphExec_st {
    uint32_t kind;
    struct CUgraph_st *graph; /* a copy of the graph; its nodes are ordered by their dependencies */
    unsigned long long flags;
    struct CUgraph_st *source; /* the graph whose `only` this is; NULL: none */
    struct sim_position last;  /* the end of the last launch; number 0: none. The next launch waits for it */
    uint64_t launches;
};

struct CUgraph_st *sim_graph_new(void);
void sim_graph_free(struct CUgraph_st *graph);
struct CUgraph_st *sim_graph_clone(const struct CUgraph_st *graph);
bool sim_graph_is(const void *handle);
bool sim_node_is(const void *handle);

/* Make a node that depends on `dependencies`, which are nodes of the same graph. */
CUresult sim_node_new(struct CUgraph_st *graph, CUgraphNodeType type, struct CUgraphNode_st *const *dependencies, size_t count,
                      struct CUgraphNode_st **made);
/* `edge`: NULL: an ordinary dependency. */
bool sim_node_depend(struct CUgraphNode_st *node, struct CUgraphNode_st *on, const CUgraphEdgeData *edge);
/* Remove the dependency at this index. */
void sim_node_undepend(struct CUgraphNode_st *node, size_t at);
void sim_node_free(struct CUgraphNode_st *node);
/* Find the copy of `node` in `graph`. NULL: there is no copy. */
struct CUgraphNode_st *sim_node_copy_in(const struct CUgraph_st *graph, const struct CUgraphNode_st *node);

/* Set what a node does. Parameters are copied. */
CUresult sim_node_set_kernel(struct CUgraphNode_st *node, const struct sim_launch *launch, void *const *parameters);
CUresult sim_node_set_like(struct CUgraphNode_st *node, const struct CUgraphNode_st *other);
CUresult sim_node_set_attributes(struct CUgraphNode_st *node, const CUlaunchAttribute *attributes, unsigned count);

/* The copy of a graph's node in an executable. NULL: there is none of this type. */
struct CUgraphNode_st *sim_node_in_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type);

/* Whether only one executable of the graph may exist, and nothing may copy the graph: it has nodes that allocate, free
 * or decide. */
bool sim_graph_is_single(const struct CUgraph_st *graph);
/* Whether the graph has nodes that allocate or free. None of its nodes and dependencies can be removed. */
bool sim_graph_has_memory(const struct CUgraph_st *graph);

/* Batches of memory operations (graph_batch.c). */
CUresult sim_node_set_batch(struct CUgraphNode_st *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch);
bool sim_node_same_batch(const struct CUgraphNode_st *a, const struct CUgraphNode_st *b); /* differ only in what may change */

/* Memory of graphs (graph_memory.c). Both setters define a new node of their type. The address of an allocation node stays the same for ever. */
CUresult sim_node_set_allocation(struct CUgraphNode_st *node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters);
CUresult sim_node_set_free(struct CUgraphNode_st *node, CUdeviceptr start);
CUresult sim_graph_allocate(struct CUctx_st *context, const struct CUgraphNode_st *node);
CUresult sim_graph_free_memory(CUdeviceptr start);
/* Whether an allocation of this graph exists that no free node of this graph will free. */
bool sim_graph_unfreed(const struct CUgraph_st *graph, bool free_it);

/* Conditional nodes (graph_condition.c). The body that the node would run, NULL: none. */
const struct CUgraph_st *sim_node_chosen_body(const struct CUgraphNode_st *node);
CUresult sim_node_set_condition(struct CUgraphNode_st *node, CUDA_CONDITIONAL_NODE_PARAMS *parameters);
/* Whether the graph has only nodes of types that a conditional body may have. */
bool sim_graph_fits_body(const struct CUgraph_st *graph);

/* Queue the nodes of an executable (graph_run.c). */
CUresult sim_graph_run(struct CUstream_st *stream, const struct CUgraph_st *graph);
CUresult sim_graph_run_aside(struct CUstream_st *stream, const struct CUgraph_st *graph); /* in a stream of the driver's own */

/* Order the nodes by their dependencies; false: there is a cycle. The second also orders the nodes of child graphs and
 * bodies; false: also if a body has a node that it may not have. */
bool sim_graph_sort(struct CUgraph_st *graph);
bool sim_graph_sort_all(struct CUgraph_st *graph);
/* Give a new mark to `nodes` and to everything that they depend on; return the mark. */
unsigned sim_graph_mark_before(struct CUgraphNode_st *const *nodes, size_t count);

CUresult sim_gather_parameters(const struct sim_kernel *kernel, void **parameters, void **extra, void *gathered[]);
CUresult sim_check_shape(const struct sim_kernel *kernel, const unsigned grid[3], const unsigned block[3], unsigned shared);
CUresult sim_submit_host_function(struct CUstream_st *stream, CUhostFn function, void *data);

/* Add a node to the stream's capture instead of queuing the work. */
CUresult sim_capture_kernel(struct CUstream_st *stream, const struct sim_launch *launch, void *const *parameters,
                            const CUlaunchAttribute *attributes, unsigned count);
CUresult sim_capture_host(struct CUstream_st *stream, CUhostFn function, void *data);
CUresult sim_capture_memory_op(struct CUstream_st *stream, CUstreamBatchMemOpParams *op);
CUresult sim_capture_allocation(struct CUstream_st *stream, size_t size, CUdeviceptr *start);
CUresult sim_capture_free(struct CUstream_st *stream, CUdeviceptr start);

#endif
