/* What the hook adds to a program's graphs: graph_cost.py compiles and starts it, with the hook and without.
 *
 *   graph_cost measure    one JSON object a line
 *   graph_cost count N    each change of a graph of N kernels once, in a function whose name begins with `counted`;
 *                         prints "ready", and begins after a line of input
 *   graph_cost idle       uses the GPU once, prints a line, and waits until its input ends: an hp client without work
 *
 * M: making and updating graphs. S: what the driver takes to set the nodes of an executable before its first launch and after it, and to
 * read the nodes of a graph, which the hook does at each cuGraphExecUpdate. L: launches of a short graph. T: launches of a graph of 30 ms, which the hook cuts. */
#include "../probes/graph_cuts/base.h"
#include "../probes/graph_cuts/update.h"

#define TURNS 15
#define LAUNCHES 50

static double median(double *values, int count)
{
    sort(values, count);
    return values[count / 2];
}

static void settle(void) { must(cuStreamSynchronize(stream), "synchronise"); }

static double launch_us(CUgraphExec exec)
{
    double begun = now_us();
    must(cuGraphLaunch(exec, stream), "launch");
    return now_us() - begun;
}

static void measure_updates(int nodes)
{
    static struct original first, second;
    double instantiated[TURNS], first_set[TURNS], set[TURNS], after_set[TURNS], updated[TURNS], after_update[TURNS];
    double later_set[TURNS], after_later_set[TURNS];
    make_chain(&first, nodes);
    make_chain(&second, nodes);
    for (int turn = 0; turn < TURNS; turn++) {
        CUresult result;
        int why;
        double begun = now_us();
        CUgraphExec exec = instantiate(first.graph);
        instantiated[turn] = now_us() - begun;
        for (int i = 0; i < 8; i++) launch_us(exec), settle(); /* the hook learns the durations, and cuts */
        first_set[turn] = set_each(exec, first.node, nodes, 2) * nodes;
        set[turn] = set_each(exec, first.node, nodes, 2) * nodes; /* as in a loop that sets them before each launch */
        after_set[turn] = launch_us(exec);
        settle();
        later_set[turn] = set_each(exec, first.node, nodes, 2 + turn % 2) * nodes;
        after_later_set[turn] = launch_us(exec);
        settle();
        updated[turn] = update(exec, second.graph, &result, &why);
        must(result, "update");
        after_update[turn] = launch_us(exec);
        settle();
        must(cuGraphExecDestroy(exec), "executable");
    }
    emit("\"nodes\": %d, \"instantiate_us\": %.1f, \"first_set_all_us\": %.1f, \"set_all_us\": %.1f, \"launch_after_set_us\": %.1f, "
         "\"later_set_all_us\": %.1f, \"launch_after_later_set_us\": %.1f, \"update_us\": %.1f, \"launch_after_update_us\": %.1f",
         nodes, median(instantiated, TURNS), median(first_set, TURNS), median(set, TURNS), median(after_set, TURNS),
         median(later_set, TURNS), median(after_later_set, TURNS), median(updated, TURNS), median(after_update, TURNS));
}

static double read_each(const struct original *of)
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    double begun = now_us();
    for (int i = 0; i < of->count; i++) must(cuGraphKernelNodeGetParams(of->node[i], &kernel), "read parameters");
    return now_us() - begun;
}

static double list(const struct original *of)
{
    static CUgraphNode node[NODES_MOST], from[NODES_MOST], to[NODES_MOST];
    static CUgraphEdgeData data[NODES_MOST];
    size_t nodes = NODES_MOST, edges = NODES_MOST;
    double begun = now_us();
    must(cuGraphGetNodes(of->graph, node, &nodes), "list nodes");
    must(cuGraphGetEdges(of->graph, from, to, data, &edges), "list edges");
    return now_us() - begun;
}

static void measure_driver(int nodes)
{
    static struct original chain;
    double first[TURNS], again[TURNS], uploaded[TURNS], launched[TURNS], read[TURNS], listed[TURNS];
    make_chain(&chain, nodes);
    for (int turn = 0; turn < TURNS; turn++) {
        CUgraphExec exec = instantiate(chain.graph);
        first[turn] = set_each(exec, chain.node, nodes, 3) * nodes;
        again[turn] = set_each(exec, chain.node, nodes, 2) * nodes;
        must(cuGraphUpload(exec, stream), "upload"), settle();
        uploaded[turn] = set_each(exec, chain.node, nodes, 3) * nodes;
        launch_us(exec), settle();
        launched[turn] = set_each(exec, chain.node, nodes, 2) * nodes;
        read[turn] = read_each(&chain);
        listed[turn] = list(&chain);
        must(cuGraphExecDestroy(exec), "executable");
    }
    emit("\"nodes\": %d, \"set_new_us\": %.1f, \"set_new_again_us\": %.1f, \"set_uploaded_us\": %.1f, \"set_launched_us\": %.1f, "
         "\"read_us\": %.1f, \"list_us\": %.1f",
         nodes, median(first, TURNS), median(again, TURNS), median(uploaded, TURNS), median(launched, TURNS), median(read, TURNS),
         median(listed, TURNS));
}

static void measure_launches(void)
{
    CUgraphExec exec = exec_of(&(struct shape){.kernels = 20, .us = 2, .branches = 1});
    double took[20 * LAUNCHES];
    for (int i = 0; i < 200; i++) launch_us(exec), settle();
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < LAUNCHES; i++) took[turn * LAUNCHES + i] = launch_us(exec);
        settle();
    }
    double middle = median(took, 20 * LAUNCHES);
    emit("\"kernels\": 20, \"launch_us\": %.3f, \"launch_p90_us\": %.3f", middle, quantile(took, 20 * LAUNCHES, 0.9));
}

/* Not 200 kernels: the hook knows a graph by its kernels and their number, and not by their parameters. */
static void measure_throughput(void)
{
    size_t before = memory_left();
    CUgraphExec exec = exec_of(&(struct shape){.kernels = 202, .us = 150, .branches = 1});
    double cpu[5], gpu[5];
    for (int i = 0; i < 20; i++) launch_us(exec), settle();
    for (int turn = 0; turn < 5; turn++) gpu[turn] = timed(exec, 10, &cpu[turn]);
    size_t after = memory_left();
    emit("\"kernels\": 202, \"graph_us\": %.1f, \"least_us\": %.1f, \"launch_cpu_us\": %.1f, \"memory_bytes\": %zd", median(gpu, 5), gpu[0],
         median(cpu, 5), (ssize_t)(before - after));
}

#define COUNTED static __attribute__((noinline, noclone, used)) void

COUNTED counted_instantiate(CUgraphExec *exec, CUgraph graph) { *exec = instantiate(graph); }
COUNTED counted_first_set(CUgraphExec exec, struct original *of) { set_each(exec, of->node, of->count, 21); }
COUNTED counted_set(CUgraphExec exec, struct original *of) { set_each(exec, of->node, of->count, 22); }
COUNTED counted_launch_after_set(CUgraphExec exec) { launch_us(exec); }
COUNTED counted_first_update(CUgraphExec exec, CUgraph graph) { (void)update(exec, graph, &(CUresult){0}, &(int){0}); }
COUNTED counted_update(CUgraphExec exec, CUgraph graph) { (void)update(exec, graph, &(CUresult){0}, &(int){0}); }
COUNTED counted_launch_after_update(CUgraphExec exec) { launch_us(exec); }

static void count_changes(int nodes)
{
    static struct original first, second;
    CUgraphExec set, updated;
    make_chain(&first, nodes);
    make_chain(&second, nodes);
    set_each_in_graph(first.node, nodes, 20);
    set_each_in_graph(second.node, nodes, 20);
    counted_instantiate(&set, first.graph);
    updated = instantiate(first.graph);
    for (int i = 0; i < 8; i++) launch_us(set), settle(), launch_us(updated), settle(); /* the hook learns, and cuts */
    counted_first_set(set, &first);
    counted_set(set, &first);
    counted_launch_after_set(set);
    settle();
    set_each_in_graph(second.node, nodes, 21);
    counted_first_update(updated, second.graph);
    launch_us(updated), settle();
    set_each_in_graph(second.node, nodes, 22);
    counted_update(updated, second.graph);
    counted_launch_after_update(updated);
    settle();
}

int main(int count, char **words)
{
    map_page();
    start();
    launch_us(exec_of(&(struct shape){.kernels = 2, .us = 2, .branches = 1}));
    settle();
    if (count > 1 && strcmp(words[1], "idle") == 0) {
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF) {}
        return 0;
    }
    if (count > 2 && strcmp(words[1], "count") == 0) {
        puts("ready");
        fflush(stdout);
        if (getchar() != EOF) count_changes(atoi(words[2]));
        return 0;
    }
    section = "M";
    measure_updates(200);
    measure_updates(1000);
    section = "S";
    measure_driver(200);
    measure_driver(1000);
    section = "L";
    measure_launches();
    section = "T";
    measure_throughput();
    return 0;
}
