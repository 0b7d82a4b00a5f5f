/* The thread that closes hp's busy period leaves the begin of the next one: another thread may launch before the period is written
 * down. Here it does so each time, in the place of a call between the two. */
#include "check.h"
#include "fake_driver.h"

#include "core/core.h"
#include "hp/budget.h"
#include "hp/busy.h"
#include "hp/state.h"
#include "system/system.h"

static uint32_t launches_meanwhile;

static void launch(void)
{
    struct orion_work work = {.stream = {(CUstream)0x5000, false}, .identity = 1};
    orion_work_begin(&work);
    orion_work_end(&work, CUDA_SUCCESS);
}

static void launch_meanwhile(struct orion_gpu *gpu, uint64_t now, uint64_t begun)
{
    (void)gpu, (void)begun;
    while (orion_now() == now) orion_pause();
    if (launches_meanwhile == 0) return;
    launches_meanwhile--;
    launch();
}

#define orion_budget_paused launch_meanwhile
#include "hp/busy.c"

static void synchronise(void)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {(CUstream)0x5000, false}};
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

int main(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_HP);
    launch();
    orion_hp(gpu)->budget.open = true; /* so that the call is made */
    launches_meanwhile = 1;
    synchronise();
    CHECK(atomic_load(&gpu->busy->state) == ORION_BUSY);
    uint64_t since = atomic_load(&orion_hp(gpu)->busy_since_ns);
    CHECK(since != 0 && atomic_load(&gpu->record->busy_since_ns) == since);
    CHECK(atomic_load(&gpu->record->busy_periods) == 1 && atomic_load(&gpu->record->period[0].end_ns) <= since);
    synchronise();
    CHECK(atomic_load(&orion_hp(gpu)->busy_since_ns) == 0 && atomic_load(&gpu->record->busy_since_ns) == 0);
    CHECK(atomic_load(&gpu->record->busy_periods) == 2 && atomic_load(&gpu->record->period[1].begin_ns) == since);
    return 0;
}
