/* Threads launch graphs in pieces, one after the other, into streams that the driver orders with one in which a launch waits, but not with
 * each other. So some thread always is between its pieces; the launch that waits still goes before those that came later. */
#include <pthread.h>

#include "be/order_wait.h"
#include "be/state.h"
#include "graph_chain.h"
#include "until.h"

enum { WAITER = 1, LATER };

static struct orion_stream_record *legacy, *first, *second;
static _Thread_local int who;
static _Atomic int steps[LATER + 1], gone;
static int order[3];

static bool wait_noted(struct orion_process *of, struct orion_gpu *on, struct orion_order_wait *wait)
{
    atomic_fetch_add(&steps[who], 1);
    return orion_order_waits(of, on, wait);
}

#define orion_order_waits wait_noted
#include "be/between_pieces.c"
#undef orion_order_waits

static void goes(void) { order[atomic_fetch_add(&gone, 1)] = who; }

static void *launch_in_legacy(void *none)
{
    who = WAITER;
    CHECK(orion_between_pieces_wait(process, legacy));
    goes();
    orion_between_pieces_launched(legacy);
    return none;
}

static void *launch_in_pieces(struct orion_stream_record *where)
{
    CHECK(orion_between_pieces_begin(process, where));
    goes();
    orion_between_pieces_end(where);
    return NULL;
}

static void *launch_pieces_in_legacy(void *none)
{
    (void)none;
    who = WAITER;
    return launch_in_pieces(legacy);
}

static void *launch_pieces_later(void *none)
{
    (void)none;
    who = LATER;
    return launch_in_pieces(second);
}

static void goes_before_those_that_came_later(void *(*waiter)(void *))
{
    pthread_t waits, later;
    atomic_store(&steps[WAITER], 0), atomic_store(&steps[LATER], 0), atomic_store(&gone, 0);
    CHECK(orion_between_pieces_begin(process, first));
    CHECK(pthread_create(&waits, NULL, waiter, NULL) == 0);
    UNTIL(atomic_load(&steps[WAITER]) > 0);
    CHECK(pthread_create(&later, NULL, launch_pieces_later, NULL) == 0);
    UNTIL(atomic_load(&steps[LATER]) > 0 || atomic_load(&gone) > 0);
    orion_between_pieces_end(first);
    CHECK(pthread_join(waits, NULL) == 0 && pthread_join(later, NULL) == 0);
    CHECK(order[0] == WAITER && order[1] == LATER);
}

static struct orion_stream_record *blocking(void)
{
    CUstream made;
    MUST(cuStreamCreate(&made, CU_STREAM_DEFAULT));
    return orion_stream_record_of(process, (struct orion_stream_name){made, false});
}

int main(void)
{
    begin();
    CUgraphExec exec = instantiated(chain(0, NULL));
    legacy = orion_stream_record_of(process, (struct orion_stream_name){CU_STREAM_LEGACY, false});
    first = blocking(), second = blocking();
    goes_before_those_that_came_later(launch_in_legacy);
    goes_before_those_that_came_later(launch_pieces_in_legacy);
    /* nothing that has waited holds up others */
    CHECK(launch_in_pieces(first) == NULL && atomic_load(&steps[0]) == 0);
    end(exec);
    puts("waiting_launch: ok");
    return 0;
}
