/* Executable graphs: made, launched and destroyed. graph_run.c queues their nodes, graph_update.c updates them. */
#include "capture.h"
#include "graph_calls.h"

bool sim_graph_sort_all(struct CUgraph_st *graph)
{
    bool good = sim_graph_sort(graph);
    for (size_t i = 0; good && i < graph->count; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) good = sim_graph_sort_all(node->child);
        for (unsigned j = 0; good && node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < node->condition.size; j++)
            good = sim_graph_fits_body(node->condition.bodies[j]) && sim_graph_sort_all(node->condition.bodies[j]);
    }
    return good;
}

/* Whether the device may launch the graph: it has work, and only work of these types. */
static bool fits_device(const struct CUgraph_st *graph)
{
    bool fits = graph->count > 0;
    for (size_t i = 0; fits && i < graph->count; i++) {
        const struct CUgraphNode_st *node = graph->nodes[i];
        fits = node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
               node->type == CU_GRAPH_NODE_TYPE_MEMSET || (node->type == CU_GRAPH_NODE_TYPE_GRAPH && fits_device(node->child));
    }
    return fits;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(!made || !sim_graph_is(graph) || (flags & ~15ull), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) &&
                   ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) || !fits_device(graph)),
               CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(graph->only, CUDA_ERROR_NOT_SUPPORTED);
    struct CUgraph_st *clone = sim_graph_clone(graph);
    struct CUgraphExec_st *exec = clone ? sim_handle_new(SIM_EXEC, sizeof *exec) : NULL;
    CUresult result = !exec ? CUDA_ERROR_OUT_OF_MEMORY : sim_graph_sort_all(clone) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result) {
        if (clone) sim_graph_free(clone);
        if (exec) sim_handle_free(exec);
        return result;
    }
    exec->graph = clone;
    exec->flags = flags;
    if (sim_graph_is_single(graph)) {
        exec->source = graph;
        graph->only = exec;
    }
    *made = exec;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    SIM_REFUSE(!parameters, CUDA_ERROR_INVALID_VALUE);
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    EXEC(exec, flags);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
    EXEC(exec, exec);
    if (exec->source) exec->source->only = NULL;
    sim_graph_free(exec->graph);
    sim_handle_free(exec);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    struct CUstream_st *stream;
    EXEC(exec, exec);
    return sim_stream(handle, &stream);
}

/* A launch waits until the last launch of the executable is over, in whatever stream that was. A graph cannot be
 * launched in a stream that is being captured (seen on an H200). */
CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    EXEC(exec, exec);
    SIM_STREAM(stream, handle);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_refuse(stream);
    bool frees = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    SIM_REFUSE(sim_graph_unfreed(exec->graph, frees) && !frees, CUDA_ERROR_INVALID_VALUE);
    if (exec->last.number && exec->last.stream != stream->slot) SIM_TRY(sim_submit_event_wait(stream, &exec->last));
    exec->launches++;
    bool by_device = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    CUresult result = by_device ? sim_graph_run_aside(stream, exec->graph) : sim_graph_run(stream, exec->graph);
    sim_enter();
    exec->last = sim_stream_position(stream);
    sim_leave();
    return result;
}
