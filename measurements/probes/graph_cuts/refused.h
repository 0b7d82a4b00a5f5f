/* F: which graphs cannot be copied or cut, by the call that refuses them. */
#ifndef GRAPH_CUTS_REFUSED_H
#define GRAPH_CUTS_REFUSED_H

#include "base.h"

static CUevent event;

static void do_nothing(void *data) { (void)data; }

static CUresult add_allocation(CUgraph graph, CUgraphNode *node, CUdeviceptr *memory)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.poolProps.location.id = 0;
    wanted.bytesize = 1u << 20;
    CUresult result = cuGraphAddMemAllocNode(node, graph, NULL, 0, &wanted);
    *memory = wanted.dptr;
    return result;
}

static CUresult add_condition(CUgraph graph, CUgraphNode *node, CUgraphConditionalNodeType type, unsigned value, CUgraph *body)
{
    CUgraphConditionalHandle handle;
    CUgraphNodeParams wanted;
    CUresult result = cuGraphConditionalHandleCreate(&handle, graph, context, value, CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (result) return result;
    memset(&wanted, 0, sizeof wanted);
    wanted.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    wanted.conditional.handle = handle;
    wanted.conditional.type = type;
    wanted.conditional.size = 1;
    wanted.conditional.ctx = context;
    result = cuGraphAddNode(node, graph, NULL, NULL, 0, &wanted);
    if (!result) *body = wanted.conditional.phGraph_out[0];
    return result;
}

static CUresult add_child(CUgraph graph, CUgraphNode *node, bool waits)
{
    CUgraph child;
    must(cuGraphCreate(&child, 0), "graph");
    CUgraphNode first = add_kernel(child, NULL, (struct kernel){5, 0, 0}, 1);
    if (waits) add_wait(child, &first, 1, page_address, CU_STREAM_WAIT_VALUE_EQ);
    CUresult result = cuGraphAddChildGraphNode(node, graph, NULL, 0, child);
    must(cuGraphDestroy(child), "graph");
    return result;
}

/* Captures one call of a stream into a graph; `graph` is new. */
static CUresult capture(CUgraph *graph, bool frees)
{
    CUdeviceptr memory;
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
    CUresult result = cuMemAllocAsync(&memory, 1u << 20, stream);
    if (!result && frees) result = cuMemFreeAsync(memory, stream);
    CUresult ended = cuStreamEndCapture(stream, graph);
    return result ? result : ended;
}

enum kind { KERNELS, WAITS, HOST, EVENT_RECORD, EVENT_WAIT, MEMSET, EMPTY, CHILD, CHILD_WAITS, ALLOCATION, ALLOCATION_FREED,
            ALLOCATION_CAPTURED, IF_NODE, WHILE_NODE, IF_WITH_WAIT, WHILE_WITH_WAIT, IF_WITH_HOST, KINDS };
static const char *const kind_name[KINDS] = {"kernels", "waits", "host", "event record", "event wait", "memset", "empty", "child graph",
    "child graph that waits", "allocation", "allocation and free", "allocation captured", "if", "while", "if, the body waits",
    "while, the body waits", "if, the body has a host node"};

static CUresult add(enum kind kind, CUgraph graph)
{
    CUgraphNode node = NULL;
    CUgraph body = NULL;
    CUdeviceptr memory = 0;
    CUDA_HOST_NODE_PARAMS host = {.fn = do_nothing};
    CUDA_MEMSET_NODE_PARAMS set = {.dst = page_address + 1024, .elementSize = 4, .width = 4, .height = 1};
    CUresult result;
    switch (kind) {
    case WAITS: return try_wait(&node, graph, NULL, 0, page_address, CU_STREAM_WAIT_VALUE_EQ);
    case HOST: return cuGraphAddHostNode(&node, graph, NULL, 0, &host);
    case EVENT_RECORD: return cuGraphAddEventRecordNode(&node, graph, NULL, 0, event);
    case EVENT_WAIT: return cuGraphAddEventWaitNode(&node, graph, NULL, 0, event);
    case MEMSET: return cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context);
    case EMPTY: return cuGraphAddEmptyNode(&node, graph, NULL, 0);
    case CHILD: return add_child(graph, &node, false);
    case CHILD_WAITS: return add_child(graph, &node, true);
    case ALLOCATION: return add_allocation(graph, &node, &memory);
    case ALLOCATION_FREED:
        result = add_allocation(graph, &node, &memory);
        return result ? result : cuGraphAddMemFreeNode(&node, graph, &node, 1, memory);
    case IF_NODE:
    case WHILE_NODE:
    case IF_WITH_WAIT:
    case WHILE_WITH_WAIT:
    case IF_WITH_HOST: {
        bool loops = kind == WHILE_NODE || kind == WHILE_WITH_WAIT; /* nothing would end a loop that begins */
        result = add_condition(graph, &node, loops ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_IF, loops ? 0 : 1, &body);
        if (result) return result;
        add_kernel(body, NULL, (struct kernel){5, 0, 0}, 1);
        if (kind == IF_WITH_HOST) return cuGraphAddHostNode(&node, body, NULL, 0, &host);
        return kind == IF_WITH_WAIT || kind == WHILE_WITH_WAIT ? try_wait(&node, body, NULL, 0, page_address, CU_STREAM_WAIT_VALUE_EQ)
                                                               : CUDA_SUCCESS;
    }
    default: return CUDA_SUCCESS;
    }
}

/* Launches an executable of the graph and waits; destroys the executable. */
static CUresult run_once(CUgraph graph)
{
    CUgraphExec exec;
    CUresult result = cuGraphInstantiate(&exec, graph, 0);
    if (result) return result;
    result = cuGraphLaunch(exec, stream);
    if (!result) result = cuStreamSynchronize(stream);
    cuGraphExecDestroy(exec);
    return result;
}

static CUresult for_device(CUgraph graph)
{
    CUgraphExec exec;
    CUresult result = cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    if (!result) cuGraphExecDestroy(exec);
    return result;
}

/* Copies the graph, cuts the copy and runs it. `*at`: the call that refused. */
static CUresult copy_and_cut(CUgraph graph, CUgraphNode kernel, CUgraph *copy, const char **at)
{
    CUgraphNode found, wait;
    CUresult result;
    if ((*at = "cuGraphClone", result = cuGraphClone(copy, graph))) return result;
    if ((*at = "cuGraphNodeFindInClone", result = cuGraphNodeFindInClone(&found, kernel, *copy))) return result;
    if ((*at = "cuGraphAddBatchMemOpNode", result = try_wait(&wait, *copy, &found, 1, page_address, CU_STREAM_WAIT_VALUE_EQ))) return result;
    *at = "instantiate, launch or wait";
    return run_once(*copy);
}

static void try_kind(enum kind kind)
{
    CUgraph graph = NULL, copy = NULL, outer;
    CUgraphNode child, first = NULL;
    CUgraphExec exec = NULL, second = NULL;
    CUresult made = CUDA_SUCCESS;
    const char *at = "";
    if (kind == ALLOCATION_CAPTURED) made = capture(&graph, true);
    else must(cuGraphCreate(&graph, 0), "graph");
    if (graph) first = add_kernel(graph, NULL, (struct kernel){5, 0, 0}, 1);
    if (!made) made = add(kind, graph);
    if (!graph) {
        emit("\"graph\": \"%s\", \"made\": \"%s\"", kind_name[kind], name_of(made));
        return;
    }
    CUresult instantiated = cuGraphInstantiate(&exec, graph, 0);
    CUresult twice = instantiated ? instantiated : cuGraphInstantiate(&second, graph, 0);
    if (!twice && second) cuGraphExecDestroy(second);
    CUresult copied = copy_and_cut(graph, first, &copy, &at); /* while an executable of the original exists */
    if (exec) cuGraphExecDestroy(exec);
    CUresult ran = kind == ALLOCATION ? CUDA_SUCCESS : run_once(graph);
    must(cuGraphCreate(&outer, 0), "graph");
    CUresult as_child = cuGraphAddChildGraphNode(&child, outer, NULL, 0, graph);
    emit("\"graph\": \"%s\", \"made\": \"%s\", \"instantiated\": \"%s\", \"instantiated_twice\": \"%s\", \"copied_and_cut\": \"%s\", "
         "\"refused_by\": \"%s\", \"runs\": \"%s\", \"as_child\": \"%s\", \"for_device\": \"%s\", \"copy_for_device\": \"%s\"",
         kind_name[kind], name_of(made), name_of(instantiated), name_of(twice), name_of(copied), copied ? at : "", name_of(ran),
         name_of(as_child), name_of(for_device(graph)), copy ? name_of(for_device(copy)) : "");
    cuGraphDestroy(outer);
    if (copy) cuGraphDestroy(copy);
    cuGraphDestroy(graph);
}

/* Whether a node inside a child graph is found in the copy, or only in the copy's child graph. */
static void find_in_child(void)
{
    CUgraph graph, child, copy, copied_child;
    CUgraphNode node, inner, copied, found;
    size_t count = 1;
    must(cuGraphCreate(&graph, 0), "graph");
    must(add_child(graph, &node, false), "child graph");
    must(cuGraphChildGraphNodeGetGraph(node, &child), "child graph");
    must(cuGraphGetNodes(child, &inner, &count), "nodes");
    must(cuGraphClone(&copy, graph), "clone");
    CUresult at_top = cuGraphNodeFindInClone(&found, inner, copy);
    must(cuGraphNodeFindInClone(&copied, node, copy), "find in clone");
    must(cuGraphChildGraphNodeGetGraph(copied, &copied_child), "child graph");
    CUresult in_child = cuGraphNodeFindInClone(&found, inner, copied_child);
    CUgraphNode wait;
    CUresult cut = try_wait(&wait, copied_child, NULL, 0, page_address, CU_STREAM_WAIT_VALUE_EQ);
    emit("\"what\": \"a node of a child graph\", \"found_in_copy\": \"%s\", \"found_in_child_of_copy\": \"%s\", \"child_cut\": \"%s\", "
         "\"cut_copy_runs\": \"%s\"",
         name_of(at_top), name_of(in_child), name_of(cut), name_of(run_once(copy)));
}

/* Whether a wait of a stream can be captured, and which node it becomes. */
static void captured_wait(void)
{
    CUgraph graph = NULL;
    CUgraphNode node;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    size_t count = 1;
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
    CUresult result = cuStreamWaitValue32(stream, page_address, 0, CU_STREAM_WAIT_VALUE_EQ);
    CUresult ended = cuStreamEndCapture(stream, &graph);
    if (!ended && graph && cuGraphGetNodes(graph, &node, &count) == CUDA_SUCCESS && count) cuGraphNodeGetType(node, &type);
    emit("\"what\": \"a captured wait of a stream\", \"call\": \"%s\", \"end\": \"%s\", \"node_type\": %d", name_of(result), name_of(ended),
         (int)type);
}

/* Whether a cut executable can become part of another capture. */
static void captured_launch(void)
{
    struct shape shape = {4, 5, 1, 1, false, page_address, 0, CU_STREAM_WAIT_VALUE_EQ};
    CUgraphExec exec = exec_of(&shape);
    CUgraph graph = NULL;
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
    CUresult result = cuGraphLaunch(exec, stream), ended = cuStreamEndCapture(stream, &graph);
    emit("\"what\": \"a captured launch of a cut graph\", \"call\": \"%s\", \"end\": \"%s\", \"runs\": \"%s\"", name_of(result),
         name_of(ended), graph && !ended ? name_of(run_once(graph)) : "");
}

/* Two kernels of which the second may start before the first has ended: what of that edge a copy keeps, and whether a wait
 * can take the edge's place. */
static void programmatic_edge(void)
{
    CUgraph graph = NULL, copy;
    CUgraphNode from = NULL, to = NULL, wait = NULL, copied_from, copied_to;
    CUgraphEdgeData data = {0}, copied_data = {0};
    size_t count = 1, copied_count = 1;
    struct kernel kernel = {5, 0, 0};
    void *parameters[3];
    call_of(&kernel, parameters, 1);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig early = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1,
                            .hStream = stream, .attrs = &attribute, .numAttrs = 1};
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
    must(cuLaunchKernel(spin_kernel, 1, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL), "launch");
    CUresult launched = cuLaunchKernelEx(&early, spin_kernel, parameters, NULL);
    CUresult ended = cuStreamEndCapture(stream, &graph);
    if (launched || ended || cuGraphGetEdges(graph, &from, &to, &data, &count) || count != 1) {
        emit("\"what\": \"a programmatic edge\", \"launch\": \"%s\", \"end\": \"%s\"", name_of(launched), name_of(ended));
        return;
    }
    must(cuGraphClone(&copy, graph), "clone");
    must(cuGraphGetEdges(copy, &copied_from, &copied_to, &copied_data, &copied_count), "edges");
    CUresult blind = cuGraphGetEdges(graph, &from, &to, NULL, &count);
    CUresult without_data = cuGraphRemoveDependencies(copy, &copied_from, &copied_to, NULL, 1);
    CUresult with_data = without_data ? cuGraphRemoveDependencies(copy, &copied_from, &copied_to, &copied_data, 1) : CUDA_SUCCESS;
    CUresult in = try_wait(&wait, copy, &copied_from, 1, page_address, CU_STREAM_WAIT_VALUE_EQ);
    CUresult out = in ? in : cuGraphAddDependencies(copy, &wait, &copied_to, NULL, 1);
    emit("\"what\": \"a programmatic edge\", \"type\": %d, \"port\": %d, \"copied_type\": %d, \"copied_port\": %d, "
         "\"query_without_data\": \"%s\", \"removed_without_data\": \"%s\", \"removed_with_data\": \"%s\", \"wait_instead\": \"%s\", "
         "\"cut_copy_runs\": \"%s\"",
         data.type, data.from_port, copied_data.type, copied_data.from_port, name_of(blind), name_of(without_data), name_of(with_data),
         name_of(out), name_of(run_once(copy)));
}

static void refused(void)
{
    must(cuEventCreate(&event, 0), "event");
    must(cuEventRecord(event, stream), "event");
    for (enum kind kind = KERNELS; kind < KINDS; kind++) {
        progress("%s", kind_name[kind]);
        try_kind(kind);
    }
    emit("\"graph\": \"external semaphores\", \"made\": \"not tried: a semaphore needs another API, such as Vulkan\"");
    find_in_child();
    captured_wait();
    captured_launch();
    programmatic_edge();
}

#endif
