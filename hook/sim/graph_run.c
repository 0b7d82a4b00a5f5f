/* Queues the nodes of a graph, in an order that respects their dependencies. The first branch is queued in the stream of
 * the launch. Each other branch is queued in a stream that exists only until the branch's work is done. Waits between
 * these streams stand for the dependencies, so branches run together as far as there are SMs. The stream of the launch
 * waits for all of them at the end. Bodies of conditional nodes, and graphs that the device may launch, have such a stream, too
 * (seen on an H200: behind a held stream they keep their context on the GPU).
 *
 * A graph has at most BRANCHES streams. Further branches share these streams, and so run one after the other. */
#include <stdlib.h>

#include "context.h"
#include "copy.h"
#include "graph.h"

#define BRANCHES 8u

struct branches {
    struct CUstream_st *stream[BRANCHES]; /* the first is the stream of the launch */
    size_t last[BRANCHES];                /* the node that is last in the branch, plus 1; 0: none */
    bool awaited[BRANCHES];               /* another branch waits for that node */
    unsigned count;
    struct sim_position begin; /* in the stream of the launch, before the graph and behind all that it waits for */
};

/* Where a node of the graph is queued, and when it is done. */
struct place {
    unsigned branch;
    struct sim_position end;
};

static struct sim_position position_of(struct CUstream_st *stream)
{
    sim_enter();
    struct sim_position position = sim_stream_position(stream);
    sim_leave();
    return position;
}

/* A part of the graph runs in a stream of the driver's own, between what is before and behind it: begin_aside, the part, end_aside. */
static CUresult begin_aside(struct CUstream_st *stream, CUcontext context, CUgreenCtx green, struct CUstream_st **aside)
{
    struct sim_position begin = position_of(stream);
    SIM_TRY(sim_stream_new(context, green, CU_STREAM_NON_BLOCKING, stream->priority, aside));
    return sim_submit_event_wait(*aside, &begin);
}

static CUresult end_aside(struct CUstream_st *stream, struct CUstream_st *aside, CUresult result)
{
    struct sim_position end = position_of(aside);
    if (!result) result = sim_submit_event_wait(stream, &end);
    sim_stream_forget(aside);
    return result;
}

/* A kernel of another context than the launch runs there, perhaps on another GPU. */
static CUresult run_kernel(struct CUstream_st *stream, const struct CUgraphNode_st *node)
{
    const struct sim_launch *launch = &node->call.launch;
    struct CUstream_st *aside = NULL;
    if (launch->context == stream->context || !sim_context_alive(launch->context))
        return sim_submit_kernel(stream, launch, node->call.parameters);
    CUresult result = begin_aside(stream, launch->context, NULL, &aside);
    if (!aside) return result;
    if (!result) result = sim_submit_kernel(aside, launch, node->call.parameters);
    return end_aside(stream, aside, result);
}

CUresult sim_graph_run_aside(struct CUstream_st *stream, const struct CUgraph_st *graph)
{
    struct CUstream_st *aside = NULL;
    CUresult result = begin_aside(stream, stream->context, stream->green, &aside);
    if (!aside) return result;
    if (!result) result = sim_graph_run(aside, graph);
    return end_aside(stream, aside, result);
}

static CUresult run_node(struct CUstream_st *stream, const struct CUgraphNode_st *node)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return run_kernel(stream, node);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return sim_copy_box(stream, &node->box);
    case CU_GRAPH_NODE_TYPE_MEMSET: return sim_memset(stream, &node->set);
    case CU_GRAPH_NODE_TYPE_HOST: return sim_submit_host_function(stream, node->host.fn, node->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH: return sim_graph_run(stream, node->child);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return cuEventRecord(node->event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return cuStreamWaitEvent(stream, node->event, 0);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return cuStreamBatchMemOp_v2(stream, node->batch.count, node->batch.paramArray, 0);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return sim_graph_allocate(stream->context, node);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return sim_graph_free_memory(node->memory.start);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
        const struct CUgraph_st *body = sim_node_chosen_body(node);
        return body ? sim_graph_run_aside(stream, body) : CUDA_SUCCESS;
    }
    default: return CUDA_SUCCESS;
    }
}

static bool add_branch(struct branches *branches)
{
    const struct CUstream_st *first = branches->stream[0];
    struct CUstream_st **made = &branches->stream[branches->count];
    if (branches->count == BRANCHES || sim_stream_new(first->context, first->green, CU_STREAM_NON_BLOCKING, first->priority, made))
        return false;
    if (sim_submit_event_wait(*made, &branches->begin)) {
        sim_stream_forget(*made);
        return false;
    }
    branches->last[branches->count] = 0;
    branches->awaited[branches->count++] = false;
    return true;
}

/* The branch of the next node: that of a dependency that is last in its branch; else a branch that nothing will
 * continue; else a new branch. The nodes' marks are their indices. */
static unsigned branch_for(struct branches *branches, const struct CUgraphNode_st *node, const struct place *places)
{
    for (size_t i = 0; i < node->dependency_count; i++) {
        size_t on = node->dependencies[i]->mark;
        if (branches->last[places[on].branch] == on + 1) return places[on].branch;
    }
    for (unsigned branch = 0; branch < branches->count; branch++)
        if (!branches->last[branch] || branches->awaited[branch]) return branch;
    return add_branch(branches) ? branches->count - 1 : 0;
}

static CUresult run_in_branch(struct branches *branches, const struct CUgraphNode_st *node, struct place *places)
{
    struct place *place = &places[node->mark];
    place->branch = branch_for(branches, node, places);
    struct CUstream_st *stream = branches->stream[place->branch];
    for (size_t i = 0; i < node->dependency_count; i++) {
        size_t on = node->dependencies[i]->mark;
        unsigned branch = places[on].branch;
        if (branch == place->branch) continue;
        if (branches->last[branch] == on + 1) branches->awaited[branch] = true;
        SIM_TRY(sim_submit_event_wait(stream, &places[on].end));
    }
    if (!node->disabled) SIM_TRY(run_node(stream, node));
    place->end = position_of(stream);
    branches->last[place->branch] = node->mark + 1;
    branches->awaited[place->branch] = false;
    return CUDA_SUCCESS;
}

/* The stream of the launch waits for the other branches. They end once their work is done. */
static CUresult join(struct branches *branches)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned branch = 1; branch < branches->count; branch++) {
        struct sim_position end = position_of(branches->stream[branch]);
        CUresult joined = sim_submit_event_wait(branches->stream[0], &end);
        if (!result) result = joined;
        sim_stream_forget(branches->stream[branch]);
    }
    return result;
}

static bool is_chain(const struct CUgraph_st *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->dependency_count != (i > 0) || (i > 0 && graph->nodes[i]->dependencies[0] != graph->nodes[i - 1]))
            return false;
    return true;
}

static CUresult run_chain(struct CUstream_st *stream, const struct CUgraph_st *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->disabled) SIM_TRY(run_node(stream, graph->nodes[i]));
    return CUDA_SUCCESS;
}

CUresult sim_graph_run(struct CUstream_st *stream, const struct CUgraph_st *graph)
{
    if (is_chain(graph)) return run_chain(stream, graph);
    struct branches branches = {.stream = {stream}, .count = 1};
    struct sim_op nothing = {.kind = SIM_RECORD, .a = SIM_EVENTS}; /* records no event; ordered like all work of the stream */
    SIM_TRY(sim_submit(stream, &nothing, &branches.begin));
    struct place *places = calloc(graph->count, sizeof *places);
    SIM_REFUSE(!places, CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->mark = (unsigned)i;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; !result && i < graph->count; i++) result = run_in_branch(&branches, graph->nodes[i], places);
    CUresult joined = join(&branches);
    free(places);
    return result ? result : joined;
}
