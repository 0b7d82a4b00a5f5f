/* hp with more streams than most programs have is found idle as soon as the others. */
#include "simulated_process.h"

#include "hp/drain.h"
#include "until.h"

#define MANY 60u
#define MOST 150u

static CUfunction function;
static CUstream streams[MOST];

static void launch_in(unsigned count)
{
    for (unsigned i = 0; i < count; i++) MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, streams[i], NULL, NULL));
    CHECK(atomic_load(&gpu->busy->state) == ORION_BUSY);
}

int main(void)
{
    function = begin_hp_process();
    for (unsigned i = 0; i < MOST; i++) MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    launch_in(MANY);
    MUST(cuCtxSynchronize());
    CHECK(atomic_load(&gpu->busy->state) != ORION_BUSY);
    launch_in(MOST);
    orion_drain_request(gpu);
    UNTIL(atomic_load(&gpu->busy->state) != ORION_BUSY);
    puts("many_streams: ok");
    return 0;
}
