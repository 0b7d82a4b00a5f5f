/* G: on which SMs a kernel node runs that was made in a green context, and whether an update can move it. */
#ifndef GRAPH_CUTS_GREEN_H
#define GRAPH_CUTS_GREEN_H

#include "base.h"

#define WANTED 64
#define MANY 1024 /* blocks: enough for every SM */

static CUgreenCtx green;
static CUcontext green_context;
static CUstream green_stream;
static CUdeviceptr seen;
static CUkernel library_kernel; /* the same kernel, not bound to a context */

static void make_green(void)
{
    CUdevResource all, part;
    CUlibrary library;
    green = green_of(WANTED, &all, &part);
    must(cuGreenCtxStreamCreate(&green_stream, green, CU_STREAM_NON_BLOCKING, 0), "green stream");
    must(cuCtxFromGreenCtx(&green_context, green), "green context");
    must(cuMemAlloc(&seen, 4 * SEEN_WORDS), "memory");
    must(cuMemsetD32(seen, 0, SEEN_WORDS), "memory");
    CUresult result = cuLibraryLoadData(&library, source, NULL, NULL, 0, NULL, NULL, 0);
    if (!result) result = cuLibraryGetKernel(&library_kernel, library, "spin");
    emit("\"sms\": %u, \"of\": %u, \"library\": \"%s\"", part.sm.smCount, all.sm.smCount, name_of(result));
}

static int sms_used(void)
{
    uint32_t words[SEEN_WORDS];
    int count = 0;
    must(cuCtxSynchronize(), "synchronise");
    must(cuStreamSynchronize(green_stream), "synchronise");
    must(cuMemcpyDtoH(words, seen, sizeof words), "copy");
    must(cuMemsetD32(seen, 0, SEEN_WORDS), "memory");
    must(cuCtxSynchronize(), "synchronise");
    for (int i = 0; i < SEEN_WORDS; i++) count += __builtin_popcount(words[i]);
    return count;
}

enum way { FUNC, FUNC_CTX, FUNC_CURRENT, KERN, KERN_CTX, KERN_CURRENT, CAPTURED, CAPTURED_GREEN, WAYS };
static const char *const way_name[WAYS] = {"func", "func, ctx = green", "func, green current", "kern", "kern, ctx = green",
                                           "kern, green current", "captured on a plain stream", "captured on the green stream"};

static CUresult add_in_way(CUgraph graph, CUgraphNode *node, enum way way)
{
    struct kernel kernel = {20, 0, seen};
    void *parameters[3];
    CUgraphNodeParams wanted;
    memset(&wanted, 0, sizeof wanted);
    CUDA_KERNEL_NODE_PARAMS call = call_of(&kernel, parameters, MANY);
    wanted.type = CU_GRAPH_NODE_TYPE_KERNEL;
    wanted.kernel.gridDimX = MANY, wanted.kernel.gridDimY = wanted.kernel.gridDimZ = 1;
    wanted.kernel.blockDimX = THREADS, wanted.kernel.blockDimY = wanted.kernel.blockDimZ = 1;
    wanted.kernel.kernelParams = call.kernelParams;
    wanted.kernel.func = way <= FUNC_CURRENT ? spin_kernel : NULL;
    wanted.kernel.kern = way >= KERN ? library_kernel : NULL;
    wanted.kernel.ctx = way == FUNC_CTX || way == KERN_CTX ? green_context : NULL;
    bool current = way == FUNC_CURRENT || way == KERN_CURRENT;
    if (current) must(cuCtxPushCurrent(green_context), "push");
    CUresult result = cuGraphAddNode(node, graph, NULL, NULL, 0, &wanted);
    CUcontext popped;
    if (current) must(cuCtxPopCurrent(&popped), "pop");
    return result;
}

static CUresult graph_in_way(enum way way, CUgraph *graph)
{
    CUgraphNode node;
    if (way < CAPTURED) {
        must(cuGraphCreate(graph, 0), "graph");
        return add_in_way(*graph, &node, way);
    }
    CUstream origin = way == CAPTURED ? stream : green_stream;
    struct kernel kernel = {20, 0, seen};
    void *parameters[3];
    call_of(&kernel, parameters, MANY);
    must(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
    CUresult result = cuLaunchKernel(spin_kernel, MANY, 1, 1, THREADS, 1, 1, 0, origin, parameters, NULL);
    CUresult ended = cuStreamEndCapture(origin, graph);
    return result ? result : ended;
}

static void sms_of_ways(CUgraph *graphs, CUgraphExec *execs)
{
    for (int way = 0; way < WAYS; way++) {
        CUresult made = graph_in_way((enum way)way, &graphs[way]);
        CUresult instantiated = made ? made : cuGraphInstantiate(&execs[way], graphs[way], 0);
        if (instantiated) {
            graphs[way] = NULL;
            emit("\"way\": \"%s\", \"made\": \"%s\", \"instantiated\": \"%s\"", way_name[way], name_of(made), name_of(instantiated));
            continue;
        }
        CUresult on_plain = cuGraphLaunch(execs[way], stream);
        int plain = sms_used();
        CUresult on_green = cuGraphLaunch(execs[way], green_stream);
        emit("\"way\": \"%s\", \"launched_on_plain_stream\": \"%s\", \"sms_on_plain_stream\": %d, \"launched_on_green_stream\": \"%s\", "
             "\"sms_on_green_stream\": %d",
             way_name[way], name_of(on_plain), plain, name_of(on_green), sms_used());
    }
}

/* Can an executable of one way be updated by a graph of another way, and where does it run then? */
static void updates_between_ways(CUgraph *graphs)
{
    static const enum way pairs[][2] = {{CAPTURED, CAPTURED_GREEN}, {CAPTURED_GREEN, CAPTURED}, {FUNC, CAPTURED_GREEN}, {KERN, KERN_CTX},
                                        {KERN_CTX, KERN}, {KERN_CTX, CAPTURED_GREEN}, {KERN_CTX, FUNC}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        CUgraph from = graphs[pairs[i][0]], to = graphs[pairs[i][1]];
        if (!from || !to) continue;
        CUgraphExec exec = instantiate(from);
        CUgraphExecUpdateResultInfo info;
        memset(&info, 0, sizeof info);
        CUresult result = cuGraphExecUpdate(exec, to, &info);
        must(cuGraphLaunch(exec, stream), "launch");
        emit("\"from\": \"%s\", \"by\": \"%s\", \"update\": \"%s\", \"why\": %d, \"sms_then\": %d", way_name[pairs[i][0]],
             way_name[pairs[i][1]], name_of(result), (int)info.result, sms_used());
        must(cuGraphExecDestroy(exec), "destroy");
    }
}

/* Does a copy keep its nodes' SMs, and can it be cut by a wait of either context? */
static void copy_of_green(CUgraph original)
{
    CUgraph copy;
    CUgraphNode wait;
    CUstreamBatchMemOpParams operation = wait_for(page_address, CU_STREAM_WAIT_VALUE_EQ);
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = context, .count = 1, .paramArray = &operation, .flags = 0};
    must(cuGraphClone(&copy, original), "clone");
    CUresult in_plain = cuGraphAddBatchMemOpNode(&wait, copy, NULL, 0, &batch);
    batch.ctx = green_context;
    CUresult in_green = cuGraphAddBatchMemOpNode(&wait, copy, NULL, 0, &batch);
    CUgraphExec exec;
    CUresult result = cuGraphInstantiate(&exec, copy, 0);
    if (!result) result = cuGraphLaunch(exec, stream);
    emit("\"what\": \"a copy of a green graph\", \"wait_of_plain_context\": \"%s\", \"wait_of_green_context\": \"%s\", \"launched\": \"%s\", "
         "\"sms_on_plain_stream\": %d",
         name_of(in_plain), name_of(in_green), name_of(result), result ? -1 : sms_used());
}

static void green_contexts(void)
{
    CUgraph graphs[WAYS] = {NULL};
    CUgraphExec execs[WAYS] = {NULL};
    make_green();
    progress("ways to make a node");
    sms_of_ways(graphs, execs);
    progress("updates");
    updates_between_ways(graphs);
    if (graphs[CAPTURED_GREEN]) copy_of_green(graphs[CAPTURED_GREEN]);
    if (graphs[KERN_CTX]) copy_of_green(graphs[KERN_CTX]);
}

#endif
