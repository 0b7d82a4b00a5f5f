/* The hook identifies a graph by its nodes. The test instantiates a graph twice, changes its length, changes single
 * nodes and changes them back, and uses child graphs and nodes that the hook cannot read. It runs on the simulated driver. */
#include "kernel_chain.h"

#include "be/graph_parameters.h"
#include "learning/durations.h"
#include "learning/facts.h"

static CUfunction collective;

static void set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    bool is_collective;
    orion_graph_node_set(exec, node, orion_parameters_identity(process, CU_GRAPH_NODE_TYPE_KERNEL, parameters, &is_collective));
    CHECK(!is_collective);
}

static void graphs_with_the_same_nodes_have_the_same_identity(void)
{
    CUgraph graph = chain(10, NULL), same = chain(10, NULL), longer = chain(11, NULL);
    CUgraphExec a = instantiated(graph), b = instantiated(same), c = instantiated(longer);
    CHECK(of(a) == of(b) && of(a) != of(c) && !orion_identity_is_local(of(a)));
    uint64_t before = of(a);
    CUgraphExecUpdateResultInfo info;
    MUST(cuGraphExecUpdate(a, same, &info));
    orion_graph_made(a, same);
    CHECK(of(a) == before);
    orion_graph_ending(a);
    MUST(cuGraphExecDestroy(a));
    CHECK(orion_identity_is_local(of(a)) && of(a) != of(b));
}

static void a_node_that_is_changed_back_restores_the_identity(void)
{
    CUgraphNode nodes[10];
    CUgraph graph = chain(10, nodes);
    CUgraphExec exec = instantiated(graph);
    uint64_t before = of(exec);
    CUDA_KERNEL_NODE_PARAMS parameters = kernel(function, 4), changed = kernel(other, 77);
    /* The same kernel and grid as before. */
    set(exec, nodes[3], &parameters);
    CHECK(of(exec) == before);
    set(exec, nodes[3], &changed);
    uint64_t after = of(exec);
    CHECK(after != before);
    set(exec, nodes[5], &changed);
    orion_graph_node_enabled(exec, nodes[5], false);
    CHECK(of(exec) != after && of(exec) != before);
    orion_graph_node_enabled(exec, nodes[5], true);
    parameters = kernel(function, 6);
    set(exec, nodes[5], &parameters);
    CHECK(of(exec) == after);
    parameters = kernel(function, 4);
    set(exec, nodes[3], &parameters);
    CHECK(of(exec) == before);
    CUDA_HOST_NODE_PARAMS host = {0};
    bool is_collective;
    CHECK(orion_parameters_identity(process, CU_GRAPH_NODE_TYPE_HOST, &host, &is_collective) == ORION_IDENTITY_NONE);
    orion_graph_node_set(exec, nodes[3], ORION_IDENTITY_NONE);
    CHECK(of(exec) == before);
}

static void children_count_as_their_nodes(void)
{
    CUgraph graph = chain(3, NULL), child = chain(4, NULL), another = chain(5, NULL);
    CUgraphNode node;
    MUST(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    CUgraphExec exec = instantiated(graph);
    uint64_t before = of(exec);
    CHECK(!orion_identity_is_local(before) && before != of(instantiated(chain(7, NULL))));
    orion_graph_child_set(exec, node, another);
    CHECK(of(exec) != before);
    orion_graph_child_set(exec, node, child);
    CHECK(of(exec) == before);
}

static bool branches(CUgraphExec exec) { return orion_graph_has_branches(orion_graphs(process), exec); }

/* The walk counts edges; who knows the levels decides, except about child graphs. */
static void graphs_with_branches_are_known(void)
{
    CUgraphNode node;
    CUgraph graph = chain(3, NULL), parent;
    CUDA_KERNEL_NODE_PARAMS parameters = kernel(function, 5);
    CHECK(!branches(instantiated(graph)) && !branches(instantiated(chain(1, NULL))));
    MUST(cuGraphAddKernelNode(&node, graph, NULL, 0, &parameters)); /* a second root */
    CUgraphExec exec = instantiated(graph);
    CHECK(branches(exec));
    orion_graph_set_branches(orion_graphs(process), exec, false);
    CHECK(!branches(exec));
    orion_graph_set_branches(orion_graphs(process), exec, true);
    CHECK(branches(exec));
    CUgraphNode roots[2];
    CUgraph joined; /* as many edges as a chain has */
    MUST(cuGraphCreate(&joined, 0));
    for (int i = 0; i < 2; i++) MUST(cuGraphAddKernelNode(&roots[i], joined, NULL, 0, &parameters));
    MUST(cuGraphAddKernelNode(&node, joined, roots, 2, &parameters));
    CHECK(branches(instantiated(joined)));
    MUST(cuGraphCreate(&parent, 0));
    MUST(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
    exec = instantiated(parent);
    orion_graph_set_branches(orion_graphs(process), exec, false);
    CHECK(branches(exec)); /* those of the child graph */
}

/* Copies of 4096 and 4097 bytes are in the same size class (orion_identity_bytes); 65536 bytes are in another. */
static void copies_are_identified_by_size_class(void)
{
    uint64_t identities[3];
    for (unsigned i = 0; i < 3; i++) {
        static char from[1 << 16], to[1 << 16];
        CUgraph graph = chain(2, NULL);
        CUgraphNode node;
        CUcontext context;
        MUST(cuCtxGetCurrent(&context));
        CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                             .srcHost = from,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = to,
                             .WidthInBytes = i < 2 ? 4096 + i : 65536,
                             .Height = 1,
                             .Depth = 1};
        MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &box, context));
        identities[i] = of(instantiated(graph));
    }
    CHECK(identities[0] == identities[1] && identities[0] != identities[2]);
}

static CUresult CUDAAPI a_conditional(CUgraphNode node, CUgraphNodeType *type)
{
    (void)node;
    *type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    return CUDA_SUCCESS;
}

static void a_graph_with_a_conditional_node_is_identified_by_its_handle(void)
{
    CUgraph graph = chain(3, NULL);
    orion_driver.cuGraphNodeGetType = a_conditional;
    CUgraphExec exec = instantiated(graph), again = instantiated(graph);
    orion_driver.cuGraphNodeGetType = cuGraphNodeGetType;
    CHECK(orion_identity_is_local(of(exec)) && of(exec) != of(again));
    orion_duration_learn(orion_durations(process), of(exec), 5000, ORION_SAMPLE_CLEAN);
    bool sample;
    orion_graph_made(exec, graph); /* an update */
    CHECK(!orion_identity_is_local(of(exec)));
    CHECK(orion_duration_expect(orion_durations(process), of(exec), &sample) == 0);
}

static bool is_collective(CUgraphExec exec) { return orion_graph_is_collective(orion_graphs(process), exec); }

/* A graph whose one kernel is a collective; `before`: NULL, or the node before it. */
static CUgraph with_collective(CUgraph graph, CUgraphNode before)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS parameters = kernel(collective, 1);
    if (graph == NULL) MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddKernelNode(&node, graph, &before, before != NULL, &parameters));
    return graph;
}

static void a_collective_is_found_behind_a_conditional_node(void)
{
    CUgraph graph = chain(3, NULL);
    CUgraphNode condition;
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    node.conditional.type = CU_GRAPH_COND_TYPE_IF, node.conditional.size = 1, node.conditional.ctx = context;
    MUST(cuGraphConditionalHandleCreate(&node.conditional.handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    MUST(cuGraphAddNode(&condition, graph, NULL, NULL, 0, &node));
    CUgraphExec exec = instantiated(with_collective(graph, condition));
    CHECK(is_collective(exec) && orion_identity_is_local(of(exec)));
}

/* Each is a chain. The driver runs the body of the one, and all of the other, in a stream of its own. */
static void conditions_and_launches_by_the_device_count_as_branches(void)
{
    CUgraph graph = chain(3, NULL), parent;
    CUgraphNode node;
    CUgraphExec exec;
    orion_driver.cuGraphNodeGetType = a_conditional;
    CHECK(branches(instantiated(graph)));
    orion_driver.cuGraphNodeGetType = cuGraphNodeGetType;
    CHECK(!branches(instantiated(graph)));
    MUST(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
    orion_graph_made(exec, graph);
    CHECK(branches(exec));
    MUST(cuGraphCreate(&parent, 0));
    MUST(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
    CHECK(!branches(instantiated(parent)));
}

static void facts_are_the_mean_over_kernels(void)
{
    struct orion_kernel_facts facts;
    char text[16];
    CUgraphExec exec = instantiated(chain(100, NULL));
    struct orion_launch launch = {.graph = exec};
    orion_kernel_note(process, of(exec), &launch);
    CHECK(orion_kernel_facts(orion_durations(process), of(exec), &facts) && facts.sms >= 1 && facts.sms <= 132);
    CHECK(orion_kernel_name(process, of(exec), text, sizeof text) && text[0] == 'o');
}

/* When the table is full, a new graph replaces the oldest one, but none with a collective. */
static void a_full_table_replaces_graphs(void)
{
    CUgraph graph = chain(1, NULL);
    CUgraphExec kept = instantiated(with_collective(NULL, NULL));
    for (uintptr_t i = 1; i < 4 * ORION_GRAPHS; i++) {
        orion_graph_made((CUgraphExec)(i * 64), graph);
        CHECK(!orion_identity_is_local(of((CUgraphExec)(i * 64))));
    }
    CHECK(is_collective(kept));
    orion_graph_ending(kept);
    CHECK(!is_collective(kept));
    for (uintptr_t i = 1; i < 4 * ORION_GRAPHS; i++) orion_graph_ending((CUgraphExec)(i * 64));
    CHECK(orion_identity_is_local(of((CUgraphExec)64)));
}

int main(void)
{
    CUmodule module = begin();
    MUST(cuModuleGetFunction(&collective, module, "ncclDevKernel_AllReduce"));
    graphs_with_the_same_nodes_have_the_same_identity();
    a_node_that_is_changed_back_restores_the_identity();
    children_count_as_their_nodes();
    graphs_with_branches_are_known();
    copies_are_identified_by_size_class();
    a_graph_with_a_conditional_node_is_identified_by_its_handle();
    a_collective_is_found_behind_a_conditional_node();
    conditions_and_launches_by_the_device_count_as_branches();
    facts_are_the_mean_over_kernels();
    a_full_table_replaces_graphs();
    puts("graphs: ok");
    return 0;
}
