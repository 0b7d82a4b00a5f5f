/* Updates of be's graphs reach the hook's copies, and cost few driver calls.
 *
 * A graph gets random updates of every kind, between launches with and without an hp client. Each launch must do what
 * the program has set last, whether it was in pieces or not, and the hook must know the graph as if it had just been made.
 * Kernels and host nodes write their values into one log; other nodes write theirs into memory. */
#include "simulated_process.h"

#include <string.h>

#include "be/graph_copies.h"
#include "be/window.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/graphs.h"
#include "learning/kernels.h"
#include "process/process.h"

#define WINDOW_NS 400000000u /* so long that measured durations of the pieces never exceed it */
#define NODES 40u
#define CHILD_KERNELS 3u
#define ROUNDS 400u

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

static unsigned chance(unsigned below)
{
    static uint64_t state = 7;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((state >> 33) % below);
}

static void CUDA_CB note(void *value) { words[1 + words[0]++] = (uint64_t)(uintptr_t)value; }

static void begin(void)
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

static CUDA_KERNEL_NODE_PARAMS kernel_of(const struct step *step, unsigned offset, struct call *call)
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

static CUDA_HOST_NODE_PARAMS host_of(const struct step *step)
{
    return (CUDA_HOST_NODE_PARAMS){note, (void *)(uintptr_t)step->value};
}

static CUDA_MEMSET_NODE_PARAMS set_of(const struct step *step, unsigned index)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = memory + 4 * index, .value = step->value, .elementSize = 4, .width = 1, .height = 1};
}

/* Copies what the node before it has set, or what another one has: `value` is the index. */
static CUDA_MEMCPY3D box_of(const struct step *step, unsigned index)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = memory + 4 * (step->value % NODES),
                           .dstDevice = memory + 4 * (NODES + index),
                           .WidthInBytes = 4,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS write_of(const struct step *step, unsigned index, CUstreamBatchMemOpParams *op)
{
    memset(op, 0, sizeof *op);
    op->operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op->writeValue.address = (CUdeviceptr)(uintptr_t)&written[index];
    op->writeValue.value = step->value;
    return (CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = context, .count = 1, .paramArray = op};
}

static CUgraph child_of(const struct step *step)
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

static void add(CUgraph graph, CUgraphNode *node, const CUgraphNode *before, const struct step *step, unsigned index)
{
    struct call call;
    CUstreamBatchMemOpParams op;
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(step, 0, &call);
    CUDA_HOST_NODE_PARAMS host = host_of(step);
    CUDA_MEMSET_NODE_PARAMS set = set_of(step, index);
    CUDA_MEMCPY3D box = box_of(step, index);
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = write_of(step, index, &op);
    CUgraph child;
    switch ((int)step->kind) {
    case KERNEL: MUST(cuGraphAddKernelNode(node, graph, before, *before != NULL, &kernel)); break;
    case HOST: MUST(cuGraphAddHostNode(node, graph, before, *before != NULL, &host)); break;
    case SET: MUST(cuGraphAddMemsetNode(node, graph, before, *before != NULL, &set, context)); break;
    case COPY: MUST(cuGraphAddMemcpyNode(node, graph, before, *before != NULL, &box, context)); break;
    case WRITE: MUST(cuGraphAddBatchMemOpNode(node, graph, before, *before != NULL, &batch)); break;
    case RECORD: MUST(cuGraphAddEventRecordNode(node, graph, before, *before != NULL, event)); break;
    case WAIT: MUST(cuGraphAddEventWaitNode(node, graph, before, *before != NULL, event)); break;
    case CHILD:
        child = child_of(step);
        MUST(cuGraphAddChildGraphNode(node, graph, before, *before != NULL, child));
        MUST(cuGraphDestroy(child));
        break;
    }
}

/* A chain of all steps. */
static CUgraph graph_of(const struct step *steps, CUgraphNode *nodes)
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

static void set_by_type(CUgraphExec exec, CUgraphNode node, const struct step *step, unsigned index)
{
    struct call call;
    CUstreamBatchMemOpParams op;
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(step, 0, &call);
    CUDA_HOST_NODE_PARAMS host = host_of(step);
    CUDA_MEMSET_NODE_PARAMS set = set_of(step, index);
    CUDA_MEMCPY3D box = box_of(step, index);
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = write_of(step, index, &op);
    CUgraph child;
    switch ((int)step->kind) {
    case KERNEL: MUST(cuGraphExecKernelNodeSetParams(exec, node, &kernel)); break;
    case HOST: MUST(cuGraphExecHostNodeSetParams(exec, node, &host)); break;
    case SET: MUST(cuGraphExecMemsetNodeSetParams(exec, node, &set, context)); break;
    case COPY: MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &box, context)); break;
    case WRITE: MUST(cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch)); break;
    case RECORD: MUST(cuGraphExecEventRecordNodeSetEvent(exec, node, event)); break;
    case WAIT: MUST(cuGraphExecEventWaitNodeSetEvent(exec, node, event)); break;
    case CHILD:
        child = child_of(step);
        MUST(cuGraphExecChildGraphNodeSetParams(exec, node, child));
        MUST(cuGraphDestroy(child));
        break;
    }
    memset(&call, 0xa5, sizeof call); /* the program uses its memory again */
    memset(&op, 0xa5, sizeof op);
}

static void set_in_general(CUgraphExec exec, CUgraphNode node, const struct step *step, unsigned index)
{
    struct call call;
    CUgraphNodeParams any = {0};
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(step, 0, &call);
    CUDA_HOST_NODE_PARAMS host = host_of(step);
    CUDA_MEMSET_NODE_PARAMS set = set_of(step, index);
    if (step->kind == KERNEL) any.type = CU_GRAPH_NODE_TYPE_KERNEL, memcpy(&any.kernel, &kernel, sizeof kernel);
    else if (step->kind == HOST) any.type = CU_GRAPH_NODE_TYPE_HOST, any.host.fn = host.fn, any.host.userData = host.userData;
    else if (step->kind == SET) any.type = CU_GRAPH_NODE_TYPE_MEMSET, memcpy(&any.memset, &set, sizeof set);
    else if (step->kind == COPY) any.type = CU_GRAPH_NODE_TYPE_MEMCPY, any.memcpy.copyParams = box_of(step, index);
    else if (step->kind == CHILD) any.type = CU_GRAPH_NODE_TYPE_GRAPH, any.graph.graph = child_of(step);
    else {
        set_by_type(exec, node, step, index);
        return;
    }
    MUST(cuGraphExecNodeSetParams(exec, node, &any));
    if (step->kind == CHILD) MUST(cuGraphDestroy(any.graph.graph));
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

static uint64_t identity_of(CUgraphExec exec) { return orion_graph_identity(orion_graphs(process), exec); }

static void takes(CUgraphExec exec, unsigned windows)
{
    orion_window_reap(process, gpu); /* enters what was measured so far */
    orion_duration_forget(orion_durations(process), identity_of(exec));
    orion_duration_learn(orion_durations(process), identity_of(exec), (uint64_t)windows * WINDOW_NS - 1000, ORION_SAMPLE_CLEAN);
}

static bool in_pieces(CUgraphExec exec)
{
    const struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    return copy->event != NULL;
}

static void check_log(const struct step *steps)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < NODES; i++) {
        unsigned values = steps[i].disabled ? 0 : steps[i].kind == CHILD ? CHILD_KERNELS : steps[i].kind <= HOST;
        for (unsigned j = 0; j < values; j++, count++) CHECK(words[1 + count] == steps[i].value + j);
    }
    CHECK(words[0] == count);
}

/* Memory keeps what disabled nodes do not write. */
static void check_memory(const struct step *steps, uint32_t *expected)
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

static void launch(CUgraphExec exec, const struct step *steps, uint32_t *expected)
{
    words[0] = 0;
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    check_log(steps);
    check_memory(steps, expected);
}

/* -- Random updates -------------------------------------------------------------------------------------------------- */

static void vary(struct step *step)
{
    if (chance(3)) step->value = chance(1000);
    if (chance(4) == 0) step->grid = chance(3);
    if (chance(4) == 0) step->extra = chance(2);
    if (chance(8) == 0 && step->kind == KERNEL) step->function = chance(2);
}

static void change_some(CUgraphExec exec, const CUgraphNode *nodes, struct step *steps)
{
    for (unsigned i = chance(NODES), end = chance(NODES + 1); i < end; i += 1 + chance(3)) {
        struct step before = steps[i];
        vary(&steps[i]);
        if (chance(2)) set_by_type(exec, nodes[i], &steps[i], i);
        else set_in_general(exec, nodes[i], &steps[i], i);
        if (chance(4)) continue;
        steps[i] = before; /* and back */
        set_by_type(exec, nodes[i], &steps[i], i);
    }
}

static void change_all(CUgraphExec exec, struct step *steps)
{
    CUgraphExecUpdateResultInfo info;
    for (unsigned i = 0; i < NODES; i++)
        if (chance(2)) vary(&steps[i]);
    CUgraph other = graph_of(steps, NULL);
    MUST(cuGraphExecUpdate(exec, other, &info));
    MUST(cuGraphDestroy(other));
}

static void switch_one(CUgraphExec exec, const CUgraphNode *nodes, struct step *steps)
{
    unsigned i = chance(NODES);
    if (steps[i].kind != KERNEL && steps[i].kind != SET && steps[i].kind != COPY) return;
    steps[i].disabled = !steps[i].disabled;
    MUST(cuGraphNodeSetEnabled(exec, nodes[i], !steps[i].disabled));
}

static void cut_again(CUgraphExec exec)
{
    const struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    const struct orion_piece *piece = &copy->piece[chance(copy->pieces)];
    if (piece->exec != NULL) takes(piece->exec, 3);
}

/* The hook knows the graph as if it had just been made, with the nodes that are enabled. */
static void check_identity(CUgraphExec exec, const struct step *steps)
{
    CUgraphNode nodes[NODES];
    CUgraphExec fresh;
    CUgraph graph = graph_of(steps, nodes);
    MUST(cuGraphInstantiate(&fresh, graph, 0));
    for (unsigned i = 0; i < NODES; i++)
        if (steps[i].disabled) MUST(cuGraphNodeSetEnabled(fresh, nodes[i], 0));
    CHECK(identity_of(fresh) == identity_of(exec));
    MUST(cuGraphExecDestroy(fresh));
    MUST(cuGraphDestroy(graph));
}

static unsigned random_updates(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    unsigned pieces = 0;
    for (unsigned i = 0; i < NODES; i++) steps[i] = (struct step){.kind = i % 2 ? chance(KINDS) : KERNEL, .value = i};
    MUST(cuMemsetD32(memory, 0, 2 * NODES));
    CUgraph graph = graph_of(steps, nodes);
    MUST(cuGraphInstantiate(&exec, graph, 0));
    takes(exec, 6);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned changes = chance(4); changes > 0; changes--) {
            unsigned what = chance(8);
            if (what < 4) change_some(exec, nodes, steps);
            else if (what < 6) change_all(exec, steps);
            else if (what < 7) switch_one(exec, nodes, steps);
            else orion_kernels_forget(orion_kernels(process)); /* the program has unloaded code */
        }
        if (round % 16 == 15) cut_again(exec);
        atomic_store(&policy.hp_clients, chance(3) > 0);
        launch(exec, steps, expected);
        CHECK(!orion_graph_copy_of(process, exec)->refused);
        pieces += in_pieces(exec);
        if (round % 8 == 0) check_identity(exec, steps);
    }
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    return pieces;
}

static void every_update_reaches_the_pieces(void)
{
    for (unsigned i = 0; i < 3; i++) CHECK(random_updates() > ROUNDS / 3);
}

/* Drivers before CUDA 12.4 do not report the sizes of a kernel's parameters. */
static void every_update_reaches_the_pieces_with_an_old_driver(void)
{
    orion_driver.cuFuncGetParamInfo = NULL;
    orion_kernels_forget(orion_kernels(process)); /* a kernel's mark contains its parameters */
    CHECK(random_updates() > ROUNDS / 3);
    orion_driver.cuFuncGetParamInfo = cuFuncGetParamInfo;
    orion_kernels_forget(orion_kernels(process));
}

/* Lists the edges backwards every other time. */
static CUresult CUDAAPI edges_of(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
    static unsigned calls;
    CUresult result = cuGraphGetEdges(graph, from, to, data, count);
    bool backwards = from != NULL && calls++ % 2;
    for (size_t i = 0; result == CUDA_SUCCESS && backwards && i < *count / 2; i++) {
        CUgraphNode first = from[i], second = to[i];
        from[i] = from[*count - 1 - i], to[i] = to[*count - 1 - i];
        from[*count - 1 - i] = first, to[*count - 1 - i] = second;
    }
    return result;
}

static void edges_may_come_in_another_order(void)
{
    orion_driver.cuGraphGetEdges_v2 = edges_of;
    CHECK(random_updates() > ROUNDS / 3);
    orion_driver.cuGraphGetEdges_v2 = cuGraphGetEdges;
}

/* -- Driver calls ---------------------------------------------------------------------------------------------------- */

static unsigned reads, sets, updates, others;
static CUcontext set_in;

static CUresult CUDAAPI read_node(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *kernel)
{
    reads++;
    return cuGraphKernelNodeGetParams(node, kernel);
}
static CUresult CUDAAPI set_node(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    sets++;
    set_in = kernel->ctx;
    return cuGraphKernelNodeSetParams(node, kernel);
}
static CUresult CUDAAPI update_piece(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    updates++;
    return cuGraphExecUpdate(exec, graph, info);
}
static CUresult CUDAAPI type_of(CUgraphNode node, CUgraphNodeType *type)
{
    others++;
    return cuGraphNodeGetType(node, type);
}
static CUresult CUDAAPI parameter_of(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    others++;
    return cuFuncGetParamInfo(function, index, offset, size);
}

static void count_calls(void)
{
    reads = sets = updates = others = 0;
    orion_driver.cuGraphKernelNodeGetParams_v2 = read_node;
    orion_driver.cuGraphKernelNodeSetParams_v2 = set_node;
    orion_driver.cuGraphExecUpdate_v2 = update_piece;
    orion_driver.cuGraphNodeGetType = type_of;
    orion_driver.cuFuncGetParamInfo = parameter_of;
}

static void update_to(CUgraphExec exec, struct step *steps, unsigned value, unsigned from)
{
    CUgraphExecUpdateResultInfo info;
    for (unsigned i = from; i < NODES; i++) steps[i].value = value + i;
    CUgraph other = graph_of(steps, NULL);
    MUST(cuGraphExecUpdate(exec, other, &info));
    MUST(cuGraphDestroy(other));
}

static void set_all_to(CUgraphExec exec, const CUgraphNode *nodes, struct step *steps, unsigned value)
{
    for (unsigned i = 0; i < NODES; i++) {
        steps[i].value = value + i;
        set_by_type(exec, nodes[i], &steps[i], i);
    }
}

static void updates_cost_few_calls_and_launches_pay_once(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    MUST(cuMemsetD32(memory, 0, 2 * NODES));
    CUgraph graph = graph_of(steps, nodes);
    MUST(cuGraphInstantiate(&exec, graph, 0));
    takes(exec, 6);
    atomic_store(&policy.hp_clients, 1);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && orion_graph_copy_of(process, exec)->pieces == 6);
    count_calls();
    set_all_to(exec, nodes, steps, 10);
    CHECK(reads == 0 && sets == 0 && others == 5); /* the sizes of the kernel's four parameters, and their end */
    update_to(exec, steps, 20, 0);
    update_to(exec, steps, 30, 0);
    CHECK(reads == 2 * NODES && sets == 0 && updates == 0 && others == 5);
    atomic_store(&policy.hp_clients, 0);
    launch(exec, steps, expected);
    CHECK(sets == 0 && updates == 0); /* the program's executable ran */
    atomic_store(&policy.hp_clients, 1);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && sets == NODES && updates == 6);
    update_to(exec, steps, 30, 0);
    launch(exec, steps, expected);
    CHECK(sets == NODES && updates == 6); /* nothing has changed */
    update_to(exec, steps, 70, NODES - 1);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && sets == NODES + 1 && updates == 7);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

/* The parameters of a CUkernel name no context, which means the one that is current at that time. */
static void a_kernel_stays_in_the_context_of_its_update(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    CUcontext other;
    struct call call;
    uint32_t expected[2 * NODES] = {0};
    CUgraph graph = graph_of(steps, nodes);
    MUST(cuGraphInstantiate(&exec, graph, 0));
    takes(exec, 6);
    launch(exec, steps, expected);
    steps[0].value = 5;
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(&steps[0], 0, &call);
    kernel.kern = (CUkernel)kernel.func, kernel.func = NULL;
    MUST(cuGraphExecKernelNodeSetParams(exec, nodes[0], &kernel));
    MUST(cuCtxCreate(&other, NULL, 0, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuCtxSetCurrent(context));
    CHECK(in_pieces(exec) && set_in == context);
    MUST(cuStreamSynchronize(stream));
    launch(exec, steps, expected);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

int main(void)
{
    begin();
    every_update_reaches_the_pieces();
    every_update_reaches_the_pieces_with_an_old_driver();
    edges_may_come_in_another_order();
    updates_cost_few_calls_and_launches_pay_once();
    a_kernel_stays_in_the_context_of_its_update();
    return 0;
}
