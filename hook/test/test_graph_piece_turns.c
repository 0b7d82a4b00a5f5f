/* Launches of one graph in pieces in several streams: the driver would start each when the one before is over, so they never mix. */
#include "graph_chain.h"

#include <pthread.h>

#include "../sim/orion_sim.h"
#include "system/system.h"

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

static CUcontext primary;
static CUevent awaited; /* by the hook's last wait for an event */

static CUresult CUDAAPI note_wait(CUstream where, CUevent event, unsigned flags)
{
    awaited = event;
    return cuStreamWaitEvent(where, event, flags);
}

static void *launch_in_own_stream(void *exec)
{
    MUST(cuCtxSetCurrent(primary));
    CHECK(launch_in(exec, CU_STREAM_PER_THREAD) == 6);
    return NULL;
}

/* The second thread gets the place of the first one, but another stream. */
static void threads_take_turns(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    CUresult (*CUDAAPI before)(CUstream, CUevent, unsigned) = orion_driver.cuStreamWaitEvent;
    MUST(cuCtxGetCurrent(&primary));
    orion_driver.cuStreamWaitEvent = note_wait;
    log_count = 0;
    for (unsigned i = 0; i < 2; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, launch_in_own_stream, exec) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(awaited == (i == 0 ? NULL : orion_graph_copy_of(process, exec)->event));
    }
    MUST(cuCtxSynchronize());
    never_mixed(2);
    orion_driver.cuStreamWaitEvent = before;
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

static _Atomic bool may_go_on;

static void CUDA_CB wait_for_the_test(void *data)
{
    (void)data;
    for (uint64_t end = orion_now() + 60 * ORION_SECOND; !atomic_load(&may_go_on);) CHECK(orion_now() < end);
}

/* The end of an unrelated context leaves the streams of the others in their order. */
static void streams_take_turns_after_another_context_has_ended(void)
{
    CUcontext other, before;
    CUstream second;
    CUresult (*CUDAAPI driver_wait)(CUstream, CUevent, unsigned) = orion_driver.cuStreamWaitEvent;
    CUgraphExec exec = instantiated(chain(0, NULL));
    MUST(cuCtxGetCurrent(&before));
    MUST(cuCtxCreate(&other, NULL, 0, 0));
    MUST(cuCtxSetCurrent(before));
    MUST(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    log_count = 0;
    MUST(cuLaunchHostFunc(stream, wait_for_the_test, NULL));
    CHECK(launch_in(exec, stream) == 6);
    CUevent event = orion_graph_copy_of(process, exec)->event;
    MUST(cuCtxDestroy(other));
    orion_driver.cuStreamWaitEvent = note_wait;
    MUST(cuGraphLaunch(exec, second)); /* in pieces, or whole if the pieces have proved short */
    orion_driver.cuStreamWaitEvent = driver_wait;
    CHECK(awaited == event);
    atomic_store(&may_go_on, true);
    MUST(cuStreamSynchronize(second));
    never_mixed(2);
    end(exec);
}

/* The event behind the last launch has ended with its context. */
static void a_launch_after_the_end_of_the_last_ones_context(void)
{
    CUcontext other, before;
    CUstream ends;
    CUgraphExec exec = instantiated(chain(0, NULL));
    MUST(cuCtxGetCurrent(&before));
    MUST(cuCtxCreate(&other, NULL, 0, 0));
    MUST(cuStreamCreate(&ends, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxSetCurrent(before));
    log_count = 0;
    CHECK(launch_in(exec, ends) == 6);
    MUST(cuStreamSynchronize(ends));
    CUevent event = orion_graph_copy_of(process, exec)->event;
    MUST(cuCtxDestroy(other));
    MUST(cuGraphLaunch(exec, stream));
    CHECK(orion_graph_copy_of(process, exec)->event != event && orion_graph_copy_of(process, exec)->spare != event);
    MUST(cuStreamSynchronize(stream));
    never_mixed(2);
    end(exec);
}

static CUevent destroyed;
static CUresult (*CUDAAPI driver_destroy)(CUevent);
static CUresult CUDAAPI note_destroyed(CUevent event)
{
    destroyed = event;
    return driver_destroy(event);
}

/* Of another place than the current one. */
static void end_another_context(void)
{
    CUcontext other, before;
    MUST(cuCtxGetCurrent(&before));
    do MUST(cuCtxCreate(&other, NULL, 0, 0));
    while (orion_ends_of(process, other) == orion_ends_of(process, before));
    MUST(cuCtxSetCurrent(before));
    MUST(cuCtxDestroy(other));
}

/* A program may end contexts all the time. */
static void the_end_of_another_context_leaves_no_event_behind(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    log_count = 0;
    CHECK(launch_in(exec, stream) == 6);
    MUST(cuStreamSynchronize(stream));
    const struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    CUevent event = copy->event;
    end_another_context();
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    CHECK(event != NULL && (copy->event == event || copy->spare == event));
    end_another_context();
    driver_destroy = orion_driver.cuEventDestroy_v2;
    orion_driver.cuEventDestroy_v2 = note_destroyed;
    end(exec);
    orion_driver.cuEventDestroy_v2 = driver_destroy;
    CHECK(destroyed == event);
}

int main(void)
{
    begin();
    streams_take_turns();
    threads_take_turns();
    streams_that_take_turns_get_pieces();
    streams_of_two_contexts_take_turns();
    streams_take_turns_after_another_context_has_ended();
    a_launch_after_the_end_of_the_last_ones_context();
    the_end_of_another_context_leaves_no_event_behind();
    puts("graph_piece_turns: ok");
    return 0;
}
