/* be's graphs in pieces, on the simulated driver, through the hook's wrappers: a graph in pieces does what the program's
 * own executable does. test_graph_piece_updates.c has the updates, test_graph_piece_turns.c launches in several streams. */
#include "graph_chain.h"

#include <pthread.h>
#include <stdlib.h>

#include "../sim/orion_sim.h"
#include "core/graph_launch.h"
#include "system/system.h"

/* -- Pieces ---------------------------------------------------------------------------------------------------------- */

static void a_long_graph_runs_in_pieces(void)
{
    CUgraph graph = chain(0, NULL);
    CUgraphExec exec = instantiated(graph);
    MUST(cuGraphDestroy(graph)); /* as PyTorch does */
    for (unsigned i = 0; i < 5; i++) CHECK(launch(exec, stream, 0) == 6);
    end(exec);
}

static void without_hp_the_programs_executable_runs(void)
{
    CUgraph graph = chain(0, NULL);
    CUgraphExec exec = instantiated(graph);
    atomic_store(&policy.hp_clients, 0);
    CHECK(launch(exec, stream, 0) == 1);
    atomic_store(&policy.hp_clients, 1);
    CHECK(launch(exec, stream, 0) == 6);
    atomic_store(&policy.hp_clients, 0);
    CHECK(launch(exec, stream, 0) == 1);
    atomic_store(&policy.hp_clients, 1);
    end(exec);
}

static void pieces_that_prove_long_are_cut_again(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    CHECK(launch(exec, stream, 0) == 6);
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    takes(copy->piece[2].exec, 4); /* all pieces have the same nodes, and so the same duration */
    CHECK(launch(exec, stream, 0) == 24);
    CHECK(launch(exec, stream, 0) == 24);
    end(exec);
}

/* As after a first measurement that was far too long, because the thread lost its CPU or another context ran. */
static void a_graph_whose_pieces_prove_short_runs_whole(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    CHECK(launch(exec, stream, 0) == 6);
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    takes_ns(copy->piece[0].exec, WINDOW_NS / 5); /* so do the others, which are alike */
    CHECK(launch(exec, stream, 0) == 6);
    takes_ns(copy->piece[0].exec, WINDOW_NS / 7);
    for (unsigned i = 0; i < 3; i++) CHECK(launch(exec, stream, 0) == 1);
    bool sample;
    uint64_t expected = orion_duration_expect(orion_durations(process), orion_graph_identity(orion_graphs(process), exec), &sample);
    CHECK(expected < WINDOW_NS);
    takes(exec, 3); /* it has proved long: nothing old counts for the pieces */
    for (unsigned i = 0; i < 3; i++) CHECK(launch(exec, stream, 0) == 6);
    takes_ns(copy->piece[0].exec, WINDOW_NS / 7);
    CHECK(launch(exec, stream, 0) == 6); /* a sum as low as this was wrong before */
    takes_ns(copy->piece[0].exec, WINDOW_NS / 14);
    CHECK(launch(exec, stream, 0) == 1);
    end(exec);
}

static void graphs_that_cannot_be_copied_run_whole(void)
{
    CUgraph graph = chain(0, NULL);
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.bytesize = 4096,
                                             .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}};
    MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    MUST(cuGraphAddMemFreeNode(&node, graph, &node, 1, parameters.dptr));
    CUgraphExec exec = instantiated(graph);
    CHECK(orion_graph_copy_of(process, exec) == NULL && launch(exec, stream, 0) == 1);
    end(exec);
}

static void forget_device_graphs(void) { atomic_store(&orion_graph_copies(process)->some, 0); }

/* A kernel may launch a graph that runs behind the whole graph which the kernel is in (a tail launch). */
static void beside_a_graph_that_kernels_launch_all_run_whole(void)
{
    CUgraph of_device;
    CUgraphExec exec = instantiated(chain(0, NULL)), launchable;
    CUDA_KERNEL_NODE_PARAMS parameters = kernel();
    CUgraphNode node;
    CHECK(launch(exec, stream, 0) == 6);
    MUST(cuGraphCreate(&of_device, 0));
    MUST(cuGraphAddKernelNode(&node, of_device, NULL, 0, &parameters));
    MUST(cuGraphInstantiate(&launchable, of_device, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
    for (unsigned i = 0; i < 2; i++) CHECK(launch(exec, stream, 0) == 1);
    end(exec);
    exec = instantiated(chain(0, NULL));
    CHECK(launch(exec, stream, 0) == 1);
    end(exec);
    end(launchable);
    forget_device_graphs();
}

/* The driver instantiates such a graph once. */
static void a_graph_whose_nodes_kernels_update_has_no_copy(void)
{
    CUgraphNode nodes[2 * STEPS];
    size_t count = 2 * STEPS;
    CUgraph graph = chain(0, NULL);
    const CUlaunchAttributeValue updatable = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
    MUST(cuGraphGetNodes(graph, nodes, &count));
    MUST(cuGraphKernelNodeSetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &updatable));
    CUgraphExec exec = instantiated(graph);
    CHECK(orion_graph_copy_of(process, exec) == NULL && launch(exec, stream, 0) == 1);
    end(exec);
    forget_device_graphs();
}

static void add_write(CUgraph graph, CUgraphNode before)
{
    static uint32_t word;
    CUgraphNode node;
    CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.count = 1, .paramArray = &op};
    MUST(cuCtxGetCurrent(&batch.ctx));
    op.writeValue.address = (CUdeviceptr)(uintptr_t)&word;
    MUST(cuGraphAddBatchMemOpNode(&node, graph, &before, before != NULL, &batch));
}

/* A kernel that spins on a word, and the node of another branch that writes the word, must not get into different pieces. */
static void branches_that_words_may_order_run_whole(void)
{
    CUgraphNode hosts[STEPS];
    CUgraph graph = chain(0, hosts);
    add_write(graph, hosts[STEPS - 1]);
    CUgraphExec exec = instantiated(graph);
    CHECK(orion_graph_copy_of(process, exec) != NULL); /* a chain is in order by itself */
    end(exec);
    graph = chain(0, hosts);
    add_write(graph, NULL);
    exec = instantiated(graph);
    CHECK(orion_graph_copy_of(process, exec) == NULL && launch(exec, stream, 0) == 1);
    end(exec);
}

static void a_handle_that_is_used_again_gets_a_new_copy(void)
{
    CUgraph graph = chain(0, NULL), other = chain(40, NULL);
    CUgraphExec exec = instantiated(graph);
    orion_graph_copy_made(exec, other); /* as if the context had ended, and the handle named a new executable */
    CHECK(orion_graph_copy_of(process, exec) != NULL && orion_graph_copy_of(process, exec)->event == NULL);
    CHECK(atomic_load(&orion_graph_copies(process)->count) == 1);
    end(exec);
    CHECK(atomic_load(&orion_graph_copies(process)->count) == 0);
}

/* Each part is a clone of the whole piece, so the parts of one cut are limited, and the pieces of a graph. */
static void a_very_long_graph_is_cut_in_several_launches(void)
{
    CUgraph graph;
    CUgraphNode before = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < 3000; i++) MUST(cuGraphAddEmptyNode(&before, graph, &before, i > 0));
    CUgraphExec exec = instantiated(graph);
    takes(exec, 3000);
    CHECK(launch_in(exec, stream) == 21);
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    for (unsigned round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < copy->pieces; i++) takes(copy->piece[i].exec, 200);
        CHECK(launch_in(exec, stream) == copy->pieces && copy->pieces <= 1024);
    }
    CHECK(copy->pieces > 500);
    MUST(cuStreamSynchronize(stream));
    end(exec);
}

/* A program may wait in a host node for something that it does after its launch. Meanwhile hp is busy for half of the
 * time. The first launch waits until the hook finds out, and then the graph runs whole. */
static _Atomic bool launch_has_returned, hp_works;

static void CUDA_CB wait_for_return(void *data)
{
    (void)data;
    for (uint64_t end = orion_now() + 60 * ORION_SECOND; !atomic_load(&launch_has_returned);) CHECK(orion_now() < end);
}

static void *hp_comes_and_goes(void *data)
{
    (void)data;
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    for (bool busy = true; atomic_load(&hp_works); busy = !busy) {
        atomic_store(&page->heartbeat_ns, orion_now());
        atomic_fetch_add(&page->progress, 1);
        atomic_store(&page->state, busy ? ORION_BUSY : ORION_IDLE);
        orion_sleep_precisely(12 * ORION_MILLISECOND);
    }
    atomic_store(&page->state, ORION_IDLE);
    return NULL;
}

static void a_graph_that_waits_for_the_program_runs_whole(void)
{
    pthread_t hp;
    CUgraph graph = chain(0, NULL);
    CUgraphNode waits, before = NULL;
    CUDA_HOST_NODE_PARAMS host = {.fn = wait_for_return};
    size_t roots = 1;
    MUST(cuGraphGetRootNodes(graph, &before, &roots));
    MUST(cuGraphAddHostNode(&waits, graph, NULL, 0, &host));
    MUST(cuGraphAddDependencies(graph, &waits, &before, NULL, 1));
    CUgraphExec exec = instantiated(graph);
    policy.copy[0].window_ns = grant.copy[0].window_share_ns = 100 * ORION_MICROSECOND; /* so a piece must wait for others */
    atomic_store(&hp_works, true);
    CHECK(pthread_create(&hp, NULL, hp_comes_and_goes, NULL) == 0);
    for (unsigned i = 0; i < 3; i++) {
        atomic_store(&launch_has_returned, false);
        log_count = 0;
        uint64_t began = orion_now();
        CHECK((launch_in(exec, stream) > 1) == (i == 0));
        CHECK(orion_now() - began < 20 * ORION_SECOND);
        atomic_store(&launch_has_returned, true);
        MUST(cuStreamSynchronize(stream));
        CHECK(log_count == STEPS);
    }
    atomic_store(&hp_works, false);
    pthread_join(hp, NULL);
    policy.copy[0].window_ns = grant.copy[0].window_share_ns = WINDOW_NS;
    end(exec);
}

/* The driver's launch of a graph, which fails once. */
static orion_graph_launcher *graph_launch;
static int until_failure;

static CUresult CUDAAPI launch_or_fail(CUgraphExec exec, CUstream where)
{
    return until_failure-- == 0 ? CUDA_ERROR_OUT_OF_MEMORY : graph_launch(exec, where);
}

static CUresult launch_that_fails_after(int pieces, CUgraphExec exec)
{
    CHECK(launch(exec, stream, 0) == 6);
    log_count = 0;
    until_failure = pieces;
    CUresult result = orion_graph_launch(launch_or_fail, exec, (struct orion_stream_name){stream, false});
    MUST(cuStreamSynchronize(stream));
    return result;
}

static void runs_whole_from_now_on(CUgraphExec exec)
{
    int64_t before = orion_sim_graph_launches(exec);
    launch(exec, stream, 0);
    CHECK(orion_sim_graph_launches(exec) == before + 1);
    end(exec);
}

static void if_the_first_piece_fails_the_graph_runs_whole(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    MUST(launch_that_fails_after(0, exec));
    never_mixed(1);
    runs_whole_from_now_on(exec);
}

static void if_a_later_piece_fails_the_launch_fails(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    CHECK(launch_that_fails_after(2, exec) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(log_count > 0 && log_count < STEPS);
    runs_whole_from_now_on(exec);
}

int main(void)
{
    begin();
    graph_launch = (orion_graph_launcher *)(uintptr_t)dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuGraphLaunch");
    CHECK(graph_launch != NULL);
    a_long_graph_runs_in_pieces();
    without_hp_the_programs_executable_runs();
    graphs_that_cannot_be_copied_run_whole();
    beside_a_graph_that_kernels_launch_all_run_whole();
    a_graph_whose_nodes_kernels_update_has_no_copy();
    branches_that_words_may_order_run_whole();
    a_handle_that_is_used_again_gets_a_new_copy();
    a_very_long_graph_is_cut_in_several_launches();
    if_the_first_piece_fails_the_graph_runs_whole();
    if_a_later_piece_fails_the_launch_fails();
    a_graph_that_waits_for_the_program_runs_whole();
    a_graph_whose_pieces_prove_short_runs_whole();
    pieces_that_prove_long_are_cut_again(); /* then the hook knows pieces of such graphs as long */
    return 0;
}
