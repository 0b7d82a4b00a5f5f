/* A launch that has found no graph in pieces in its stream, and then waits for long, does not run inside one that another thread begins
 * meanwhile. Here the other thread begins it at that moment, and stops before its second piece. The graph may be the process's first. */
#include <pthread.h>

#include "be/graph_pieces.h"
#include "be/order_wait.h"
#include "learning/durations.h"

#define launch chain_launch
#include "graph_chain.h"
#undef launch
#include "until.h"

#define LAUNCHED 1000u /* what the launch logs */

static CUgraphExec long_graph, short_graph;
static CUcontext context;
static pthread_t other;
static _Thread_local bool is_other;
static _Thread_local unsigned renewals;
static _Atomic int others_waits, second_piece, launched, began;

static bool renewed(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    if (is_other && ++renewals == 2) {
        atomic_store(&second_piece, 1);
        UNTIL(atomic_load(&launched));
    }
    return orion_pieces_renewed(copy, piece);
}

static bool wait_noted(struct orion_process *of, struct orion_gpu *on, struct orion_order_wait *wait)
{
    if (is_other) atomic_fetch_add(&others_waits, 1);
    return orion_order_waits(of, on, wait);
}

static void *launch_long(void *none)
{
    is_other = true;
    MUST(cuCtxSetCurrent(context));
    if (long_graph == NULL) long_graph = instantiated(chain(0, NULL));
    MUST(cuGraphLaunch(long_graph, stream));
    return none;
}

static uint64_t begin_other(struct orion_durations *durations, uint64_t identity, bool *sample)
{
    if (!is_other && context != NULL && !atomic_exchange(&began, 1)) {
        CHECK(pthread_create(&other, NULL, launch_long, NULL) == 0);
        UNTIL(atomic_load(&others_waits) > 0 || atomic_load(&second_piece));
    }
    return orion_duration_expect(durations, identity, sample);
}

#define orion_duration_expect begin_other
#include "be/admission.c"
#undef orion_duration_expect
#define orion_order_waits wait_noted
#include "be/between_pieces.c"
#undef orion_order_waits
#define orion_pieces_renewed renewed
#include "core/graph_launch.c"

/* One node: the hook makes no copy of such a graph. */
static CUgraphExec graph_that_logs(void)
{
    CUgraph graph;
    CUgraphNode noted;
    CUgraphExec exec;
    CUDA_HOST_NODE_PARAMS host = {.fn = note, .userData = (void *)(uintptr_t)LAUNCHED};
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddHostNode(&noted, graph, NULL, 0, &host));
    MUST(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void launches_follow_each_other(void)
{
    log_count = 0;
    atomic_store(&others_waits, 0), atomic_store(&second_piece, 0), atomic_store(&launched, 0), atomic_store(&began, 0);
    MUST(cuGraphLaunch(short_graph, stream));
    atomic_store(&launched, 1);
    CHECK(pthread_join(other, NULL) == 0);
    MUST(cuCtxSynchronize());
    CHECK(log_count == STEPS + 1 && (log_of[0] == LAUNCHED || log_of[STEPS] == LAUNCHED));
}

int main(void)
{
    begin();
    short_graph = graph_that_logs();
    takes_ns(short_graph, 20000);
    MUST(cuCtxGetCurrent(&context));
    CHECK(atomic_load(&orion_graph_copies(process)->count) == 0);
    for (unsigned i = 0; i < 2; i++) launches_follow_each_other();
    end(long_graph);
    MUST(cuGraphExecDestroy(short_graph));
    puts("launch_before_pieces: ok");
    return 0;
}
