/* Two threads launch graphs, each in pieces, into one stream or into two whose work the driver orders: each graph runs as a whole. */
#include "graph_chain.h"

#include <pthread.h>

#define GRAPHS 2u
#define ROUNDS 10u
#define APART 1000u /* the kernels of the second graph log their numbers and this */

static CUgraphExec executables[GRAPHS];
static CUstream streams[GRAPHS];
static CUcontext context;

static void *launch_one(void *number)
{
    MUST(cuCtxSetCurrent(context));
    CHECK(launch_in(executables[(uintptr_t)number], streams[(uintptr_t)number]) > 1);
    return NULL;
}

static void each_graph_runs_as_a_whole(CUstream first, CUstream second)
{
    streams[0] = first, streams[1] = second;
    for (unsigned i = 0; i < GRAPHS; i++) launch(executables[i], streams[i], APART * i);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t threads[GRAPHS];
        unsigned changes = 0;
        log_count = 0;
        for (uintptr_t i = 0; i < GRAPHS; i++) CHECK(pthread_create(&threads[i], NULL, launch_one, (void *)i) == 0);
        for (unsigned i = 0; i < GRAPHS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        MUST(cuCtxSynchronize());
        CHECK(log_count == GRAPHS * STEPS);
        for (unsigned i = 1; i < log_count; i++) changes += log_of[i] / APART != log_of[i - 1] / APART;
        CHECK(changes == 1);
    }
}

int main(void)
{
    CUstream blocking;
    begin();
    MUST(cuCtxGetCurrent(&context));
    MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    atomic_store(&policy.hp_clients, 1);
    for (unsigned i = 0; i < GRAPHS; i++) executables[i] = instantiated(chain(APART * i, NULL));
    each_graph_runs_as_a_whole(stream, stream);
    each_graph_runs_as_a_whole(blocking, CU_STREAM_LEGACY);
    each_graph_runs_as_a_whole(NULL, blocking);
    each_graph_runs_as_a_whole(CU_STREAM_PER_THREAD, CU_STREAM_LEGACY);
    for (unsigned i = 0; i < GRAPHS; i++) end(executables[i]);
    puts("between_pieces: ok");
    return 0;
}
