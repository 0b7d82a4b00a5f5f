/* Effects of one stream run in the order of the stream, in whatever order threads announce them: two threads that submit
 * into one stream may queue their operations in one order, and announce the effects in the other. */
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "effect.h"
#include "queue.h"
#include "sim.h"

#define EFFECTS 3u
#define DEADLINE_NS UINT64_C(20000000000)

static CUstream stream;
static unsigned ran[EFFECTS];
static _Atomic unsigned ran_count;

static bool run(void *data)
{
    ran[atomic_load(&ran_count)] = *(unsigned *)data;
    atomic_fetch_add(&ran_count, 1);
    return true;
}

static void queue(struct sim_position *at)
{
    struct sim_op op = {.kind = SIM_EFFECT};
    CHECK(sim_submit(stream, &op, at) == CUDA_SUCCESS);
}

static void announce(const struct sim_position *at, unsigned number)
{
    unsigned *data = malloc(sizeof *data);
    CHECK(data);
    *data = number;
    sim_effect_add(at, run, data, 0);
}

static void last_announced_first(void)
{
    struct sim_position at[EFFECTS];
    for (unsigned i = 0; i < EFFECTS; i++) queue(&at[i]);
    for (unsigned i = EFFECTS; i-- > 0;) announce(&at[i], i);
    for (uint64_t begun = sim_monotonic_ns(); !sim_query(&at[EFFECTS - 1]); usleep(200))
        CHECK(sim_monotonic_ns() - begun < DEADLINE_NS);
    for (unsigned i = 0; i < EFFECTS; i++) CHECK(ran[i] == i);
}

int main(void)
{
    CUcontext context;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == 0);
    last_announced_first();
    puts("sim effects: ok");
    return 0;
}
