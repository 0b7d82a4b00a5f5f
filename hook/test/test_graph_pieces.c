/* be's graphs in pieces, on the simulated driver, through the hook's wrappers: a graph in pieces does what the program's
 * own executable does, after each kind of update. Kernels of the simulated GPU have no result, so a host node behind each
 * kernel writes its number into a log. */
#include "simulated_process.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../sim/orion_sim.h"
#include "be/graph_copies.h"
#include "be/graph_updates.h"
#include "be/window.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/graphs.h"
#include "process/process.h"
#include "system/system.h"

#define STEPS 24u
#define WINDOW_NS 400000000u /* so long that measured durations of the pieces never exceed it */

static struct orion_policy_page policy;
static struct orion_grant_page grant;
static CUfunction function;
static CUstream stream;

static unsigned log_count;
static unsigned log_of[4 * STEPS];

static void CUDA_CB note(void *number)
{
    CHECK(log_count < 4 * STEPS);
    log_of[log_count++] = (unsigned)(uintptr_t)number;
}

static void begin(void)
{
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    policy.copy[0] = (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = WINDOW_NS};
    atomic_store(&policy.hp_clients, 1);
    grant.copy[0].window_share_ns = WINDOW_NS;
    gpu->policy = &policy;
    gpu->grant = &grant;
}

static CUDA_KERNEL_NODE_PARAMS kernel(void)
{
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1};
}

/* A chain of STEPS kernels, each followed by a host node that notes its number plus `offset`. */
static CUgraph chain(unsigned offset, CUgraphNode *hosts)
{
    CUgraph graph;
    CUgraphNode before = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < STEPS; i++) {
        CUDA_KERNEL_NODE_PARAMS parameters = kernel();
        CUDA_HOST_NODE_PARAMS host = {.fn = note, .userData = (void *)(uintptr_t)(offset + i)};
        CUgraphNode made, noted;
        MUST(cuGraphAddKernelNode(&made, graph, &before, before != NULL, &parameters));
        MUST(cuGraphAddHostNode(&noted, graph, &made, 1, &host));
        before = noted;
        if (hosts != NULL) hosts[i] = noted;
    }
    return graph;
}

static void takes(CUgraphExec exec, unsigned windows)
{
    uint64_t identity = orion_graph_identity(orion_graphs(process), exec);
    orion_window_reap(process, gpu); /* enters what was measured so far */
    orion_duration_forget(orion_durations(process), identity);
    orion_duration_learn(orion_durations(process), identity, (uint64_t)windows * WINDOW_NS - 1000, ORION_SAMPLE_CLEAN);
}

/* The hook has learnt that the graph takes 6 windows. */
static CUgraphExec instantiated(CUgraph graph)
{
    CUgraphExec exec;
    MUST(cuGraphInstantiate(&exec, graph, 0));
    takes(exec, 6);
    return exec;
}

static void end(CUgraphExec exec)
{
    MUST(cuGraphExecDestroy(exec));
    CHECK(orion_graph_copy_of(process, exec) == NULL);
}

/* Launches the graph. Returns how many executables the hook has launched. */
static unsigned launch_in(CUgraphExec exec, CUstream where)
{
    MUST(cuGraphLaunch(exec, where));
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    return copy != NULL && copy->event != NULL ? copy->pieces : 1;
}

/* The same; also expects the numbers from `offset` on, in order. */
static unsigned launch(CUgraphExec exec, CUstream where, unsigned offset)
{
    log_count = 0;
    unsigned launches = launch_in(exec, where);
    MUST(cuStreamSynchronize(where));
    CHECK(log_count == STEPS);
    for (unsigned i = 0; i < STEPS; i++) CHECK(log_of[i] == offset + i);
    return launches;
}

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
    takes(exec, 6); /* the launch was timed */
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

/* Expects the numbers of so many launches, one launch after the other. */
static void never_mixed(unsigned launches)
{
    CHECK(log_count == launches * STEPS);
    for (unsigned i = 0; i < log_count; i++) CHECK(log_of[i] == i % STEPS);
}

static void streams_take_turns(void)
{
    CUstream other;
    CUgraphExec exec = instantiated(chain(0, NULL));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    log_count = 0;
    CHECK(launch_in(exec, stream) == 6 && launch_in(exec, other) == 6);
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamSynchronize(other));
    never_mixed(2);
    end(exec);
}

static void streams_that_take_turns_get_pieces(void)
{
    CUstream both[2] = {stream};
    CUgraphExec exec = instantiated(chain(0, NULL));
    MUST(cuStreamCreate(&both[1], CU_STREAM_NON_BLOCKING));
    atomic_store(&policy.hp_clients, 0);
    log_count = 0;
    MUST(cuGraphLaunch(exec, both[1]));
    atomic_store(&policy.hp_clients, 1);
    takes(exec, 6);
    for (unsigned i = 0; i < 3; i++) MUST(cuGraphLaunch(exec, both[i % 2]));
    CHECK(orion_sim_graph_launches(exec) == 2);
    for (unsigned i = 0; i < 2; i++) MUST(cuStreamSynchronize(both[i]));
    never_mixed(4);
    end(exec);
}

static void streams_of_two_contexts_take_turns(void)
{
    CUcontext other, before;
    CUstream both[2] = {stream};
    CUgraphExec exec = instantiated(chain(0, NULL));
    MUST(cuCtxGetCurrent(&before));
    MUST(cuCtxCreate(&other, NULL, 0, 0));
    MUST(cuStreamCreate(&both[1], CU_STREAM_NON_BLOCKING));
    MUST(cuCtxSetCurrent(before));
    log_count = 0;
    for (unsigned i = 0; i < 4; i++) CHECK(launch_in(exec, both[i % 2]) == 6);
    for (unsigned i = 0; i < 2; i++) MUST(cuStreamSynchronize(both[i]));
    never_mixed(4);
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

static void a_node_that_the_hook_does_not_know_ends_the_pieces(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    CHECK(launch(exec, stream, 0) == 6);
    orion_graph_copy_enabled(exec, (CUgraphNode)&policy, false); /* perhaps a node of a child graph */
    CHECK(launch(exec, stream, 0) == 1);
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
    atomic_store(&gpu->hp_count, 1);
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
    atomic_store(&gpu->hp_count, 0);
    policy.copy[0].window_ns = grant.copy[0].window_share_ns = WINDOW_NS;
    end(exec);
}

int main(void)
{
    begin();
    a_long_graph_runs_in_pieces();
    without_hp_the_programs_executable_runs();
    pieces_that_prove_long_are_cut_again();
    an_update_of_the_whole_graph_reaches_the_pieces();
    updates_of_single_nodes_reach_the_pieces();
    a_node_that_could_not_be_set_ends_the_pieces_until_an_update();
    a_changed_child_graph_reaches_the_pieces();
    a_long_child_graph_is_cut_too();
    a_disabled_node_stays_disabled();
    streams_take_turns();
    streams_that_take_turns_get_pieces();
    streams_of_two_contexts_take_turns();
    graphs_that_cannot_be_copied_run_whole();
    a_handle_that_is_used_again_gets_a_new_copy();
    a_very_long_graph_is_cut_in_several_launches();
    a_node_that_the_hook_does_not_know_ends_the_pieces();
    a_graph_that_waits_for_the_program_runs_whole();
    return 0;
}
