/* E: what it costs to make a cut copy of a graph and to keep it up to date. */
#ifndef GRAPH_CUTS_UPDATE_H
#define GRAPH_CUTS_UPDATE_H

#include "base.h"

#define COPIES 8 /* the driver takes device memory in large pieces, so several copies show the cost of one */

struct original {
    CUgraph graph;
    CUgraphNode node[NODES_MOST];
    int count;
};

static size_t memory_left(void)
{
    size_t left, total;
    must(cuCtxSynchronize(), "synchronise");
    must(cuMemGetInfo(&left, &total), "memory");
    return left;
}

static void make_chain(struct original *original, int count)
{
    CUgraphNode last = NULL;
    must(cuGraphCreate(&original->graph, 0), "graph");
    original->count = count;
    for (int i = 0; i < count; i++) last = original->node[i] = add_kernel(original->graph, last, (struct kernel){2, 0, 0}, BLOCKS);
}

/* Puts a wait between nodes of a copy, one before every `every`th. Returns the number of waits. */
static int insert_waits(CUgraph copy, CUgraphNode *node, int count, int every)
{
    int waits = 0;
    for (int i = every; i < count; i += every, waits++) {
        must(cuGraphRemoveDependencies(copy, &node[i - 1], &node[i], NULL, 1), "remove an edge");
        CUgraphNode wait = add_wait(copy, &node[i - 1], 1, page_address, CU_STREAM_WAIT_VALUE_EQ);
        must(cuGraphAddDependencies(copy, &wait, &node[i], NULL, 1), "add an edge");
    }
    return waits;
}

static double set_each(CUgraphExec exec, CUgraphNode *node, int count, uint64_t us)
{
    double begun = now_us();
    for (int i = 0; i < count; i++) {
        struct kernel kernel = {us, 0, 0};
        void *parameters[3];
        CUDA_KERNEL_NODE_PARAMS call = call_of(&kernel, parameters, BLOCKS);
        must(cuGraphExecKernelNodeSetParams(exec, node[i], &call), "set parameters of an executable");
    }
    return (now_us() - begun) / count;
}

static double set_each_in_graph(CUgraphNode *node, int count, uint64_t us)
{
    double begun = now_us();
    for (int i = 0; i < count; i++) {
        struct kernel kernel = {us, 0, 0};
        void *parameters[3];
        CUDA_KERNEL_NODE_PARAMS call = call_of(&kernel, parameters, BLOCKS);
        must(cuGraphKernelNodeSetParams(node[i], &call), "set parameters of a graph");
    }
    return (now_us() - begun) / count;
}

static double update(CUgraphExec exec, CUgraph graph, CUresult *result, int *why)
{
    CUgraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    double begun = now_us();
    *result = cuGraphExecUpdate(exec, graph, &info);
    *why = (int)info.result;
    return now_us() - begun;
}

static double first_launch(CUgraphExec exec)
{
    double begun = now_us();
    must(cuGraphLaunch(exec, stream), "launch");
    double called = now_us() - begun;
    must(cuStreamSynchronize(stream), "synchronise");
    return called;
}

static void updates(CUgraph graph, CUgraphNode *node, CUgraphExec exec, int count, const char *which)
{
    CUresult result;
    int why;
    double in_exec = set_each(exec, node, count, 3), after_set = first_launch(exec);
    double in_graph = set_each_in_graph(node, count, 4);
    double whole = update(exec, graph, &result, &why), after_update = first_launch(exec), again = first_launch(exec);
    emit("\"nodes\": %d, \"which\": \"%s\", \"exec_set_us_each\": %.3f, \"launch_after_set_us\": %.1f, \"graph_set_us_each\": %.3f, "
         "\"update_us\": %.1f, \"update\": \"%s\", \"update_why\": %d, \"launch_after_update_us\": %.1f, \"launch_again_us\": %.1f",
         count, which, in_exec, after_set, in_graph, whole, name_of(result), why, after_update, again);
}

/* Device memory of one more executable, in bytes: before its first launch, and after it. */
static void print_memory(CUgraph graph, int count, const char *which)
{
    CUgraphExec execs[COPIES];
    size_t before = memory_left();
    for (int i = 0; i < COPIES; i++) execs[i] = instantiate(graph);
    size_t made = memory_left();
    for (int i = 0; i < COPIES; i++) first_launch(execs[i]);
    size_t launched = memory_left();
    for (int i = 0; i < COPIES; i++) must(cuGraphExecDestroy(execs[i]), "destroy");
    size_t after = memory_left();
    emit("\"nodes\": %d, \"which\": \"%s\", \"copies\": %d, \"bytes_made\": %lld, \"bytes_launched\": %lld, \"bytes_left_behind\": %lld",
         count, which, COPIES, (long long)before - (long long)made, (long long)before - (long long)launched,
         (long long)before - (long long)after);
}

static void copy_of(int count, int every)
{
    static struct original original;
    static CUgraphNode copied[NODES_MOST];
    CUgraph copy;
    CUresult result;
    int why;
    make_chain(&original, count);
    double t0 = now_us();
    CUgraphExec exec = instantiate(original.graph);
    double t1 = now_us();
    must(cuGraphClone(&copy, original.graph), "clone");
    double t2 = now_us();
    for (int i = 0; i < count; i++) must(cuGraphNodeFindInClone(&copied[i], original.node[i], copy), "find in clone");
    double t3 = now_us();
    int waits = insert_waits(copy, copied, count, every);
    double t4 = now_us();
    CUgraphExec cut = instantiate(copy);
    double t5 = now_us();
    must(cuGraphUpload(cut, stream), "upload");
    must(cuStreamSynchronize(stream), "synchronise");
    double t6 = now_us();
    emit("\"nodes\": %d, \"waits\": %d, \"instantiate_us\": %.0f, \"clone_us\": %.0f, \"find_us_each\": %.3f, \"insert_us_each\": %.3f, "
         "\"instantiate_copy_us\": %.0f, \"upload_us\": %.0f",
         count, waits, t1 - t0, t2 - t1, (t3 - t2) / count, waits ? (t4 - t3) / waits : 0, t5 - t4, t6 - t5);
    updates(original.graph, original.node, exec, count, "original");
    updates(copy, copied, cut, count, "copy with waits");
    double failed = update(cut, original.graph, &result, &why);
    emit("\"nodes\": %d, \"which\": \"copy with waits, updated by the original\", \"update_us\": %.1f, \"update\": \"%s\", \"update_why\": %d",
         count, failed, name_of(result), why);
    print_memory(original.graph, count, "original");
    print_memory(copy, count, "copy with waits");
    must(cuGraphExecDestroy(cut), "destroy");
    must(cuGraphExecDestroy(exec), "destroy");
    must(cuGraphDestroy(copy), "destroy");
    must(cuGraphDestroy(original.graph), "destroy");
}

static inline void copies_and_updates(void)
{
    static const int counts[] = {200, 1000, NODES_MOST};
    for (int c = 0; c < (simulated ? 2 : 3); c++)
        for (int every = 4; every <= 16; every *= 4) {
            progress("%d nodes, a wait every %d", counts[c], every);
            copy_of(counts[c], every);
        }
}

#endif
