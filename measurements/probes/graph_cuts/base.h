/* What every section needs: words that a graph can wait for, graphs of spinning kernels, and lines of JSON. */
#ifndef GRAPH_CUTS_BASE_H
#define GRAPH_CUTS_BASE_H

#include "../sections.h"

#include <dlfcn.h>

#define BLOCKS 132
#define THREADS 256
#define NODES_MOST 5000
#define SEEN_WORDS 8 /* one bit for each of up to 256 SMs */

/* A kernel of three parameters: it spins for `us` microseconds. If `out` is not 0, its first thread stores the GPU's time
 * in microseconds there when it begins, and 8 bytes further when it ends. If `seen` is not 0, each block sets the bit of
 * its SM there. */
static const char source_ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 us,.param .u64 out,.param .u64 seen){.reg .u64 %now,%begin,%end,%us,%out,%seen,%at;"
    ".reg .u32 %sm,%word,%bit,%one,%old,%b,%t;.reg .pred %more,%other,%none,%unseen;"
    "ld.param.u64 %us,[us];ld.param.u64 %out,[out];ld.param.u64 %seen,[seen];mov.u64 %begin,%globaltimer;"
    "mul.lo.u64 %us,%us,1000;add.u64 %end,%begin,%us;"
    "setp.eq.u64 %unseen,%seen,0;@%unseen bra N;"
    "mov.u32 %sm,%smid;shr.u32 %word,%sm,5;and.b32 %bit,%sm,31;mov.u32 %one,1;shl.b32 %bit,%one,%bit;"
    "mul.wide.u32 %at,%word,4;add.u64 %at,%at,%seen;atom.global.or.b32 %old,[%at],%bit;"
    "N:mov.u32 %b,%ctaid.x;mov.u32 %t,%tid.x;or.b32 %b,%b,%t;setp.ne.u32 %other,%b,0;setp.eq.u64 %none,%out,0;"
    "or.pred %other,%other,%none;@%other bra L;st.volatile.global.u64 [%out],%begin;membar.sys;"
    "L:mov.u64 %now,%globaltimer;setp.lt.u64 %more,%now,%end;@%more bra L;"
    "@%other bra E;st.volatile.global.u64 [%out+8],%now;membar.sys;E:ret;}\n";
static const char source_simulated[] = "orion-sim 1\nkernel spin duration_us=@0 sms=grid params=8,8,8\n";

static const char *source; /* of the kernel */
static CUdeviceptr page_address;
static CUstream stream;
static CUcontext context;

/* -- Words ----------------------------------------------------------------------------------------------------------- */

static inline void start(void)
{
    simulated = dlsym(RTLD_DEFAULT, "orion_sim_gpu_count") != NULL;
    source = simulated ? source_simulated : source_ptx;
    load(source);
    must(cuCtxGetCurrent(&context), "context");
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    must(cuMemHostRegister((void *)(uintptr_t)page, 4096, flags), "register");
    must(cuMemHostGetDevicePointer(&page_address, (void *)(uintptr_t)page, 0), "address");
}

static inline CUstreamBatchMemOpParams wait_for(CUdeviceptr word, unsigned flags)
{
    CUstreamBatchMemOpParams operation;
    memset(&operation, 0, sizeof operation);
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = word;
    operation.waitValue.value = 0;
    operation.waitValue.flags = flags;
    return operation;
}

/* -- Graphs ---------------------------------------------------------------------------------------------------------- */

struct kernel { uint64_t us, out, seen; };

static inline CUDA_KERNEL_NODE_PARAMS call_of(struct kernel *kernel, void **parameters, unsigned blocks)
{
    parameters[0] = &kernel->us;
    parameters[1] = &kernel->out;
    parameters[2] = &kernel->seen;
    return (CUDA_KERNEL_NODE_PARAMS){.func = spin_kernel, .gridDimX = blocks, .gridDimY = 1, .gridDimZ = 1,
                                     .blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters};
}

static inline CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, struct kernel kernel, unsigned blocks)
{
    void *parameters[3];
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS call = call_of(&kernel, parameters, blocks);
    must(cuGraphAddKernelNode(&node, graph, &after, after ? 1 : 0, &call), "kernel node");
    return node;
}

static inline CUresult try_wait(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr word, unsigned flags)
{
    CUstreamBatchMemOpParams operation = wait_for(word, flags);
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = context, .count = 1, .paramArray = &operation, .flags = 0};
    return cuGraphAddBatchMemOpNode(node, graph, after, count, &batch);
}

static inline CUgraphNode add_wait(CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr word, unsigned flags)
{
    CUgraphNode node;
    must(try_wait(&node, graph, after, count, word, flags), "batch memory operation node");
    return node;
}

static inline CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    must(cuGraphInstantiate(&exec, graph, 0), "instantiate");
    return exec;
}

struct shape {
    int kernels, us, branches; /* `kernels` in all branches together */
    int cuts;                  /* in each branch */
    bool joined;               /* a cut is one wait behind all branches, and not one in each */
    CUdeviceptr word, out;     /* out: 16 bytes for each kernel, 0: none */
    unsigned flags;
};

/* Whether a cut comes before kernel `at` of a branch of `length` kernels. */
static inline bool cut_before(const struct shape *shape, int at, int length)
{
    return shape->cuts > 0 && (int)((int64_t)at * (shape->cuts + 1) / length) != (int)((int64_t)(at - 1) * (shape->cuts + 1) / length) &&
           at > 0;
}

static inline CUgraph graph_of(const struct shape *shape)
{
    CUgraph graph;
    CUgraphNode last[8] = {NULL};
    int length = shape->kernels / shape->branches;
    must(cuGraphCreate(&graph, 0), "graph");
    for (int at = 0; at < length; at++) {
        bool cut = cut_before(shape, at, length);
        if (cut && shape->joined) {
            last[0] = add_wait(graph, last, (size_t)shape->branches, shape->word, shape->flags);
            for (int b = 1; b < shape->branches; b++) last[b] = last[0];
        }
        for (int b = 0; b < shape->branches; b++) {
            if (cut && !shape->joined) last[b] = add_wait(graph, &last[b], 1, shape->word, shape->flags);
            struct kernel kernel = {(uint64_t)shape->us, shape->out ? shape->out + 16u * (unsigned)(at * shape->branches + b) : 0, 0};
            last[b] = add_kernel(graph, last[b], kernel, (unsigned)(BLOCKS / shape->branches));
        }
    }
    return graph;
}

static inline CUgraphExec exec_of(const struct shape *shape)
{
    CUgraph graph = graph_of(shape);
    CUgraphExec exec = instantiate(graph);
    must(cuGraphDestroy(graph), "graph");
    return exec;
}

/* Launches `count` times and waits. Returns the GPU's microseconds for each launch; *cpu: those of the calls. */
static inline double timed(CUgraphExec exec, int count, double *cpu)
{
    static CUevent begin, end;
    float milliseconds;
    if (!begin) must(cuEventCreate(&begin, 0), "event"), must(cuEventCreate(&end, 0), "event");
    must(cuEventRecord(begin, stream), "record");
    double begun = now_us();
    for (int i = 0; i < count; i++) must(cuGraphLaunch(exec, stream), "launch");
    *cpu = (now_us() - begun) / count;
    must(cuEventRecord(end, stream), "record");
    must(cuEventSynchronize(end), "synchronise");
    must(cuEventElapsedTime(&milliseconds, begin, end), "elapsed");
    return milliseconds * 1000.0 / count;
}

#endif
