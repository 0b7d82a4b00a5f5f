/* A graph of many kinds of nodes, for tests of its updates: what its nodes shall do, the program's calls that say so, and
 * what a launch must have done. Kernels and host nodes write their values into one log; other nodes write theirs into memory. */
#ifndef ORION_TEST_GRAPH_STEPS_H
#define ORION_TEST_GRAPH_STEPS_H

#include "simulated_process.h"

#include <string.h>

#include "be/graph_copies.h"
#include "be/window.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/graphs.h"
#include "learning/kernels.h"
#include "process/process.h"

#define WINDOW_NS 400000000u
#define NODES 40u
#define CHILD_KERNELS 3u

static struct orion_policy_page policy;
static struct orion_grant_page grant;
static CUfunction functions[2]; /* the second has another layout of parameters */
static CUstream stream;
static CUcontext context;
static uint64_t words[1 + NODES * CHILD_KERNELS]; /* the number of values, then the values */
static uint32_t written[NODES];
static CUdeviceptr memory;
static CUevent event;

enum kind { KERNEL, HOST, SET, COPY, WRITE, CHILD, RECORD, WAIT, KINDS };

/* What a node does: for each kernel, `value` and the next ones. */
struct step {
    enum kind kind;
    unsigned value, function, grid, extra, disabled;
};

static inline unsigned chance(unsigned below)
{
    static uint64_t state = 7;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((state >> 33) % below);
}

static inline void CUDA_CB note(void *value) { words[1 + words[0]++] = (uint64_t)(uintptr_t)value; }

static inline void begin(void)
{
    CUmodule module = begin_process("orion-sim 1\nkernel plain duration_us=@0 params=8,4,8,8 log=@2\n"
                                    "kernel other duration_us=@0 params=8,4,8,8,2,1 log=@2\n");
    MUST(cuModuleGetFunction(&functions[0], module, "plain"));
    MUST(cuModuleGetFunction(&functions[1], module, "other"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxGetCurrent(&context));
    MUST(cuMemAlloc(&memory, 4 * 2 * NODES));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    policy.copy[0] = (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = WINDOW_NS};
    grant.copy[0].window_share_ns = WINDOW_NS;
    gpu->policy = &policy;
    gpu->grant = &grant;
    learn_nothing();
}

/* -- Nodes ----------------------------------------------------------------------------------------------------------- */

/* The parameters of one kernel, and where the program keeps them during a call. */
struct call {
    struct {
        uint64_t us;
        uint32_t sms;
        uint32_t gap;
        uint64_t log, value;
        uint16_t two;
        uint8_t one;
    } argument;
    void *pointers[6], *extra[5];
    size_t size;
};

static inline CUDA_KERNEL_NODE_PARAMS kernel_of(const struct step *step, unsigned offset, struct call *call)
{
    memset(call, 0, sizeof *call);
    call->argument.us = 1, call->argument.sms = 1, call->argument.log = (uintptr_t)words,
    call->argument.value = step->value + offset;
    void *pointers[] = {&call->argument.us,    &call->argument.sms, &call->argument.log,
                        &call->argument.value, &call->argument.two, &call->argument.one};
    memcpy(call->pointers, pointers, sizeof pointers);
    call->size = sizeof call->argument;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &call->argument, CU_LAUNCH_PARAM_BUFFER_SIZE, &call->size,
                     CU_LAUNCH_PARAM_END};
    memcpy(call->extra, extra, sizeof extra);
    return (CUDA_KERNEL_NODE_PARAMS){.func = functions[step->function],
                                     .gridDimX = 1 + step->grid,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 64,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = step->extra ? NULL : call->pointers,
                                     .extra = step->extra ? call->extra : NULL};
}

static inline CUgraph child_of(const struct step *step)
{
    CUgraph child;
    CUgraphNode node = NULL, before = NULL;
    MUST(cuGraphCreate(&child, 0));
    for (unsigned i = 0; i < CHILD_KERNELS; i++, before = node) {
        struct call call;
        CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(step, i, &call);
        MUST(cuGraphAddKernelNode(&node, child, &before, before != NULL, &kernel));
    }
    return child;
}

/* The parameters that a node of each kind would have for a step, and what they point to. */
struct params {
    struct call call;
    CUstreamBatchMemOpParams op;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_MEMCPY3D box;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
    CUgraph child; /* NULL: the step is of another kind */
};

static inline void fill(struct params *to, const struct step *step, unsigned index)
{
    memset(to, 0, sizeof *to);
    to->kernel = kernel_of(step, 0, &to->call);
    to->host = (CUDA_HOST_NODE_PARAMS){note, (void *)(uintptr_t)step->value};
    to->set = (CUDA_MEMSET_NODE_PARAMS){.dst = memory + 4 * index, .value = step->value, .elementSize = 4, .width = 1, .height = 1};
    /* Copies what the node before it has set, or what another one has: `value` is the index. */
    to->box = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = memory + 4 * (step->value % NODES),
                              .dstDevice = memory + 4 * (NODES + index),
                              .WidthInBytes = 4,
                              .Height = 1,
                              .Depth = 1};
    to->op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    to->op.writeValue.address = (CUdeviceptr)(uintptr_t)&written[index];
    to->op.writeValue.value = step->value;
    to->batch = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = context, .count = 1, .paramArray = &to->op};
    if (step->kind == CHILD) to->child = child_of(step);
}

/* The program uses this memory again. */
static inline void spoil(struct params *params)
{
    if (params->child != NULL) MUST(cuGraphDestroy(params->child));
    memset(params, 0xa5, sizeof *params);
}

static inline void add(CUgraph graph, CUgraphNode *node, const CUgraphNode *before, const struct step *step, unsigned index)
{
    struct params of;
    size_t edges = *before != NULL;
    fill(&of, step, index);
    switch ((int)step->kind) {
    case KERNEL: MUST(cuGraphAddKernelNode(node, graph, before, edges, &of.kernel)); break;
    case HOST: MUST(cuGraphAddHostNode(node, graph, before, edges, &of.host)); break;
    case SET: MUST(cuGraphAddMemsetNode(node, graph, before, edges, &of.set, context)); break;
    case COPY: MUST(cuGraphAddMemcpyNode(node, graph, before, edges, &of.box, context)); break;
    case WRITE: MUST(cuGraphAddBatchMemOpNode(node, graph, before, edges, &of.batch)); break;
    case CHILD: MUST(cuGraphAddChildGraphNode(node, graph, before, edges, of.child)); break;
    case RECORD: MUST(cuGraphAddEventRecordNode(node, graph, before, edges, event)); break;
    case WAIT: MUST(cuGraphAddEventWaitNode(node, graph, before, edges, event)); break;
    }
    spoil(&of);
}

/* A chain of all steps. */
static inline CUgraph graph_of(const struct step *steps, CUgraphNode *nodes)
{
    CUgraph graph;
    CUgraphNode node, before = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < NODES; i++, before = node) {
        add(graph, &node, &before, &steps[i], i);
        if (nodes != NULL) nodes[i] = node;
    }
    return graph;
}

static inline void set_by_type(CUgraphExec exec, CUgraphNode node, const struct step *step, unsigned index)
{
    struct params of;
    fill(&of, step, index);
    switch ((int)step->kind) {
    case KERNEL: MUST(cuGraphExecKernelNodeSetParams(exec, node, &of.kernel)); break;
    case HOST: MUST(cuGraphExecHostNodeSetParams(exec, node, &of.host)); break;
    case SET: MUST(cuGraphExecMemsetNodeSetParams(exec, node, &of.set, context)); break;
    case COPY: MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &of.box, context)); break;
    case WRITE: MUST(cuGraphExecBatchMemOpNodeSetParams(exec, node, &of.batch)); break;
    case CHILD: MUST(cuGraphExecChildGraphNodeSetParams(exec, node, of.child)); break;
    case RECORD: MUST(cuGraphExecEventRecordNodeSetEvent(exec, node, event)); break;
    case WAIT: MUST(cuGraphExecEventWaitNodeSetEvent(exec, node, event)); break;
    }
    spoil(&of);
}

static inline void set_in_general(CUgraphExec exec, CUgraphNode node, const struct step *step, unsigned index)
{
    CUgraphNodeParams any = {0};
    struct params of;
    if (step->kind > COPY && step->kind != CHILD) {
        set_by_type(exec, node, step, index);
        return;
    }
    fill(&of, step, index);
    if (step->kind == KERNEL) any.type = CU_GRAPH_NODE_TYPE_KERNEL, memcpy(&any.kernel, &of.kernel, sizeof of.kernel);
    if (step->kind == HOST) any.type = CU_GRAPH_NODE_TYPE_HOST, memcpy(&any.host, &of.host, sizeof of.host);
    if (step->kind == SET) any.type = CU_GRAPH_NODE_TYPE_MEMSET, memcpy(&any.memset, &of.set, sizeof of.set);
    if (step->kind == COPY) any.type = CU_GRAPH_NODE_TYPE_MEMCPY, any.memcpy.copyParams = of.box;
    if (step->kind == CHILD) any.type = CU_GRAPH_NODE_TYPE_GRAPH, any.graph.graph = of.child;
    MUST(cuGraphExecNodeSetParams(exec, node, &any));
    spoil(&of);
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

static inline uint64_t identity_of(CUgraphExec exec) { return orion_graph_identity(orion_graphs(process), exec); }

static inline void takes(CUgraphExec exec, unsigned windows)
{
    orion_window_reap(process, gpu); /* enters what was measured so far */
    orion_duration_forget(orion_durations(process), identity_of(exec));
    orion_duration_learn(orion_durations(process), identity_of(exec), (uint64_t)windows * WINDOW_NS - 1000, ORION_SAMPLE_CLEAN);
}

/* A graph and its executable, which the hook cuts at its first launch. */
static inline CUgraph instantiated(const struct step *steps, CUgraphNode *nodes, CUgraphExec *exec)
{
    CUgraph graph = graph_of(steps, nodes);
    MUST(cuGraphInstantiate(exec, graph, 0));
    takes(*exec, 6);
    return graph;
}

static inline void destroy(CUgraphExec exec, CUgraph graph)
{
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static inline bool in_pieces(CUgraphExec exec)
{
    const struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    return copy->event != NULL;
}

static inline void check_log(const struct step *steps)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < NODES; i++) {
        unsigned values = steps[i].disabled ? 0 : steps[i].kind == CHILD ? CHILD_KERNELS : steps[i].kind <= HOST;
        for (unsigned j = 0; j < values; j++, count++) CHECK(words[1 + count] == steps[i].value + j);
    }
    CHECK(words[0] == count);
}

/* Memory keeps what disabled nodes do not write. */
static inline void check_memory(const struct step *steps, uint32_t *expected)
{
    uint32_t found[2 * NODES];
    for (unsigned i = 0; i < NODES; i++) {
        if (steps[i].kind == WRITE) CHECK(written[i] == steps[i].value);
        if (steps[i].kind == SET && !steps[i].disabled) expected[i] = steps[i].value;
        if (steps[i].kind == COPY && !steps[i].disabled) expected[NODES + i] = expected[steps[i].value % NODES];
    }
    MUST(cuMemcpyDtoH(found, memory, sizeof found));
    CHECK(memcmp(found, expected, sizeof found) == 0);
}

static inline void launch(CUgraphExec exec, const struct step *steps, uint32_t *expected)
{
    words[0] = 0;
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    check_log(steps);
    check_memory(steps, expected);
}

#endif
