/* A graph for tests of be's graphs in pieces: a chain of kernels, each followed by a host node that notes its number, because
 * kernels of the simulated GPU have no result. */
#ifndef ORION_TEST_GRAPH_CHAIN_H
#define ORION_TEST_GRAPH_CHAIN_H

#include "simulated_process.h"

#include "be/graph_copies.h"
#include "be/window.h"
#include "learning/durations.h"
#include "learning/graphs.h"

#define STEPS 24u
#define WINDOW_NS 400000000u

static struct orion_policy_page policy;
static struct orion_grant_page grant;
static CUfunction function;
static CUstream stream;

static unsigned log_count;
static unsigned log_of[4 * STEPS];

static void CUDA_CB note(void *number)
{
    CHECK(log_count < 4 * STEPS);
    log_of[log_count++] = (unsigned)(uintptr_t)number;
}

static void begin(void)
{
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    policy.copy[0] = (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = WINDOW_NS};
    atomic_store(&policy.hp_clients, 1);
    grant.copy[0].window_share_ns = WINDOW_NS;
    gpu->policy = &policy;
    gpu->grant = &grant;
    learn_nothing();
}

static CUDA_KERNEL_NODE_PARAMS kernel(void)
{
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1};
}

/* A chain of STEPS kernels, each followed by a host node that notes its number plus `offset`. */
static CUgraph chain(unsigned offset, CUgraphNode *hosts)
{
    CUgraph graph;
    CUgraphNode before = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < STEPS; i++) {
        CUDA_KERNEL_NODE_PARAMS parameters = kernel();
        CUDA_HOST_NODE_PARAMS host = {.fn = note, .userData = (void *)(uintptr_t)(offset + i)};
        CUgraphNode made, noted;
        MUST(cuGraphAddKernelNode(&made, graph, &before, before != NULL, &parameters));
        MUST(cuGraphAddHostNode(&noted, graph, &made, 1, &host));
        before = noted;
        if (hosts != NULL) hosts[i] = noted;
    }
    return graph;
}

static void takes_ns(CUgraphExec exec, uint64_t ns)
{
    uint64_t identity = orion_graph_identity(orion_graphs(process), exec);
    orion_window_reap(process, gpu); /* enters what was measured so far */
    orion_duration_forget(orion_durations(process), identity);
    orion_duration_learn(orion_durations(process), identity, ns, ORION_SAMPLE_CLEAN);
}
static void takes(CUgraphExec exec, unsigned windows) { takes_ns(exec, (uint64_t)windows * WINDOW_NS - 1000); }

/* The hook has learnt that the graph takes 6 windows. */
static CUgraphExec instantiated(CUgraph graph)
{
    CUgraphExec exec;
    MUST(cuGraphInstantiate(&exec, graph, 0));
    takes(exec, 6);
    return exec;
}

static void end(CUgraphExec exec)
{
    MUST(cuGraphExecDestroy(exec));
    CHECK(orion_graph_copy_of(process, exec) == NULL);
}

/* Launches the graph. Returns how many executables the hook has launched. */
static unsigned launch_in(CUgraphExec exec, CUstream where)
{
    MUST(cuGraphLaunch(exec, where));
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    return copy != NULL && copy->event != NULL ? copy->pieces : 1;
}

/* The same; also expects the numbers from `offset` on, in order. */
static inline unsigned launch(CUgraphExec exec, CUstream where, unsigned offset)
{
    log_count = 0;
    unsigned launches = launch_in(exec, where);
    MUST(cuStreamSynchronize(where));
    CHECK(log_count == STEPS);
    for (unsigned i = 0; i < STEPS; i++) CHECK(log_of[i] == offset + i);
    return launches;
}

/* Expects the numbers of so many launches, one launch after the other. */
static inline void never_mixed(unsigned launches)
{
    CHECK(log_count == launches * STEPS);
    for (unsigned i = 0; i < log_count; i++) CHECK(log_of[i] == i % STEPS);
}

#endif
