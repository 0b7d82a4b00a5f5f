/* Which client a stream belongs to, and the priority of the streams that a scheduler makes. */
#include "scenarios.h"
#include "threads.h"

#include <string.h>

static CUstream made;

/* As autograd's backward does: an unbound thread works on a client's stream. */
static CUstream of_be;
static void launch_on_bes(void)
{
    launch(of_be, 1);
    DONE(cuStreamSynchronize(of_be));
    marks[0] = now();
}
static void launch_on_made(void)
{
    launch(made, 1);
    DONE(cuStreamSynchronize(made));
}
static void make_and_use(void)
{
    DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    launch(made, 1);
    DONE(cuStreamSynchronize(made));
}
static void make(void)
{
    DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    launch(made, 1);
}
void a_stream_keeps_its_client(void)
{
    CHECK(start(2) == 0);
    of_be = stream_of(BE);
    CHECK(of_be != NULL && of_be == stream_of(BE) && of_be != stream_of(HP));
    all_of(HP, hp_begins);
    pthread_t backward = in_thread(-1, launch_on_bes);
    all_of(HP, hp_ends);
    pthread_join(backward, NULL);
    CHECK(marks[0] > hp_worked_until);
    CHECK(figures(BE).launches == 1 && figures(BE).gated_launches >= 1);
    all_of(BE, make_and_use); /* a stream that the program made belongs to the first client that uses it */
    all_of(-1, launch_on_made);
    all_of(HP, launch_on_made);
    CHECK(figures(BE).launches == 4 && figures(HP).launches == 1);
    all_of(-1, make); /* belongs to no client until one uses it */
    all_of(-1, launch_on_made);
    CHECK(figures(BE).launches == 4);
    all_of(HP, launch_on_made);
    all_of(-1, launch_on_made);
    CHECK(figures(HP).launches == 3);
}

/* The driver makes this copy on the legacy stream only, which all threads of the process share. */
static void copies_rows(void)
{
    static char rows[16][64];
    CUdeviceptr memory;
    DONE(cuMemAlloc(&memory, sizeof rows));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcPitch = 64,
                          .WidthInBytes = 64,
                          .Height = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 64};
    DONE(cuMemcpy2DUnaligned(&copy));
    DONE(cuMemFree(memory));
}
void the_legacy_stream_belongs_to_no_client(void)
{
    CHECK(start(2) == 0);
    all_of(BE, copies_rows);
    all_of(HP, hp_begins);
    all_of(-1, be_runs); /* as unbound threads do */
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
    all_of(HP, copies_rows);
    CHECK(figures(BE).launches == 0 && figures(BE).gated_launches == 0);
}

static void note_priority(void)
{
    int priority;
    DONE(cuStreamGetPriority(NULL, &priority));
    marks[0] = (uint64_t)(int64_t)priority;
}
static void changes_its_role(void)
{
    int priority, of_client;
    CHECK(set_role(BE, ORION_CLIENT_HP) == 0);
    DONE(cuStreamGetPriority(NULL, &priority));
    DONE(cuStreamGetPriority(stream_of(BE), &of_client));
    CHECK(priority == of_client);
    launch(stream_of(BE), 20);
    uint64_t launched = now();
    DONE(cuStreamSynchronize(NULL)); /* it is the same stream */
    CHECK(now() > launched + 15 * MS);
}
void a_bound_thread_gets_the_stream_of_a_new_role(void)
{
    CHECK(start(2) == 0);
    all_of(BE, changes_its_role);
}

void own_streams_have_priorities(void)
{
    int least, greatest;
    CHECK(start(3) == 0);
    CHECK(set_role(0, ORION_CLIENT_HP) == 0);
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    int expected[] = {greatest, least, greatest};
    for (int i = 0; i < 3; i++) {
        all_of(i, note_priority);
        CHECK((int64_t)marks[0] == expected[i]);
    }
    all_of(0, be_runs);
    CHECK(set_role(0, ORION_CLIENT_BE) == -1 && strstr(last_error(), "begun") != NULL);
}

/* -- A stream that the driver refuses ------------------------------------------------------------------------------- */

static CUgreenCtx make_green_context(CUstream *stream, int priority)
{
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned groups = 1;
    DONE(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    DONE(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 32));
    DONE(cuDevResourceGenerateDesc(&description, &part, 1));
    DONE(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    DONE(cuGreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, priority));
    return green;
}

static void uses_a_stream_that_outlives_its_green_context(void)
{
    CUstream stream;
    CUgreenCtx green = make_green_context(&stream, 0);
    launch(stream, 1);
    DONE(cuGreenCtxDestroy(green));
    DONE(cuCtxSynchronize());
    DONE(cuStreamDestroy(stream));
    marks[1] = now();
}
void a_stream_outlives_its_green_context(void)
{
    CHECK(start(2) == 0);
    all_of(HP, uses_a_stream_that_outlives_its_green_context);
    all_of(BE, be_runs);
    CHECK(marks[0] < marks[1] + 500 * MS); /* hp does not stay busy */
}

static void asks_for_the_greatest_priority(void)
{
    CUstream streams[3];
    CUcontext context;
    int least, greatest, priority;
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    DONE(cuStreamCreateWithPriority(&streams[0], CU_STREAM_NON_BLOCKING, greatest));
    CUgreenCtx green = make_green_context(&streams[1], greatest);
    DONE(cuCtxGetCurrent(&context));
    DONE(cuCtxSetCurrent(NULL));
    DONE(cuGreenCtxStreamCreate(&streams[2], green, CU_STREAM_NON_BLOCKING, greatest));
    DONE(cuCtxSetCurrent(context));
    for (int i = 0; i < 3; i++) {
        DONE(cuStreamGetPriority(streams[i], &priority));
        CHECK(priority == least);
    }
}
void streams_of_be_have_the_least_priority(void)
{
    CHECK(start(2) == 0);
    all_of(BE, asks_for_the_greatest_priority);
}

/* -- Priorities that a program sets itself -------------------------------------------------------------------------- */

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
