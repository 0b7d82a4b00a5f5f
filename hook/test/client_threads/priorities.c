/* be's work has the least priority, whatever the program asks for in an attribute of a launch, a stream or a node of a graph. */
#include "scenarios.h"
#include "threads.h"

#include <string.h>

static void launch_on_all_sms(CUstream stream, uint64_t microseconds, CUlaunchAttribute *attributes, unsigned count)
{
    uint32_t sms = 132;
    void *parameters[] = {&microseconds, &sms};
    CUlaunchConfig config = {.gridDimX = 132, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 256, .blockDimY = 1, .blockDimZ = 1};
    config.hStream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    DONE(cuLaunchKernelEx(&config, timed, parameters, NULL));
}

/* Two attributes, of which the second one is the greatest priority of the GPU. */
static void ask_for_the_greatest(CUlaunchAttribute attributes[2])
{
    int least, greatest;
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    memset(attributes, 0, 2 * sizeof *attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attributes[1].value.priority = greatest;
}

static CUstream not_of_be;
static bool has_context;
static void launches_with_the_greatest_priority(void)
{
    CUstream streams[2];
    CUevent ends[2];
    float between;
    CUcontext context;
    CUlaunchAttribute attributes[2];
    ask_for_the_greatest(attributes);
    int greatest = attributes[1].value.priority;
    for (int i = 0; i < 2; i++) {
        DONE(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        DONE(cuEventCreate(&ends[i], CU_EVENT_DEFAULT));
    }
    DONE(cuCtxGetCurrent(&context));
    if (!has_context) DONE(cuCtxSetCurrent(NULL));
    for (unsigned i = 0; i < 2; i++) {
        launch_on_all_sms(streams[i], 10, attributes, 2 * i);
        DONE(cuEventRecord(ends[i], streams[i]));
    }
    DONE(cuCtxSetCurrent(context));
    DONE(cuCtxSynchronize());
    DONE(cuEventElapsedTime(&between, ends[0], ends[1]));
    CHECK(between > 0);
    CHECK(attributes[1].value.priority == greatest); /* the program's own array stays as it is */
}
static void shows_how_long_the_kernel_takes(void)
{
    for (int i = 0; i < 20; i++) {
        launch_on_all_sms(NULL, 10, NULL, 0);
        DONE(cuStreamSynchronize(NULL));
    }
}
static void occupies_the_gpu(void)
{
    CUstream stream;
    DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch_on_all_sms(stream, 200000, NULL, 0);
}
static void launch_beside_a_busy_gpu(bool in_context)
{
    has_context = in_context;
    CHECK(start(2) == 0);
    all_of(BE, shows_how_long_the_kernel_takes); /* so that the window lets two of them in */
    all_of(-1, occupies_the_gpu);                /* what be launches meanwhile waits in line for SMs */
    all_of(BE, launches_with_the_greatest_priority);
}
void launches_of_be_have_the_least_priority(void) { launch_beside_a_busy_gpu(true); }
void launches_without_a_context_have_the_least_priority(void) { launch_beside_a_busy_gpu(false); }

static void sets_the_greatest_priority(void)
{
    int least, greatest, priority;
    CUstream stream;
    CUlaunchAttribute attributes[2];
    CUstreamAttrValue value;
    ask_for_the_greatest(attributes);
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DONE(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &attributes[1].value));
    DONE(cuStreamGetPriority(stream, &priority));
    CHECK(priority == least);
    DONE(cuStreamCopyAttributes(stream, not_of_be));
    DONE(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    CHECK(value.priority == least);
}
static void makes_a_stream_of_the_greatest_priority(void)
{
    int least, greatest, priority;
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    DONE(cuStreamCreate(&not_of_be, CU_STREAM_NON_BLOCKING));
    CUstreamAttrValue value = {.priority = greatest};
    DONE(cuStreamSetAttribute(not_of_be, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    DONE(cuStreamGetPriority(not_of_be, &priority));
    CHECK(priority == greatest);
}
void attributes_of_be_set_the_least_priority(void)
{
    CHECK(start(2) == 0);
    all_of(HP, makes_a_stream_of_the_greatest_priority);
    all_of(BE, sets_the_greatest_priority);
}

static int priority_of_node(CUgraph graph)
{
    CUgraphNode node;
    size_t count = 1;
    CUkernelNodeAttrValue value;
    DONE(cuGraphGetNodes(graph, &node, &count));
    CHECK(count == 1);
    DONE(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    return value.priority;
}
static void makes_nodes_of_the_greatest_priority(void)
{
    int least, greatest;
    CUstream stream;
    CUgraph graph;
    CUgraphNode node;
    size_t count = 1;
    CUlaunchAttribute attributes[2];
    ask_for_the_greatest(attributes);
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DONE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_on_all_sms(stream, 10, attributes, 2);
    DONE(cuStreamEndCapture(stream, &graph));
    CHECK(priority_of_node(graph) == least);
    DONE(cuGraphGetNodes(graph, &node, &count));
    DONE(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &attributes[1].value));
    CHECK(priority_of_node(graph) == least);
}
void nodes_of_be_have_the_least_priority(void)
{
    CHECK(start(2) == 0);
    all_of(BE, makes_nodes_of_the_greatest_priority);
}
