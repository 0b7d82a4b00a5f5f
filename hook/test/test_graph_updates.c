/* Updates of be's graphs reach the hook's copies: a graph gets random updates of every kind, between launches with and
 * without an hp client. Each launch must do what the program has set last, whether it was in pieces or not, and the hook
 * must know the graph as if it had just been made. */
#include "graph_steps.h"

#include <pthread.h>

#include "learning/kernels.h"

#define ROUNDS 400u

static void vary(struct step *step)
{
    if (chance(3)) step->value = chance(1000);
    if (chance(4) == 0) step->grid = chance(3);
    if (chance(4) == 0) step->extra = chance(2);
    if (chance(8) == 0 && step->kind == KERNEL) step->function = chance(2);
}

static void change_some(CUgraphExec exec, const CUgraphNode *nodes, struct step *steps)
{
    for (unsigned i = chance(NODES), end = chance(NODES + 1); i < end; i += 1 + chance(3)) {
        struct step before = steps[i];
        vary(&steps[i]);
        if (chance(2)) set_by_type(exec, nodes[i], &steps[i], i);
        else set_in_general(exec, nodes[i], &steps[i], i);
        if (chance(4)) continue;
        steps[i] = before; /* and back */
        set_by_type(exec, nodes[i], &steps[i], i);
    }
}

static void change_all(CUgraphExec exec, struct step *steps)
{
    CUgraphExecUpdateResultInfo info;
    for (unsigned i = 0; i < NODES; i++)
        if (chance(2)) vary(&steps[i]);
    CUgraph other = graph_of(steps, NULL);
    MUST(cuGraphExecUpdate(exec, other, &info));
    MUST(cuGraphDestroy(other));
}

static void switch_one(CUgraphExec exec, const CUgraphNode *nodes, struct step *steps)
{
    unsigned i = chance(NODES);
    if (steps[i].kind != KERNEL && steps[i].kind != SET && steps[i].kind != COPY) return;
    steps[i].disabled = !steps[i].disabled;
    MUST(cuGraphNodeSetEnabled(exec, nodes[i], !steps[i].disabled));
}

static void cut_again(CUgraphExec exec)
{
    const struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    const struct orion_piece *piece = &copy->piece[chance(copy->pieces)];
    if (piece->exec != NULL) takes(piece->exec, 3);
}

/* The hook knows the graph as if it had just been made, with the nodes that are enabled. */
static void check_identity(CUgraphExec exec, const struct step *steps)
{
    CUgraphNode nodes[NODES];
    CUgraphExec fresh;
    CUgraph graph = graph_of(steps, nodes);
    MUST(cuGraphInstantiate(&fresh, graph, 0));
    for (unsigned i = 0; i < NODES; i++)
        if (steps[i].disabled) MUST(cuGraphNodeSetEnabled(fresh, nodes[i], 0));
    CHECK(identity_of(fresh) == identity_of(exec));
    MUST(cuGraphExecDestroy(fresh));
    MUST(cuGraphDestroy(graph));
}

static unsigned random_updates(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    unsigned pieces = 0;
    for (unsigned i = 0; i < NODES; i++) steps[i] = (struct step){.kind = i % 2 ? chance(KINDS) : KERNEL, .value = i};
    MUST(cuMemsetD32(memory, 0, 2 * NODES));
    CUgraph graph = instantiated(steps, nodes, &exec);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned changes = chance(4); changes > 0; changes--) {
            unsigned what = chance(8);
            if (what < 4) change_some(exec, nodes, steps);
            else if (what < 6) change_all(exec, steps);
            else if (what < 7) switch_one(exec, nodes, steps);
            else orion_kernels_forget(orion_kernels(process)); /* the program has unloaded code */
        }
        if (round % 16 == 15) cut_again(exec);
        atomic_store(&policy.hp_clients, chance(3) > 0);
        launch(exec, steps, expected);
        CHECK(!orion_graph_copy_of(process, exec)->refused);
        pieces += in_pieces(exec);
        if (round % 8 == 0) check_identity(exec, steps);
    }
    destroy(exec, graph);
    return pieces;
}

static void every_update_reaches_the_pieces(void)
{
    for (unsigned i = 0; i < 3; i++) CHECK(random_updates() > ROUNDS / 3);
}

/* Drivers before CUDA 12.4 do not report the sizes of a kernel's parameters. */
static void every_update_reaches_the_pieces_with_an_old_driver(void)
{
    orion_driver.cuFuncGetParamInfo = NULL;
    orion_kernels_forget(orion_kernels(process)); /* a kernel's mark contains its parameters */
    CHECK(random_updates() > ROUNDS / 3);
    orion_driver.cuFuncGetParamInfo = cuFuncGetParamInfo;
    orion_kernels_forget(orion_kernels(process));
}

/* Lists the edges backwards every other time. */
static CUresult CUDAAPI edges_of(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
    static unsigned calls;
    CUresult result = cuGraphGetEdges(graph, from, to, data, count);
    bool backwards = from != NULL && calls++ % 2;
    for (size_t i = 0; result == CUDA_SUCCESS && backwards && i < *count / 2; i++) {
        CUgraphNode first = from[i], second = to[i];
        from[i] = from[*count - 1 - i], to[i] = to[*count - 1 - i];
        from[*count - 1 - i] = first, to[*count - 1 - i] = second;
    }
    return result;
}

static void edges_may_come_in_another_order(void)
{
    orion_driver.cuGraphGetEdges_v2 = edges_of;
    CHECK(random_updates() > ROUNDS / 3);
    orion_driver.cuGraphGetEdges_v2 = cuGraphGetEdges;
}

static CUresult CUDAAPI refuses_some(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    return chance(8) ? cuGraphExecKernelNodeSetParams(exec, node, kernel) : CUDA_ERROR_NOT_SUPPORTED;
}

static void every_update_reaches_pieces_whose_executables_refuse_some_kernels(void)
{
    orion_driver.cuGraphExecKernelNodeSetParams_v2 = refuses_some;
    CHECK(random_updates() > ROUNDS / 3);
    orion_driver.cuGraphExecKernelNodeSetParams_v2 = cuGraphExecKernelNodeSetParams;
}

#define THREADS 3u

struct updater {
    CUgraphExec exec;
    struct step steps[NODES];
    unsigned number;
};

static void *update_often(void *of)
{
    struct updater *updater = of;
    MUST(cuCtxSetCurrent(context));
    for (unsigned round = 0; round < 50; round++) {
        CUgraphExecUpdateResultInfo info;
        for (unsigned i = 0; i < NODES; i++) updater->steps[i].value = 10000 * updater->number + 100 * round + i;
        CUgraph graph = graph_of(updater->steps, NULL);
        MUST(cuGraphExecUpdate(updater->exec, graph, &info));
        MUST(cuGraphDestroy(graph));
    }
    return NULL;
}

static void threads_may_update_their_graphs_at_the_same_time(void)
{
    static struct updater updaters[THREADS];
    pthread_t threads[THREADS];
    uint32_t expected[2 * NODES] = {0};
    MUST(cuMemsetD32(memory, 0, 2 * NODES));
    for (unsigned t = 0; t < THREADS; t++) {
        updaters[t].number = t;
        for (unsigned i = 0; i < NODES; i++)
            updaters[t].steps[i] = (struct step){.kind = i % 5 == 4 ? CHILD : i % 3 ? KERNEL : HOST};
        CUgraph graph = graph_of(updaters[t].steps, NULL);
        MUST(cuGraphInstantiate(&updaters[t].exec, graph, 0));
        MUST(cuGraphDestroy(graph));
    }
    takes(updaters[0].exec, 6); /* to the hook, they are all the same graph */
    for (unsigned t = 0; t < THREADS; t++) CHECK(pthread_create(&threads[t], NULL, update_often, &updaters[t]) == 0);
    for (unsigned t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    atomic_store(&policy.hp_clients, 1);
    for (unsigned t = 0; t < THREADS; t++) {
        launch(updaters[t].exec, updaters[t].steps, expected);
        CHECK(in_pieces(updaters[t].exec));
        MUST(cuGraphExecDestroy(updaters[t].exec));
    }
}

int main(void)
{
    begin();
    every_update_reaches_the_pieces();
    every_update_reaches_pieces_whose_executables_refuse_some_kernels();
    every_update_reaches_the_pieces_with_an_old_driver();
    edges_may_come_in_another_order();
    threads_may_update_their_graphs_at_the_same_time();
    return 0;
}
