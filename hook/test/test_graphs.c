/* The hook identifies a graph by its nodes. The test instantiates a graph twice, changes its length, changes single
 * nodes and changes them back, and uses child graphs and nodes that the hook cannot read. It also limits the duration of
 * a walk over the nodes, and counts the hook's driver calls for hp's graphs. It runs on the simulated driver. */
#include "simulated_process.h"

#include <time.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include "be/graph_parameters.h"
#include "be/graph_updates.h"
#include "core/core.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "learning/launch.h"
#include "process/policy.h"
#include "process/process.h"

/* Ten times the normal limit, because a sanitizer slows the test. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define WALK_MOST_US 100.0
#else
#define WALK_MOST_US 1.0
#endif

static CUfunction function, other;

static void begin(void)
{
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=5\nkernel two duration_us=9 params=8\n");
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuModuleGetFunction(&other, module, "two"));
#if defined(__SANITIZE_ADDRESS__)
    __lsan_register_root_region(process, sizeof(struct orion_mapping)); /* it holds the copies of executables that stay */
#endif
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

static void set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    orion_graph_node_set(exec, node, orion_parameters_identity(process, CU_GRAPH_NODE_TYPE_KERNEL, parameters));
}

static uint64_t of(CUgraphExec exec) { return orion_launch_identity(process, &(struct orion_launch){.graph = exec}); }

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
    CHECK(orion_parameters_identity(process, CU_GRAPH_NODE_TYPE_HOST, &host) == ORION_IDENTITY_NONE);
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

/* When the table is full, a new graph replaces the oldest one. */
static void a_full_table_replaces_graphs(void)
{
    CUgraph graph = chain(1, NULL);
    for (uintptr_t i = 1; i < 4 * ORION_GRAPHS; i++) {
        orion_graph_made((CUgraphExec)(i * 64), graph);
        CHECK(!orion_identity_is_local(of((CUgraphExec)(i * 64))));
    }
    for (uintptr_t i = 1; i < 4 * ORION_GRAPHS; i++) orion_graph_ending((CUgraphExec)(i * 64));
    CHECK(orion_identity_is_local(of((CUgraphExec)64)));
}

static double microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void a_walk_is_quick(void)
{
    CUgraph graph = chain(5000, NULL);
    CUgraphExec exec;
    double first = microseconds();
    MUST(cuGraphInstantiate(&exec, graph, 0));
    double began = microseconds();
    for (int i = 0; i < 10; i++) orion_graph_made(exec, graph);
    double walk = (microseconds() - began) / 10 / 5000;
    printf("graphs: %.3f us a node to walk, %.3f us to instantiate\n", walk, (began - first) / 5000);
    CHECK(walk < WALK_MOST_US);
}

static unsigned driver_calls;

static CUresult CUDAAPI a_counted_call(void)
{
    driver_calls++;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The program changes its graph in every way. Returns how often the hook itself calls the driver meanwhile. */
static unsigned calls_for_changes(CUgraphExec exec, CUgraph graph, const CUgraphNode *nodes)
{
    struct orion_driver driver = orion_driver;
    CUfunction unseen = (CUfunction)(uintptr_t)0x1230;
    CUDA_KERNEL_NODE_PARAMS parameters = kernel(unseen, 9);
    void *(*counted)[sizeof driver / sizeof(void *)] = (void *)&orion_driver;
    for (size_t i = 0; i < sizeof driver / sizeof(void *); i++) (*counted)[i] = (void *)a_counted_call;
    driver_calls = 0;
    orion_graph_updated(exec, graph);
    orion_graph_set(exec, nodes[1], CU_GRAPH_NODE_TYPE_KERNEL, &parameters);
    orion_graph_copy_enabled(exec, nodes[1], false);
    orion_graph_set_child(exec, nodes[2], graph);
    orion_driver = driver;
    return driver_calls;
}

static void set_overlap(bool granted)
{
    struct orion_policy *policy = (struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu);
    policy->kind = ORION_POLICY_ORION;
    policy->max_slowdown_milli = granted ? 1500 : 1000;
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
}

static void graphs_of_hp_are_not_walked(void)
{
    static CUgraphNode nodes[1000];
    CUgraph graph = chain(1000, nodes);
    CUgraphExec exec = instantiated(graph);
    uint64_t whole = of(exec);
    CHECK(!orion_identity_is_local(whole));
    CHECK(calls_for_changes(exec, graph, nodes) > 0);
    orion_graph_made(exec, graph);
    atomic_store(&gpu->role, ORION_ROLE_HP);
    CHECK(of(exec) == whole); /* made before the role was known */
    CHECK(calls_for_changes(exec, graph, nodes) == 0);
    CHECK(orion_identity_is_local(of(exec))); /* the earlier walk no longer describes the graph */

    atomic_store(&process->joining, 1); /* a second GPU: its role may be be */
    CHECK(calls_for_changes(exec, graph, nodes) > 0);
    atomic_store(&process->joining, 0);
    set_overlap(true); /* hp publishes its launches */
    CHECK(calls_for_changes(exec, graph, nodes) > 0);
    orion_graph_made(exec, graph);
    CHECK(of(exec) == whole);
    set_overlap(false);
    CHECK(calls_for_changes(exec, graph, nodes) == 0);
    atomic_store(&gpu->role, ORION_ROLE_BE);
}

int main(void)
{
    begin();
    graphs_with_the_same_nodes_have_the_same_identity();
    a_node_that_is_changed_back_restores_the_identity();
    children_count_as_their_nodes();
    graphs_with_branches_are_known();
    copies_are_identified_by_size_class();
    a_graph_with_a_conditional_node_is_identified_by_its_handle();
    facts_are_the_mean_over_kernels();
    a_full_table_replaces_graphs();
    a_walk_is_quick();
    graphs_of_hp_are_not_walked();
    puts("graphs: ok");
    return 0;
}
