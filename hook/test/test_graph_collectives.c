/* A graph that gets a collective by an update of one node runs whole from then on, because the ranks of a job count its launches. */
#include "graph_chain.h"

#include <string.h>

static CUfunction collective;

static CUgraphNode first_of(CUgraph graph)
{
    size_t roots = 1;
    CUgraphNode first;
    MUST(cuGraphGetRootNodes(graph, &first, &roots));
    return first;
}

/* Puts a collective into the first node of the executable, or, without an executable, of the graph. */
static void put_collective(CUgraphExec exec, CUgraph graph, bool in_general)
{
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CUDA_KERNEL_NODE_PARAMS parameters = kernel();
    parameters.func = collective;
    memcpy(&any.kernel, &parameters, sizeof parameters);
    if (exec == NULL) MUST(cuGraphKernelNodeSetParams(first_of(graph), &parameters));
    else if (in_general) MUST(cuGraphExecNodeSetParams(exec, first_of(graph), &any));
    else MUST(cuGraphExecKernelNodeSetParams(exec, first_of(graph), &parameters));
}

static bool is_collective(CUgraphExec exec) { return orion_graph_is_collective(orion_graphs(process), exec); }

static void a_node_that_becomes_a_collective_ends_the_pieces_until_an_update(void)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = chain(0, NULL);
    CUgraphExec exec = instantiated(graph);
    CHECK(launch(exec, stream, 0) == 6 && !is_collective(exec));
    for (unsigned in_general = 0; in_general < 2; in_general++) {
        put_collective(exec, graph, in_general);
        takes(exec, 6);
        CHECK(is_collective(exec) && launch(exec, stream, 0) == 1);
        MUST(cuGraphExecUpdate(exec, graph, &info));
        takes(exec, 6);
        CHECK(!is_collective(exec) && launch(exec, stream, 0) == 6);
    }
    end(exec);
    MUST(cuGraphDestroy(graph));
}

static void a_child_graph_that_gets_a_collective_ends_the_pieces(void)
{
    CUgraphNode node;
    CUgraph graph = chain(0, NULL), child = chain(STEPS, NULL);
    MUST(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    CUgraphExec exec = instantiated(graph);
    log_count = 0;
    CHECK(launch_in(exec, stream) > 1 && !is_collective(exec));
    put_collective(NULL, child, false);
    MUST(cuGraphExecChildGraphNodeSetParams(exec, node, child));
    takes(exec, 6);
    CHECK(is_collective(exec) && launch_in(exec, stream) == 1);
    MUST(cuStreamSynchronize(stream));
    end(exec);
    MUST(cuGraphDestroy(child));
    MUST(cuGraphDestroy(graph));
}

/* Of one node, so the hook has no copy of it. */
static void a_node_of_a_graph_without_a_copy_becomes_a_collective(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS parameters = kernel();
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddKernelNode(&node, graph, NULL, 0, &parameters));
    CUgraphExec exec = instantiated(graph);
    CHECK(orion_graph_copy_of(process, exec) == NULL && !is_collective(exec));
    put_collective(exec, graph, false);
    CHECK(is_collective(exec));
    end(exec);
    MUST(cuGraphDestroy(graph));
}

int main(void)
{
    CUmodule module;
    begin();
    MUST(cuModuleLoadData(&module, "orion-sim 1\nkernel ncclDevKernel_AllReduce duration_us=20\n"));
    MUST(cuModuleGetFunction(&collective, module, "ncclDevKernel_AllReduce"));
    a_node_that_becomes_a_collective_ends_the_pieces_until_an_update();
    a_child_graph_that_gets_a_collective_ends_the_pieces();
    a_node_of_a_graph_without_a_copy_becomes_a_collective();
    return 0;
}
