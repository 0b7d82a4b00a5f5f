/* Which driver calls the hook makes for updates of be's graphs: few for an update, and those for the pieces only at the
 * next launch in pieces. Then each kernel that has changed costs one call. */
#include "be/chunks.h"
#include "core/lifetimes.h"
#include "graph_steps.h"

#include <limits.h>

static unsigned reads, sets, gives, updates, uploads, others;
static unsigned refused_from = UINT_MAX; /* the driver refuses these and later gives */
static CUcontext set_in;

static CUresult CUDAAPI read_node(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *kernel)
{
    reads++;
    return cuGraphKernelNodeGetParams(node, kernel);
}
static CUresult CUDAAPI set_node(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    sets++;
    set_in = kernel->ctx;
    return cuGraphKernelNodeSetParams(node, kernel);
}
static CUresult CUDAAPI give_piece(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    if (gives++ >= refused_from) return CUDA_ERROR_NOT_SUPPORTED;
    set_in = kernel->ctx;
    return cuGraphExecKernelNodeSetParams(exec, node, kernel);
}
static CUresult CUDAAPI update_piece(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    updates++;
    return cuGraphExecUpdate(exec, graph, info);
}
static CUresult CUDAAPI type_of(CUgraphNode node, CUgraphNodeType *type)
{
    others++;
    return cuGraphNodeGetType(node, type);
}
static CUresult CUDAAPI parameter_of(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    others++;
    return cuFuncGetParamInfo(function, index, offset, size);
}

static CUresult CUDAAPI parameters_of(CUfunction function, size_t *count)
{
    others++;
    return cuFuncGetParamCount(function, count);
}

static CUresult CUDAAPI upload(CUgraphExec exec, CUstream where)
{
    uploads++;
    return cuGraphUpload(exec, where);
}

static void count_calls(void)
{
    reads = sets = gives = updates = uploads = others = 0;
    orion_driver.cuGraphKernelNodeGetParams_v2 = read_node;
    orion_driver.cuGraphKernelNodeSetParams_v2 = set_node;
    orion_driver.cuGraphExecKernelNodeSetParams_v2 = give_piece;
    orion_driver.cuGraphExecUpdate_v2 = update_piece;
    orion_driver.cuGraphUpload = upload;
    orion_driver.cuGraphNodeGetType = type_of;
    orion_driver.cuFuncGetParamCount = parameters_of;
    orion_driver.cuFuncGetParamInfo = parameter_of;
}

static void update_to(CUgraphExec exec, struct step *steps, unsigned value, unsigned from)
{
    CUgraphExecUpdateResultInfo info;
    for (unsigned i = from; i < NODES; i++) steps[i].value = value + i;
    CUgraph other = graph_of(steps, NULL);
    MUST(cuGraphExecUpdate(exec, other, &info));
    MUST(cuGraphDestroy(other));
}

static void set_all_to(CUgraphExec exec, const CUgraphNode *nodes, struct step *steps, unsigned value)
{
    for (unsigned i = 0; i < NODES; i++) {
        steps[i].value = value + i;
        set_by_type(exec, nodes[i], &steps[i], i);
    }
}

static void updates_cost_few_calls_and_launches_pay_once(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    MUST(cuMemsetD32(memory, 0, 2 * NODES));
    CUgraph graph = instantiated(steps, nodes, &exec);
    atomic_store(&policy.hp_clients, 1);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && orion_graph_copy_of(process, exec)->pieces == 6);
    count_calls();
    set_all_to(exec, nodes, steps, 10);
    CHECK(reads == 0 && gives == 0 && others == 5); /* the number of the kernel's parameters, and the sizes of all four */
    update_to(exec, steps, 20, 0);
    update_to(exec, steps, 30, 0);
    CHECK(reads == 2 * NODES && gives == 0 && updates == 0 && others == 5);
    atomic_store(&policy.hp_clients, 0);
    launch(exec, steps, expected);
    CHECK(gives == 0 && updates == 0); /* the program's executable ran */
    atomic_store(&policy.hp_clients, 1);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && gives == NODES);
    update_to(exec, steps, 30, 0);
    launch(exec, steps, expected);
    CHECK(gives == NODES); /* nothing has changed */
    update_to(exec, steps, 70, NODES - 1);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && gives == NODES + 1 && sets == 0 && updates == 0);
    destroy(exec, graph);
}

/* The identity of the piece changes, so the hook reads the nodes of its graph, which must have all parameters. */
static void a_kernel_with_another_grid_updates_its_piece(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    CUgraph graph = instantiated(steps, nodes, &exec);
    update_to(exec, steps, 10, 0);
    launch(exec, steps, expected);
    count_calls();
    update_to(exec, steps, 20, 0);
    launch(exec, steps, expected);
    CHECK(gives == NODES && sets == 0 && updates == 0);
    count_calls();
    steps[0].grid = 2;
    update_to(exec, steps, 20, 0);
    takes(exec, 6);
    const struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    uint32_t in_first = copy->piece[copy->node[0].piece].count;
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && gives == 0 && sets == in_first && updates == 1);
    destroy(exec, graph);
}

/* Some kernels of a piece have got their parameters, and the next is refused. */
static void a_kernel_that_is_refused_updates_its_piece(void)
{
    struct step steps[NODES] = {0};
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    CUgraph graph = instantiated(steps, NULL, &exec);
    launch(exec, steps, expected);
    count_calls();
    for (refused_from = 0; refused_from < 5; refused_from++) {
        gives = sets = updates = 0;
        update_to(exec, steps, 50 + 10 * refused_from, 0);
        launch(exec, steps, expected);
        CHECK(in_pieces(exec) && sets == NODES && updates == 6);
    }
    refused_from = UINT_MAX;
    destroy(exec, graph);
}

/* Then the driver sets its nodes as quickly as those of an executable that was launched. */
static void an_executable_that_is_set_and_not_launched_is_uploaded_once(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    CUgraph graph = graph_of(steps, nodes);
    for (unsigned whole_first = 0; whole_first < 2; whole_first++) {
        MUST(cuGraphInstantiate(&exec, graph, 0));
        takes(exec, 6);
        count_calls();
        atomic_store(&policy.hp_clients, !whole_first);
        launch(exec, steps, expected);
        atomic_store(&policy.hp_clients, 1);
        launch(exec, steps, expected);
        update_to(exec, steps, 10, 0);
        launch(exec, steps, expected);
        CHECK(in_pieces(exec) && uploads == 0); /* an update does not depend on it */
        for (unsigned i = 0; i < 3; i++) {
            set_all_to(exec, nodes, steps, 20 + 10 * i);
            CHECK(uploads == !whole_first * (i > 0));
            launch(exec, steps, expected);
            CHECK(in_pieces(exec) && uploads == !whole_first);
        }
        MUST(cuGraphExecDestroy(exec));
        for (unsigned i = 0; i < NODES; i++) steps[i].value = 0;
    }
    MUST(cuGraphDestroy(graph));
}

/* The parameters of a CUkernel name no context, which means the one that is current at that time. */
static void a_kernel_stays_in_the_context_of_its_update(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    CUcontext other;
    struct call call;
    uint32_t expected[2 * NODES] = {0};
    CUgraph graph = instantiated(steps, nodes, &exec);
    launch(exec, steps, expected);
    steps[0].value = 5;
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(&steps[0], 0, &call);
    kernel.kern = (CUkernel)kernel.func, kernel.func = NULL;
    MUST(cuGraphExecKernelNodeSetParams(exec, nodes[0], &kernel));
    MUST(cuCtxCreate(&other, NULL, 0, 0));
    /* So often that all events which the hook keeps for the stream are made meanwhile. */
    for (unsigned i = 0; i < ORION_CHUNKS; i++) {
        words[0] = 0;
        MUST(cuCtxSetCurrent(other));
        MUST(cuGraphLaunch(exec, stream));
        MUST(cuCtxSetCurrent(context));
        MUST(cuStreamSynchronize(stream));
    }
    CHECK(in_pieces(exec) && set_in == context);
    MUST(cuStreamSynchronize(stream));
    launch(exec, steps, expected);
    destroy(exec, graph);
}

/* After code was unloaded, a handle may name another kernel. */
static void a_kernel_with_the_handle_of_an_unloaded_one_reaches_the_pieces(void)
{
    struct step steps[NODES] = {0};
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    CUgraph graph = instantiated(steps, NULL, &exec);
    update_to(exec, steps, 10, 0);
    launch(exec, steps, expected);
    count_calls();
    update_to(exec, steps, 10, 0);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && gives == 0 && updates == 0);
    orion_module_ending();
    update_to(exec, steps, 10, 0);
    launch(exec, steps, expected);
    CHECK(in_pieces(exec) && gives == NODES);
    destroy(exec, graph);
}

/* After code was unloaded, the driver need not report the parameters of what it reported before. */
static void a_kernel_whose_parameters_become_unknown_reaches_the_pieces(void)
{
    struct step steps[NODES] = {0};
    CUgraphNode nodes[NODES];
    CUgraphExec exec;
    uint32_t expected[2 * NODES] = {0};
    CUgraph graph = instantiated(steps, nodes, &exec);
    launch(exec, steps, expected);
    set_all_to(exec, nodes, steps, 10);
    orion_driver.cuFuncGetParamInfo = NULL;
    orion_module_ending();
    steps[0].value = 30;
    set_by_type(exec, nodes[0], &steps[0], 0);
    launch(exec, steps, expected);
    orion_driver.cuFuncGetParamInfo = cuFuncGetParamInfo;
    for (steps[1].value = 40; steps[1].value < 43; steps[1].value++) {
        set_by_type(exec, nodes[1], &steps[1], 1);
        launch(exec, steps, expected);
    }
    CHECK(in_pieces(exec));
    destroy(exec, graph);
}

int main(void)
{
    begin();
    updates_cost_few_calls_and_launches_pay_once();
    a_kernel_with_another_grid_updates_its_piece();
    a_kernel_that_is_refused_updates_its_piece();
    an_executable_that_is_set_and_not_launched_is_uploaded_once();
    a_kernel_stays_in_the_context_of_its_update();
    a_kernel_with_the_handle_of_an_unloaded_one_reaches_the_pieces();
    a_kernel_whose_parameters_become_unknown_reaches_the_pieces();
    return 0;
}
