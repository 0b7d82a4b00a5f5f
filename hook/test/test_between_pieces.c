/* Two threads launch graphs into one stream, each in pieces: each graph runs as a whole. */
#include "graph_chain.h"

#include <pthread.h>

#define GRAPHS 2u
#define ROUNDS 10u
#define APART 1000u /* the kernels of the second graph log their numbers and this */

static CUgraphExec executables[GRAPHS];
static CUcontext context;

static void *launch_one(void *number)
{
    MUST(cuCtxSetCurrent(context));
    CHECK(launch_in(executables[(uintptr_t)number], stream) > 1);
    return NULL;
}

int main(void)
{
    begin();
    MUST(cuCtxGetCurrent(&context));
    atomic_store(&policy.hp_clients, 1);
    for (unsigned i = 0; i < GRAPHS; i++) {
        executables[i] = instantiated(chain(APART * i, NULL));
        launch(executables[i], stream, APART * i);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t threads[GRAPHS];
        unsigned changes = 0;
        log_count = 0;
        for (uintptr_t i = 0; i < GRAPHS; i++) CHECK(pthread_create(&threads[i], NULL, launch_one, (void *)i) == 0);
        for (unsigned i = 0; i < GRAPHS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        MUST(cuStreamSynchronize(stream));
        CHECK(log_count == GRAPHS * STEPS);
        for (unsigned i = 1; i < log_count; i++) changes += log_of[i] / APART != log_of[i - 1] / APART;
        CHECK(changes == 1);
    }
    for (unsigned i = 0; i < GRAPHS; i++) end(executables[i]);
    puts("between_pieces: ok");
    return 0;
}
