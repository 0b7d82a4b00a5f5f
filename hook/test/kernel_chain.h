/* For tests of the identities that the hook makes from a graph's nodes: chains of kernels on the simulated driver, and what the hook
 * says of their executables. */
#ifndef ORION_TEST_KERNEL_CHAIN_H
#define ORION_TEST_KERNEL_CHAIN_H

#include "simulated_process.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include "learning/graphs.h"
#include "learning/launch.h"
#include "process/process.h"

static CUfunction function, other;

static CUmodule begin(void)
{
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=5\nkernel two duration_us=9 params=8\n"
                                    "kernel ncclDevKernel_AllReduce duration_us=5\n");
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuModuleGetFunction(&other, module, "two"));
#if defined(__SANITIZE_ADDRESS__)
    __lsan_register_root_region(process, sizeof(struct orion_mapping)); /* it holds the copies of executables that stay */
#endif
    return module;
}

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction which, unsigned grid)
{
    static uint64_t argument;
    static void *arguments[] = {&argument};
    return (CUDA_KERNEL_NODE_PARAMS){.func = which,
                                     .gridDimX = grid,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 64,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = which == other ? arguments : NULL};
}

/* A chain of kernels of grid 1, 2, ...; `nodes` may be NULL. */
static CUgraph chain(unsigned count, CUgraphNode *nodes)
{
    CUgraph graph;
    CUgraphNode before = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < count; i++) {
        CUDA_KERNEL_NODE_PARAMS parameters = kernel(function, 1 + i % 100);
        CUgraphNode made;
        MUST(cuGraphAddKernelNode(&made, graph, &before, before != NULL, &parameters));
        before = made;
        if (nodes != NULL) nodes[i] = made;
    }
    return graph;
}

static CUgraphExec instantiated(CUgraph graph)
{
    CUgraphExec exec;
    MUST(cuGraphInstantiate(&exec, graph, 0));
    orion_graph_made(exec, graph);
    return exec;
}

static uint64_t of(CUgraphExec exec) { return orion_launch_identity(process, &(struct orion_launch){.graph = exec}); }

#endif
