/* An event that something else than a call for a stream records, such as a node of a graph, on the simulated driver, through the hook's
 * wrappers: a wait on the event proves nothing of the work before an earlier recording. */
#include "simulated_process.h"

#include "streams/stream_records.h"

static CUfunction function;
static CUstream stream;
static CUgraph graph;
static CUevent before; /* of the nodes whose event changes */

static CUgraphNodeParams node_of(CUevent event)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    parameters.eventRecord.event = event;
    return parameters;
}

static CUgraphNode add(CUevent event)
{
    CUgraphNode node;
    MUST(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    return node;
}

static CUgraphExec instantiated(CUgraphNode *node)
{
    CUgraphExec exec;
    *node = add(before);
    MUST(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void in_no_graph(CUevent event) { (void)event; }
static void added(CUevent event) { add(event); }
static void added_by_parameters(CUevent event)
{
    CUgraphNode node;
    CUgraphNodeParams parameters = node_of(event);
    MUST(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
}
static void set(CUevent event) { MUST(cuGraphEventRecordNodeSetEvent(add(before), event)); }
static void set_by_parameters(CUevent event)
{
    CUgraphNodeParams parameters = node_of(event);
    MUST(cuGraphNodeSetParams(add(before), &parameters));
}
static void set_in_executable(CUevent event)
{
    CUgraphNode node;
    CUgraphExec exec = instantiated(&node);
    MUST(cuGraphExecEventRecordNodeSetEvent(exec, node, event));
    MUST(cuGraphExecDestroy(exec));
}
static void set_in_executable_by_parameters(CUevent event)
{
    CUgraphNode node;
    CUgraphExec exec = instantiated(&node);
    CUgraphNodeParams parameters = node_of(event);
    MUST(cuGraphExecNodeSetParams(exec, node, &parameters));
    MUST(cuGraphExecDestroy(exec));
}
static void captured(CUevent event)
{
    CUgraph other;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    MUST(cuStreamEndCapture(stream, &other));
    MUST(cuGraphDestroy(other));
}

static void recorded_for_the_context(CUevent event) { MUST(cuCtxRecordEvent(NULL, event)); }
static void launched_by(CUlaunchAttribute attribute)
{
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 64,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    MUST(cuLaunchKernelEx(&config, function, NULL, NULL));
}
static void recorded_by_a_launch(CUevent event)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    attribute.value.programmaticEvent.event = event;
    launched_by(attribute);
}
static void recorded_by_the_begin_of_a_launch(CUevent event)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    attribute.value.launchCompletionEvent.event = event;
    launched_by(attribute);
}

/* Whether a wait on an event proves the work before its recording, once something else may record the event. */
static bool proves(void (*put_in_graph)(CUevent event))
{
    CUevent event;
    const struct orion_stream_record *stream_record = orion_stream_record_of(process, (struct orion_stream_name){stream, false});
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    put_in_graph(event);
    MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
    uint64_t launched = atomic_load(&stream_record->begun);
    MUST(cuEventRecord(event, stream));
    MUST(cuEventSynchronize(event));
    bool proven = atomic_load(&stream_record->drained) >= launched;
    MUST(cuEventDestroy(event));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamSynchronize(stream));
    return proven;
}

int main(void)
{
    function = begin_hp_process();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    void (*const ways[])(CUevent) = {added,
                                     added_by_parameters,
                                     set,
                                     set_by_parameters,
                                     set_in_executable,
                                     set_in_executable_by_parameters,
                                     captured,
                                     recorded_for_the_context,
                                     recorded_by_a_launch,
                                     recorded_by_the_begin_of_a_launch};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        CHECK(!proves(ways[i]));
        CHECK(proves(in_no_graph)); /* an event that may have the same handle */
    }
    puts("event_nodes: ok");
    return 0;
}
