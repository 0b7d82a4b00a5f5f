/* Two threads find a stream without a graph in pieces, and take it at the same time. The second one begins again, so its graph runs as a
 * whole, too. Here the first thread takes the stream in the place of the second one's exchange. */
#include <pthread.h>

#include "be/graph_pieces.h"
#include "be/order_wait.h"

#define launch chain_launch
#include "graph_chain.h"
#undef launch
#include "until.h"

#define APART 1000u /* the kernels of the second graph log their numbers and this */

enum { FIRST_HOLDS = 1, SECOND_FAILED, SECOND_LAUNCHES, FIRST_COMES_AGAIN };

static CUgraphExec graphs[2];
static CUcontext context;
static pthread_t first;
static _Thread_local int who, renewals; /* 1: the first thread; 2: the second */
static _Atomic int phase;

static void await_phase(int least) { UNTIL(atomic_load(&phase) >= least); }
static void reach(int next)
{
    if (atomic_load(&phase) < next) atomic_store(&phase, next);
}

static bool renewed(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    if (++renewals == 2 && who == 1) {
        reach(FIRST_HOLDS);
        await_phase(SECOND_FAILED);
    } else if (renewals == 2 && who == 2) {
        reach(SECOND_LAUNCHES);
        await_phase(FIRST_COMES_AGAIN);
    }
    return orion_pieces_renewed(copy, piece);
}

static void *launch_twice(void *none)
{
    who = 1;
    MUST(cuCtxSetCurrent(context));
    MUST(cuGraphLaunch(graphs[0], stream));
    await_phase(SECOND_LAUNCHES);
    MUST(cuGraphLaunch(graphs[0], stream));
    reach(FIRST_COMES_AGAIN);
    return none;
}

static bool exchange(_Atomic uintptr_t *word, uintptr_t *expected, uintptr_t desired)
{
    static _Atomic int began;
    bool comes_late = who == 2 && !atomic_exchange(&began, 1);
    if (comes_late) {
        CHECK(pthread_create(&first, NULL, launch_twice, NULL) == 0);
        await_phase(FIRST_HOLDS);
    }
    bool exchanged = atomic_compare_exchange_strong(word, expected, desired);
    if (comes_late) {
        CHECK(!exchanged);
        reach(SECOND_FAILED);
    }
    return exchanged;
}

static bool wait_noted(struct orion_process *of, struct orion_gpu *on, struct orion_order_wait *wait)
{
    if (who == 1 && atomic_load(&phase) >= SECOND_LAUNCHES) reach(FIRST_COMES_AGAIN);
    return orion_order_waits(of, on, wait);
}

#undef atomic_compare_exchange_strong
#define atomic_compare_exchange_strong exchange
#define orion_order_waits wait_noted
#include "be/between_pieces.c"
#undef orion_order_waits
#define orion_pieces_renewed renewed
#include "core/graph_launch.c"

int main(void)
{
    unsigned changes = 0;
    begin();
    MUST(cuCtxGetCurrent(&context));
    for (unsigned i = 0; i < 2; i++) {
        graphs[i] = instantiated(chain(APART * i, NULL));
        CHECK(launch_in(graphs[i], stream) > 1);
    }
    MUST(cuStreamSynchronize(stream));
    log_count = 0, renewals = 0;
    who = 2;
    MUST(cuGraphLaunch(graphs[1], stream));
    CHECK(pthread_join(first, NULL) == 0);
    MUST(cuCtxSynchronize());
    for (unsigned i = 1; i < log_count; i++) changes += log_of[i] / APART != log_of[i - 1] / APART;
    CHECK(log_count == 3 * STEPS && changes == 2);
    for (unsigned i = 0; i < 2; i++) end(graphs[i]);
    puts("second_taker: ok");
    return 0;
}
