/* What the hook's walks over the nodes of graphs cost: they are quick for be, and there are none for hp. */
#include "kernel_chain.h"

#include <time.h>

#include "be/graph_updates.h"
#include "core/core.h"
#include "generated/driver.h"
#include "process/policy.h"

/* Ten times what is normal; under a sanitizer on a busy machine no time is normal. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define WALK_MOST_US 10000.0
#else
#define WALK_MOST_US 10.0
#endif

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
    a_walk_is_quick();
    graphs_of_hp_are_not_walked();
    puts("graph_walks: ok");
    return 0;
}
