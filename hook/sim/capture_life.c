/* Begins, ends and queries captures. */
#include "capture_state.h"
#include "green.h"

static CUresult invalidate(struct sim_capture *capture, CUresult error)
{
    capture->invalid = true;
    return error;
}

static uint64_t ids;

static CUresult begin(struct CUstream_st *stream, struct CUgraph_st *graph, const CUgraphNode *dependencies, size_t count,
                      CUstreamCaptureMode mode)
{
    struct sim_capture *capture = sim_handle_new(SIM_CAPTURE, sizeof *capture);
    SIM_REFUSE(!capture, CUDA_ERROR_OUT_OF_MEMORY);
    capture->own_graph = !graph;
    capture->graph = graph ? graph : sim_graph_new();
    if (!capture->graph ||
        !sim_capture_set_frontier(&stream->frontier, &stream->frontier_count, (void *const *)dependencies, count)) {
        sim_handle_free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = sim_capture_self();
    capture->id = ++ids; /* ids are never reused */
    capture->next = sim_captures;
    sim_captures = capture;
    stream->capture = capture;
    atomic_fetch_add(&sim_captures_under_way, 1);
    return CUDA_SUCCESS;
}

static CUresult begin_in(CUstream handle, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUstreamCaptureMode mode)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(mode > CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(stream->legacy || (stream->green && stream == stream->green->legacy), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_lock(&sim_capture_mutex);
    CUresult result = stream->capture ? CUDA_ERROR_ILLEGAL_STATE : begin(stream, graph, dependencies, count, mode);
    pthread_mutex_unlock(&sim_capture_mutex);
    return result;
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begin_in(stream, NULL, NULL, 0, mode);
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                             const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    (void)edges;
    SIM_READY();
    SIM_REFUSE(!sim_graph_is(graph) || (count && !dependencies), CUDA_ERROR_INVALID_VALUE);
    return begin_in(stream, graph, dependencies, count, mode);
}

/* Does the origin stream's frontier depend on all work that other streams added to the capture? */
static bool joined(const struct sim_capture *capture)
{
    unsigned mark = sim_graph_mark_before(capture->origin->frontier, capture->origin->frontier_count);
    bool all = true;
    sim_enter();
    for (struct CUstream_st *other = capture->origin->context->streams; other; other = other->next)
        for (size_t i = 0; other->capture == capture && i < other->frontier_count; i++)
            all &= ((struct CUgraphNode_st **)other->frontier)[i]->mark == mark;
    sim_leave();
    return all;
}

static void finish(struct sim_capture *capture)
{
    struct sim_capture **link = &sim_captures;
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    sim_enter();
    for (struct CUstream_st *other = capture->origin->context->streams; other; other = other->next)
        if (other->capture == capture) {
            other->capture = NULL;
            sim_capture_forget_frontier(&other->frontier, &other->frontier_count);
        }
    sim_leave();
    sim_handle_free(capture);
    atomic_fetch_sub(&sim_captures_under_way, 1);
}

static CUresult end(struct CUstream_st *stream, CUgraph *graph)
{
    struct sim_capture *capture = stream->capture;
    SIM_REFUSE(!capture, CUDA_ERROR_ILLEGAL_STATE);
    if (capture->origin != stream) return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_capture_self())
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CUresult result = capture->invalid  ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : joined(capture) ? CUDA_SUCCESS
                                        : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (!result) *graph = capture->graph;
    else if (capture->own_graph) sim_graph_free(capture->graph);
    finish(capture);
    return result;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!graph, CUDA_ERROR_INVALID_VALUE);
    *graph = NULL;
    pthread_mutex_lock(&sim_capture_mutex);
    CUresult result = end(stream, graph);
    pthread_mutex_unlock(&sim_capture_mutex);
    return result;
}

void sim_capture_leave(struct CUstream_st *stream)
{
    pthread_mutex_lock(&sim_capture_mutex);
    struct sim_capture *capture = stream->capture;
    if (capture && capture->origin == stream) {
        if (capture->own_graph) sim_graph_free(capture->graph);
        finish(capture);
    } else if (capture) {
        capture->invalid = true;
        stream->capture = NULL;
    }
    pthread_mutex_unlock(&sim_capture_mutex);
}

void sim_capture_end_in(const struct CUctx_st *context)
{
    pthread_mutex_lock(&sim_capture_mutex);
    for (struct sim_capture *capture = sim_captures, *next; capture; capture = next) {
        next = capture->next;
        if (capture->origin->context != context) continue;
        if (capture->own_graph) sim_graph_free(capture->graph);
        finish(capture);
    }
    pthread_mutex_unlock(&sim_capture_mutex);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_READY();
    SIM_REFUSE(!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = sim_capture_thread_mode;
    sim_capture_thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream)
{
    return !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!status, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim_capture_mutex);
    *status = status_of(stream);
    CUresult result = stream->legacy ? sim_capture_implicit(stream) : CUDA_SUCCESS;
    pthread_mutex_unlock(&sim_capture_mutex);
    return result;
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!status, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim_capture_mutex);
    *status = status_of(stream);
    bool active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id) *id = active ? stream->capture->id : 0;
    if (graph) *graph = active ? stream->capture->graph : NULL;
    if (dependencies) *dependencies = active ? stream->frontier : NULL;
    if (edges) *edges = NULL;
    if (count) *count = active ? stream->frontier_count : 0;
    pthread_mutex_unlock(&sim_capture_mutex);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *edges,
                                                      size_t count, unsigned flags)
{
    (void)edges;
    SIM_STREAM(stream, handle);
    SIM_REFUSE(count && !nodes, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    for (size_t i = 0; i < count; i++)
        SIM_REFUSE(!sim_node_is(nodes[i]) || nodes[i]->graph != stream->capture->graph, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim_capture_mutex);
    bool good = true;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        good = sim_capture_set_frontier(&stream->frontier, &stream->frontier_count, (void *const *)nodes, count);
    } else {
        struct CUevent_st more = {.frontier = nodes, .frontier_count = count};
        more.capture = stream->capture;
        good = !sim_capture_join(stream, &more);
    }
    pthread_mutex_unlock(&sim_capture_mutex);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
