/* Builds graphs of each kind, and changes the parameters of their nodes. */
#include <string.h>

#include "graphs.h"

#define EVERY 8u
#define A_LAUNCH 1000000u
#define MOST 4096

static uint64_t value_of(uint64_t index, unsigned launch) { return index % A_LAUNCH + (uint64_t)launch * A_LAUNCH; }

static CUDA_KERNEL_NODE_PARAMS node_of(struct kernel *kernel)
{
    CUDA_KERNEL_NODE_PARAMS node = {.func = targets.kernel, .gridDimX = 132, .gridDimZ = 1};
    node.gridDimY = 1 + (unsigned)(kernel->us % 60000);
    node.blockDimX = 256, node.blockDimY = node.blockDimZ = 1;
    kernel->pointers[0] = &kernel->us, kernel->pointers[1] = &kernel->sms;
    kernel->pointers[2] = &kernel->log, kernel->pointers[3] = &kernel->value;
    node.kernelParams = kernel->pointers;
    return node;
}

static struct kernel kernel_of(const struct wanted *wanted, unsigned index)
{
    uint32_t sms = wanted->branches > 1 ? 132 / wanted->branches : 132;
    return (struct kernel){wanted->us, targets.log_address, value_of(index, wanted->launch), sms, {NULL}};
}

static CUresult add_kernel(CUgraph graph, CUgraphNode *last, const struct wanted *wanted, unsigned index)
{
    struct kernel kernel = kernel_of(wanted, index);
    CUDA_KERNEL_NODE_PARAMS node = node_of(&kernel);
    CUgraphNode before = *last;
    return cuGraphAddKernelNode(last, graph, &before, before != NULL, &node);
}

static void CUDA_CB log_from_host(void *value)
{
    targets.log[1 + targets.log[0]] = (uint64_t)(uintptr_t)value;
    targets.log[0]++;
}

static CUDA_MEMSET_NODE_PARAMS memset_of(uint64_t value)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = targets.memory, .value = (unsigned)value, .elementSize = 4, .width = 1, .height = 1};
    return set;
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS write_of(CUstreamBatchMemOpParams *op, uint64_t value)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = used->context, .count = 1, .paramArray = op};
    memset(op, 0, sizeof *op);
    op->operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op->writeValue.address = (CUdeviceptr)(uintptr_t)&targets.word;
    op->writeValue.value = (uint32_t)value;
    return batch;
}

static CUresult add_copies(CUgraph graph, CUgraphNode *last, uint64_t value)
{
    CUgraphNode set, before = *last;
    CUDA_MEMSET_NODE_PARAMS to = memset_of(value);
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    box.srcDevice = targets.memory, box.dstDevice = targets.memory + 8;
    box.WidthInBytes = 4, box.Height = box.Depth = 1;
    CUresult result = cuGraphAddMemsetNode(&set, graph, &before, 1, &to, used->context);
    return result ? result : cuGraphAddMemcpyNode(last, graph, &set, 1, &box, used->context);
}

static CUresult add_child(CUgraph graph, CUgraphNode *last, const struct wanted *wanted, unsigned index)
{
    CUgraph child;
    CUgraphNode inner = NULL, before = *last;
    CUresult result = cuGraphCreate(&child, 0);
    for (unsigned i = 0; i < EVERY && !result; i++) result = add_kernel(child, &inner, wanted, index + i);
    if (!result) result = cuGraphAddChildGraphNode(last, graph, &before, before != NULL, child);
    cuGraphDestroy(child);
    return result;
}

/* The node after every eighth kernel. */
static CUresult add_other(CUgraph graph, CUgraphNode *last, const struct wanted *wanted, unsigned index)
{
    uint64_t value = value_of(index, wanted->launch);
    CUgraphNode record, before = *last;
    CUDA_HOST_NODE_PARAMS host = {log_from_host, (void *)(uintptr_t)value};
    CUstreamBatchMemOpParams op;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = write_of(&op, value);
    CUresult result;
    switch (wanted->kind) {
    case HOSTS: return cuGraphAddHostNode(last, graph, &before, 1, &host);
    case COPIES: return add_copies(graph, last, value);
    case WRITES: return cuGraphAddBatchMemOpNode(last, graph, &before, 1, &batch);
    case EVENTS:
        result = cuGraphAddEventRecordNode(&record, graph, &before, 1, targets.event);
        return result ? result : cuGraphAddEventWaitNode(last, graph, &record, 1, targets.event);
    default: return CUDA_SUCCESS;
    }
}

static CUresult add_allocation(CUgraph graph, CUgraphNode *last)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .bytesize = 1 << 20};
    CUgraphNode allocation;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = cuGraphAddMemAllocNode(&allocation, graph, NULL, 0, &wanted);
    return result ? result : cuGraphAddMemFreeNode(last, graph, &allocation, 1, wanted.dptr);
}

static CUresult add_condition(CUgraph graph, CUgraphNode *last, const struct wanted *wanted)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphNode inner = NULL;
    node.conditional.type = CU_GRAPH_COND_TYPE_IF, node.conditional.size = 1, node.conditional.ctx = used->context;
    CUresult result =
        cuGraphConditionalHandleCreate(&node.conditional.handle, graph, used->context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (!result) result = cuGraphAddNode(last, graph, NULL, NULL, 0, &node);
    return result ? result : add_kernel(node.conditional.phGraph_out[0], &inner, wanted, wanted->kernels);
}

/* A first kernel, branches, and a last kernel that waits for them. */
static CUresult add_branches(CUgraph graph, const struct wanted *wanted)
{
    CUgraphNode first = NULL, last[MOST];
    unsigned branches = wanted->branches < MOST ? wanted->branches : MOST;
    CUresult result = add_kernel(graph, &first, wanted, 0);
    for (unsigned i = 0; i < branches; i++) last[i] = first;
    for (unsigned i = 1; i + 1 < wanted->kernels && !result; i++) result = add_kernel(graph, &last[i % branches], wanted, i);
    struct kernel kernel = kernel_of(wanted, wanted->kernels - 1);
    CUDA_KERNEL_NODE_PARAMS node = node_of(&kernel);
    return result ? result : cuGraphAddKernelNode(&first, graph, last, branches, &node);
}

static CUresult add_chain(CUgraph graph, const struct wanted *wanted)
{
    CUgraphNode last = NULL;
    CUresult result = CUDA_SUCCESS;
    if (wanted->kind == ALLOCATES) result = add_allocation(graph, &last);
    if (wanted->kind == DECIDES) result = add_condition(graph, &last, wanted);
    for (unsigned i = 0; i < wanted->kernels && !result; i += EVERY) {
        if (wanted->kind == CHILDREN) {
            result = add_child(graph, &last, wanted, i);
            continue;
        }
        for (unsigned j = i; j < i + EVERY && j < wanted->kernels && !result; j++) result = add_kernel(graph, &last, wanted, j);
        if (!result) result = add_other(graph, &last, wanted, i + EVERY - 1);
    }
    return result;
}

static CUresult capture(const struct wanted *wanted, CUgraph *graph)
{
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUstream stream = used->streams[1];
    CUresult result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (unsigned i = 0; i < wanted->kernels && !result; i++) {
        struct kernel kernel = kernel_of(wanted, i);
        CUDA_KERNEL_NODE_PARAMS node = node_of(&kernel);
        CUlaunchConfig config = {node.gridDimX, node.gridDimY, 1, 256, 1, 1, 0, stream, &early, wanted->kind == EARLY && i > 0};
        result = cuLaunchKernelEx(&config, targets.kernel, kernel.pointers, NULL);
    }
    CUresult ended = cuStreamEndCapture(stream, graph);
    return result ? result : ended;
}

CUresult build(const struct wanted *wanted, CUgraph *graph)
{
    if (wanted->kind == CAPTURED || wanted->kind == EARLY) return capture(wanted, graph);
    CUresult result = cuGraphCreate(graph, 0);
    if (result) return result;
    return wanted->branches > 1 ? add_branches(*graph, wanted) : add_chain(*graph, wanted);
}

static CUresult set_kernel(CUgraphNode node, CUgraphExec executable, enum change how, unsigned launch)
{
    CUDA_KERNEL_NODE_PARAMS now;
    CUresult result = cuGraphKernelNodeGetParams(node, &now);
    if (result) return result;
    uint64_t value = *(uint64_t *)now.kernelParams[3];
    if (how == SWITCHES) return executable ? cuGraphNodeSetEnabled(executable, node, (value + launch) % 2) : CUDA_SUCCESS;
    struct kernel kernel = {*(uint64_t *)now.kernelParams[0],
                            *(uint64_t *)now.kernelParams[2],
                            value_of(value, launch),
                            *(uint32_t *)now.kernelParams[1],
                            {NULL}};
    CUDA_KERNEL_NODE_PARAMS next = node_of(&kernel);
    if (!executable) return cuGraphKernelNodeSetParams(node, &next);
    if (how != IN_GENERAL) return cuGraphExecKernelNodeSetParams(executable, node, &next);
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&general.kernel, &next, sizeof next); /* the structure of v3 begins with the fields of v2 */
    return cuGraphExecNodeSetParams(executable, node, &general);
}

static CUresult set_other(CUgraphNode node, CUgraphNodeType type, CUgraphExec executable, unsigned launch)
{
    CUDA_HOST_NODE_PARAMS host;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
    CUstreamBatchMemOpParams op;
    CUresult result;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
        if ((result = cuGraphHostNodeGetParams(node, &host))) return result;
        host.userData = (void *)(uintptr_t)value_of((uintptr_t)host.userData, launch);
        return executable ? cuGraphExecHostNodeSetParams(executable, node, &host) : cuGraphHostNodeSetParams(node, &host);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if ((result = cuGraphMemsetNodeGetParams(node, &set))) return result;
        set = memset_of(value_of(set.value, launch));
        return executable ? cuGraphExecMemsetNodeSetParams(executable, node, &set, used->context)
                          : cuGraphMemsetNodeSetParams(node, &set);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        if ((result = cuGraphBatchMemOpNodeGetParams(node, &batch))) return result;
        batch = write_of(&op, value_of(batch.paramArray->writeValue.value, launch));
        return executable ? cuGraphExecBatchMemOpNodeSetParams(executable, node, &batch)
                          : cuGraphBatchMemOpNodeSetParams(node, &batch);
    default: return CUDA_SUCCESS;
    }
}

CUresult set_values(CUgraph graph, CUgraphExec executable, enum change how, unsigned launch)
{
    static CUgraphNode nodes[2][MOST]; /* of the graph, and of a child graph */
    static unsigned depth;
    CUgraphNode *own = nodes[depth];
    size_t count = MOST;
    CUresult result = cuGraphGetNodes(graph, own, &count);
    for (size_t i = 0; i < count && !result; i++) {
        CUgraphNodeType type;
        CUgraph child;
        if ((result = cuGraphNodeGetType(own[i], &type))) break;
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) result = set_kernel(own[i], executable, how, launch);
        else if (how == SWITCHES) continue;
        else if (type != CU_GRAPH_NODE_TYPE_GRAPH) result = set_other(own[i], type, executable, launch);
        else if (!(result = cuGraphChildGraphNodeGetGraph(own[i], &child))) {
            depth = 1;
            result = set_values(child, NULL, how, launch);
            depth = 0;
            if (!result && executable) result = cuGraphExecChildGraphNodeSetParams(executable, own[i], child);
        }
    }
    return result;
}
