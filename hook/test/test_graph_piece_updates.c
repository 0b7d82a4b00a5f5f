/* Updates of be's graphs in pieces, on the simulated driver, through the hook's wrappers: the pieces do what the updated
 * executable of the program does. */
#include "graph_chain.h"

#include "be/graph_updates.h"

static void an_update_of_the_whole_graph_reaches_the_pieces(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    CUgraphExecUpdateResultInfo info;
    for (unsigned round = 0; round < 3; round++) {
        CUgraph next = chain(100 * round + 100, NULL);
        MUST(cuGraphExecUpdate(exec, next, &info));
        MUST(cuGraphDestroy(next));
        CHECK(launch(exec, stream, 100 * round + 100) == 6);
    }
    end(exec);
}

static void updates_of_single_nodes_reach_the_pieces(void)
{
    CUgraphNode hosts[STEPS];
    CUgraphExec exec = instantiated(chain(0, hosts));
    for (unsigned round = 0; round < 3; round++) { /* before the first pieces, and after */
        for (unsigned i = 0; i < STEPS; i++) {
            CUDA_HOST_NODE_PARAMS host = {.fn = note, .userData = (void *)(uintptr_t)(50 * round + i)};
            MUST(cuGraphExecHostNodeSetParams(exec, hosts[i], &host));
        }
        CHECK(launch(exec, stream, 50 * round) == 6);
    }
    end(exec);
}

static CUfunction function_of(const char *image, const char *name)
{
    CUmodule module;
    CUfunction found;
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&found, module, name));
    return found;
}

/* A chain whose first kernel has a grid and an argument of its own, and clusters of so many blocks; 0: none. */
static CUgraph with_clusters(unsigned offset, unsigned grid, unsigned blocks)
{
    static CUfunction takes_argument;
    static uint64_t argument;
    size_t roots = 1;
    CUgraphNode first;
    CUgraph graph = chain(offset, NULL);
    CUDA_KERNEL_NODE_PARAMS parameters = kernel();
    if (takes_argument == NULL) takes_argument = function_of("orion-sim 1\nkernel two duration_us=20 params=8\n", "two");
    argument++;
    parameters.func = takes_argument, parameters.gridDimX = grid, parameters.kernelParams = (void *[]){&argument};
    MUST(cuGraphGetRootNodes(graph, &first, &roots));
    MUST(cuGraphKernelNodeSetParams(first, &parameters));
    CUlaunchAttributeValue value = {.clusterDim = {blocks, 1, 1}};
    if (blocks > 0) MUST(cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
    return graph;
}

static unsigned pieces_after_an_update_with_clusters(CUgraphExec exec, unsigned grid, unsigned blocks)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph next = with_clusters(0, grid, blocks);
    MUST(cuGraphExecUpdate(exec, next, &info));
    MUST(cuGraphDestroy(next));
    takes(exec, 6);
    return launch(exec, stream, 0);
}

static void a_kernel_with_clusters_of_another_shape_ends_the_pieces_until_an_update(void)
{
    CUgraphExec exec = instantiated(with_clusters(0, 4, 2));
    CHECK(launch(exec, stream, 0) == 6);
    for (unsigned i = 0; i < 3; i++) CHECK(pieces_after_an_update_with_clusters(exec, 8, 2) == 6);
    CHECK(pieces_after_an_update_with_clusters(exec, 8, 4) == 1); /* with other arguments only */
    for (unsigned i = 0; i < 3; i++) CHECK(pieces_after_an_update_with_clusters(exec, 16, 4) == 1);
    CHECK(pieces_after_an_update_with_clusters(exec, 32, 0) == 1);
    CHECK(pieces_after_an_update_with_clusters(exec, 8, 2) == 6);
    end(exec);
}

static void a_kernel_that_gets_clusters_without_another_grid_ends_the_pieces_until_an_update(void)
{
    CUgraphExec exec = instantiated(with_clusters(0, 4, 0));
    for (unsigned i = 0; i < 3; i++) CHECK(pieces_after_an_update_with_clusters(exec, 4, 0) == 6);
    for (unsigned i = 0; i < 2; i++) CHECK(pieces_after_an_update_with_clusters(exec, 4, 2) == 1);
    for (unsigned i = 0; i < 3; i++) CHECK(pieces_after_an_update_with_clusters(exec, 4, 0) == 6);
    end(exec);
}

static void clusters_of_launches_and_of_nodes_are_noticed(void)
{
    CUgraphNode node;
    CUgraph graph = chain(0, NULL);
    size_t roots = 1;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}};
    CUlaunchConfig config = {1, 1, 1, 64, 1, 1, 0, stream, &attribute, 1};
    _Atomic uint32_t *noticed = &orion_graph_copies(process)->clusters;
    MUST(cuGraphGetRootNodes(graph, &node, &roots));
    for (unsigned blocks = 1; blocks < 3; blocks++) {
        attribute.value.clusterDim.x = config.gridDimX = blocks;
        atomic_store(noticed, 0);
        MUST(cuLaunchKernelEx(&config, function, NULL, NULL));
        CHECK(atomic_load(noticed) == (blocks > 1));
        atomic_store(noticed, 0);
        MUST(cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value));
        CHECK(atomic_load(noticed) == (blocks > 1));
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphDestroy(graph));
}

static CUresult CUDAAPI refuses(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host)
{
    (void)node, (void)host;
    return CUDA_ERROR_INVALID_VALUE;
}

static void a_node_that_could_not_be_set_ends_the_pieces_until_an_update(void)
{
    CUgraphNode hosts[STEPS];
    CUgraphExec exec = instantiated(chain(0, hosts));
    CHECK(launch(exec, stream, 0) == 6);
    CUDA_HOST_NODE_PARAMS host = {.fn = note, .userData = (void *)(uintptr_t)0};
    MUST(cuGraphExecHostNodeSetParams(exec, hosts[0], &host));
    orion_driver.cuGraphHostNodeSetParams = refuses;
    CHECK(launch(exec, stream, 0) == 1);
    orion_driver.cuGraphHostNodeSetParams = cuGraphHostNodeSetParams;
    CUgraph next = chain(7, NULL);
    CUgraphExecUpdateResultInfo info;
    MUST(cuGraphExecUpdate(exec, next, &info));
    CHECK(launch(exec, stream, 7) == 6);
    end(exec);
}

static void a_changed_child_graph_reaches_the_pieces(void)
{
    CUgraph graph = chain(0, NULL), child = chain(30, NULL), other = chain(60, NULL);
    CUgraphNode node;
    MUST(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    CUgraphExec exec = instantiated(graph);
    MUST(cuGraphExecChildGraphNodeSetParams(exec, node, other));
    takes(exec, 6);
    log_count = 0;
    CHECK(launch_in(exec, stream) > 1);
    MUST(cuStreamSynchronize(stream));
    CHECK(log_count == 2 * STEPS);
    for (unsigned i = 0; i < log_count; i++) CHECK(log_of[i] < STEPS || log_of[i] >= 60);
    end(exec);
}

static CUgraph with_children(unsigned offset, CUgraphNode *node)
{
    CUgraph graph, first = chain(offset, NULL), second = chain(offset + STEPS, NULL);
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddChildGraphNode(&node[0], graph, NULL, 0, first));
    MUST(cuGraphAddChildGraphNode(&node[1], graph, &node[0], 1, second));
    MUST(cuGraphDestroy(first));
    MUST(cuGraphDestroy(second));
    return graph;
}

static void launch_children(CUgraphExec exec, unsigned first, unsigned second)
{
    log_count = 0;
    CHECK(launch_in(exec, stream) == 2);
    MUST(cuStreamSynchronize(stream));
    CHECK(log_count == 2 * STEPS);
    for (unsigned i = 0; i < STEPS; i++) CHECK(log_of[i] == first + i && log_of[STEPS + i] == second + i);
}

static void a_long_child_graph_is_cut_too(void)
{
    CUgraphNode node[2], other[2];
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec = instantiated(with_children(0, node));
    launch_children(exec, 0, STEPS);
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    CHECK(copy->pieces == 2 && copy->piece[0].inner == NULL);
    takes(copy->piece[0].exec, 4); /* both children have the same nodes */
    launch_children(exec, 0, STEPS);
    for (unsigned i = 0; i < 2; i++) CHECK(copy->piece[i].inner != NULL && copy->piece[i].inner->pieces == 4);
    MUST(cuGraphExecChildGraphNodeSetParams(exec, node[1], chain(200, NULL)));
    launch_children(exec, 0, 200);
    MUST(cuGraphExecUpdate(exec, with_children(300, other), &info));
    launch_children(exec, 300, 300 + STEPS);
    takes_ns(copy->piece[0].inner->piece[0].exec, WINDOW_NS / 9); /* the 8 pieces are alike, and all together prove short */
    log_count = 0;
    CHECK(launch_in(exec, stream) == 1);
    MUST(cuStreamSynchronize(stream));
    CHECK(log_count == 2 * STEPS);
    end(exec);
}

static void a_disabled_node_stays_disabled(void)
{
    CUgraphNode hosts[STEPS];
    CUgraph graph;
    CUgraphNode before = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < STEPS; i++) {
        CUDA_KERNEL_NODE_PARAMS parameters = kernel();
        MUST(cuGraphAddKernelNode(&hosts[i], graph, &before, before != NULL, &parameters));
        before = hosts[i];
    }
    CUgraphExec exec = instantiated(graph);
    MUST(cuGraphNodeSetEnabled(exec, hosts[3], 0));
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    takes(exec, 6); /* another graph than before, to the hook */
    CHECK(launch_in(exec, stream) > 1);
    unsigned enabled = 1;
    MUST(cuGraphNodeGetEnabled(copy->piece[copy->node[3].piece].exec, copy->node[3].own, &enabled));
    CHECK(enabled == 0);
    MUST(cuStreamSynchronize(stream));
    end(exec);
}

static void a_node_that_is_disabled_while_the_process_is_not_be_stays_disabled(void)
{
    CUgraphNode kernels[STEPS];
    CUgraphExecUpdateResultInfo info;
    CUgraph graph;
    CUgraphNode before = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < STEPS; i++) {
        CUDA_KERNEL_NODE_PARAMS parameters = kernel();
        MUST(cuGraphAddKernelNode(&kernels[i], graph, &before, before != NULL, &parameters));
        before = kernels[i];
    }
    CUgraphExec exec = instantiated(graph);
    CHECK(launch_in(exec, stream) > 1);
    atomic_store(&gpu->role, ORION_ROLE_NONE);
    MUST(cuGraphNodeSetEnabled(exec, kernels[3], 0));
    atomic_store(&gpu->role, ORION_ROLE_BE);
    MUST(cuGraphExecUpdate(exec, graph, &info));
    takes(exec, 6);
    CHECK(launch_in(exec, stream) > 1);
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    unsigned enabled = 1;
    MUST(cuGraphNodeGetEnabled(copy->piece[copy->node[3].piece].exec, copy->node[3].own, &enabled));
    CHECK(enabled == 0);
    MUST(cuStreamSynchronize(stream));
    end(exec);
}

static void a_node_that_the_hook_does_not_know_ends_the_pieces(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    CHECK(launch(exec, stream, 0) == 6);
    orion_graph_copy_enabled(exec, (CUgraphNode)&policy, false); /* perhaps a node of a child graph */
    CHECK(launch(exec, stream, 0) == 1);
    CUgraph next = chain(7, NULL);
    CUgraphExecUpdateResultInfo info;
    MUST(cuGraphExecUpdate(exec, next, &info)); /* the node stays disabled */
    CHECK(launch(exec, stream, 7) == 1);
    end(exec);
}

int main(void)
{
    begin();
    an_update_of_the_whole_graph_reaches_the_pieces();
    updates_of_single_nodes_reach_the_pieces();
    a_node_that_could_not_be_set_ends_the_pieces_until_an_update();
    a_kernel_with_clusters_of_another_shape_ends_the_pieces_until_an_update();
    a_kernel_that_gets_clusters_without_another_grid_ends_the_pieces_until_an_update();
    clusters_of_launches_and_of_nodes_are_noticed();
    a_changed_child_graph_reaches_the_pieces();
    a_long_child_graph_is_cut_too();
    a_disabled_node_stays_disabled();
    a_node_that_is_disabled_while_the_process_is_not_be_stays_disabled();
    a_node_that_the_hook_does_not_know_ends_the_pieces();
    return 0;
}
