/* hp's thread does not sleep for long if a whole busy period passes while it prepares to: whoever ended the period took it for awake.
 * Here the period passes each time, right after the thread has found hp idle. */
#include "check.h"
#include "fake_driver.h"

#include "core/core.h"
#include "hp/busy.h"
#include "system/system.h"

static uint64_t slept_ns;
static bool works_meanwhile;

static void work(void)
{
    struct orion_work work = {.stream = {(CUstream)0x5000, false}, .identity = 1};
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {(CUstream)0x5000, false}};
    orion_work_begin(&work);
    orion_work_end(&work, CUDA_SUCCESS);
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static uint64_t poll_and_work(struct orion_process *process, struct orion_gpu *gpu, uint64_t now)
{
    uint64_t next = orion_busy_poll(process, gpu, now);
    if (works_meanwhile) work();
    return next;
}

static void note_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t most_ns, bool shared)
{
    (void)word, (void)value, (void)shared;
    slept_ns = most_ns;
}

#define orion_busy_poll poll_and_work
#define orion_futex_wait note_sleep
#include "agent/thread.c"

int main(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_HP);
    work(); /* LINGER: the poll ends it */
    atomic_store(&gpu->busy->drained_ns, 1);
    works_meanwhile = true;
    sleep_as_hp(orion_process_started(), gpu, UINT64_MAX);
    CHECK(atomic_load(&gpu->busy->state) == ORION_LINGER && slept_ns == 0);
    works_meanwhile = false;
    atomic_store(&gpu->busy->drained_ns, 1);
    sleep_as_hp(orion_process_started(), gpu, UINT64_MAX);
    CHECK(atomic_load(&gpu->busy->state) == ORION_IDLE && slept_ns == HP_SOCKET_POLL_NS);
    return 0;
}
