/* Stream capture: the driver records work as nodes of a graph and does not queue it.
 *
 * A captured stream has a frontier: the nodes that its next node depends on. An event recorded in the capture keeps the
 * frontier of its stream. A stream that waits for this event joins the capture and adds that frontier to its own. A
 * forbidden call makes the capture invalid, and the end of the capture reports this. Captures are few, so one mutex
 * guards all of them. While no capture is under way, a call only reads one counter. */
#include <stdlib.h>
#include <string.h>

#include "allocation.h"
#include "capture_state.h"
#include "copy.h"
#include "green.h"

void sim_capture_forget_frontier(void **frontier, size_t *count)
{
    free(*frontier);
    *frontier = NULL;
    *count = 0;
}

bool sim_capture_set_frontier(void **frontier, size_t *count, void *const *nodes, size_t node_count)
{
    void *copy = node_count ? malloc(node_count * sizeof(void *)) : NULL;
    if (node_count && !copy) return false;
    if (node_count) memcpy(copy, nodes, node_count * sizeof(void *));
    free(*frontier);
    *frontier = copy;
    *count = node_count;
    return true;
}

static CUresult node_after_frontier(struct CUstream_st *stream, CUgraphNodeType type, struct CUgraphNode_st **node)
{
    SIM_TRY(sim_node_new(stream->capture->graph, type, stream->frontier, stream->frontier_count, node));
    return CUDA_SUCCESS;
}

/* If `result` is success, the new node becomes the stream's frontier. Otherwise this function destroys the node. */
static CUresult advance(struct CUstream_st *stream, struct CUgraphNode_st *node, CUresult result)
{
    void *only = node;
    if (!result && !sim_capture_set_frontier(&stream->frontier, &stream->frontier_count, &only, 1))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        sim_node_free(node);
        stream->capture->invalid = true;
    }
    return result;
}

#define RECORD(type, set) \
    do { \
        struct CUgraphNode_st *node; \
        pthread_mutex_lock(&sim_capture_mutex); \
        CUresult result_ = node_after_frontier(stream, CU_GRAPH_NODE_TYPE_##type, &node); \
        if (!result_) result_ = advance(stream, node, (set)); \
        pthread_mutex_unlock(&sim_capture_mutex); \
        return result_; \
    } while (0)

/* The driver answers in the program's own attributes. */
static void name_updatable(struct CUgraphNode_st *node, const CUlaunchAttribute *attributes, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        CUlaunchAttribute *answer = (CUlaunchAttribute *)(uintptr_t)&attributes[i];
        if (answer->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
            answer->value.deviceUpdatableKernelNode.deviceUpdatable)
            answer->value.deviceUpdatableKernelNode.devNode = (CUgraphDeviceNode)(void *)node;
    }
}

/* A kernel that may start early has such an edge from each kernel before it. */
static bool starts_early(const CUlaunchAttribute *attributes, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return attributes[i].value.programmaticStreamSerializationAllowed != 0;
    return false;
}

static CUresult set_kernel(struct CUgraphNode_st *node, const struct sim_launch *launch, void *const *parameters,
                           const CUlaunchAttribute *attributes, unsigned count)
{
    const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                   .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    for (size_t i = 0; starts_early(attributes, count) && i < node->dependency_count; i++)
        if (node->dependencies[i]->type == CU_GRAPH_NODE_TYPE_KERNEL) node->edges[i] = early;
    name_updatable(node, attributes, count);
    SIM_TRY(sim_node_set_attributes(node, attributes, count));
    return sim_node_set_kernel(node, launch, parameters);
}

CUresult sim_capture_kernel(struct CUstream_st *stream, const struct sim_launch *launch, void *const *parameters,
                            const CUlaunchAttribute *attributes, unsigned count)
{
    struct sim_launch here = *launch;
    here.anywhere = !stream->green;
    here.priority = 0; /* that of the stream into which the graph is launched */
    here.green = stream->green ? stream->green->id : 0;
    here.context = stream->context;
    RECORD(KERNEL, set_kernel(node, &here, parameters, attributes, count));
}

CUresult sim_capture_host(struct CUstream_st *stream, CUhostFn function, void *data)
{
    RECORD(HOST, (node->host = (CUDA_HOST_NODE_PARAMS){function, data}, CUDA_SUCCESS));
}

CUresult sim_capture_box(struct CUstream_st *stream, const CUDA_MEMCPY3D *box) { RECORD(MEMCPY, (node->box = *box, CUDA_SUCCESS)); }

CUresult sim_capture_memset(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set)
{
    RECORD(MEMSET, (node->set = *set, CUDA_SUCCESS));
}

static CUresult allocate(struct CUgraphNode_st *node, CUDA_MEM_ALLOC_NODE_PARAMS *wanted, CUdeviceptr *start)
{
    CUresult result = sim_node_set_allocation(node, wanted);
    if (!result) *start = wanted->dptr;
    return result;
}

CUresult sim_capture_memory_op(struct CUstream_st *stream, CUstreamBatchMemOpParams *op)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = stream->context, .count = 1, .paramArray = op};
    RECORD(BATCH_MEM_OP, sim_node_set_batch(node, &batch));
}

CUresult sim_capture_allocation(struct CUstream_st *stream, size_t size, CUdeviceptr *start)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                         .poolProps.location.id = stream->context->device,
                                         .bytesize = size};
    RECORD(MEM_ALLOC, allocate(node, &wanted, start));
}

CUresult sim_capture_free(struct CUstream_st *stream, CUdeviceptr start) { RECORD(MEM_FREE, sim_node_set_free(node, start)); }

CUresult sim_capture_copy(struct CUstream_st *stream, void *target, const void *source, size_t size)
{
    CUDA_MEMCPY3D box;
    memset(&box, 0, sizeof box);
    box.srcMemoryType = sim_on_device(source) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    box.dstMemoryType = sim_on_device(target) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    box.srcHost = source, box.srcDevice = (CUdeviceptr)(uintptr_t)source;
    box.dstHost = target, box.dstDevice = (CUdeviceptr)(uintptr_t)target;
    box.WidthInBytes = size, box.Height = box.Depth = 1;
    return sim_capture_box(stream, &box);
}

static CUresult record_external(struct CUstream_st *stream, struct CUevent_st *event)
{
    RECORD(EVENT_RECORD, (node->event = event, CUDA_SUCCESS));
}

static CUresult wait_external(struct CUstream_st *stream, struct CUevent_st *event)
{
    RECORD(WAIT_EVENT, (node->event = event, CUDA_SUCCESS));
}

CUresult sim_capture_record(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    if (flags & CU_EVENT_RECORD_EXTERNAL) return record_external(stream, event);
    pthread_mutex_lock(&sim_capture_mutex);
    bool good = sim_capture_set_frontier(&event->frontier, &event->frontier_count, stream->frontier, stream->frontier_count);
    event->capture = stream->capture;
    event->capture_id = stream->capture->id;
    pthread_mutex_unlock(&sim_capture_mutex);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult invalidate(struct sim_capture *capture, CUresult error)
{
    capture->invalid = true;
    return error;
}

CUresult sim_capture_join(struct CUstream_st *stream, const struct CUevent_st *event)
{
    struct CUgraphNode_st **known = stream->frontier, **more = event->frontier;
    size_t count = stream->frontier_count;
    struct CUgraphNode_st **all = malloc((count + event->frontier_count + 1) * sizeof *all);
    SIM_REFUSE(!all, CUDA_ERROR_OUT_OF_MEMORY);
    if (count) memcpy(all, known, count * sizeof *all);
    for (size_t i = 0; i < event->frontier_count; i++) {
        size_t at = 0;
        while (at < count && all[at] != more[i]) at++;
        if (at == count) all[count++] = more[i];
    }
    free(stream->frontier);
    stream->frontier = all;
    stream->frontier_count = count;
    stream->capture = event->capture;
    return CUDA_SUCCESS;
}

CUresult sim_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    bool captured = sim_capture_of_event(event);
    CUresult result;
    if (stream->capture && (flags & CU_EVENT_WAIT_EXTERNAL)) return wait_external(stream, event);
    pthread_mutex_lock(&sim_capture_mutex);
    if (!captured) result = invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    else if (event->capture->invalid) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (stream->legacy) result = invalidate(event->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    else if (stream->capture && stream->capture != event->capture) {
        invalidate(event->capture, 0);
        result = invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    } else {
        result = sim_capture_join(stream, event);
    }
    pthread_mutex_unlock(&sim_capture_mutex);
    return result;
}
