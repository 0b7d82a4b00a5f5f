/* An hp process that survives the loss of its context does not stay busy, and it reports the loss. Errors that say
 * nothing about its work do not end its busy period. */
#include "check.h"

#include "core/core.h"
#include "core/faults.h"
#include "fake_driver.h"
#include "hp/drain.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"
#include "system/system.h"

static void launch(struct orion_work *work, CUresult result)
{
    *work = (struct orion_work){.stream = {(CUstream)0x20, false}, .identity = 0x500};
    orion_work_begin(work);
    orion_work_end(work, result);
}

static bool is_busy(const struct orion_gpu *gpu) { return atomic_load(&gpu->busy->state) == ORION_BUSY; }

static void synchronise(CUresult result)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {(CUstream)0x20, false}};
    orion_proof_begin(&proof);
    orion_proof_end(&proof, result);
}

static _Atomic unsigned asked; /* how often the drain thread has asked since `answer` changed */
static _Atomic CUresult answer;
static CUresult CUDAAPI fake_use(CUcontext context)
{
    (void)context;
    atomic_fetch_add(&asked, 1);
    return atomic_load(&answer);
}

/* Lets the drain thread ask twice; after the second question the first one's answer has had its effect. */
static void ask(struct orion_gpu *gpu, CUresult result)
{
    atomic_store(&answer, result);
    atomic_store(&asked, 0);
    for (uint64_t end = orion_now() + 10 * ORION_SECOND; atomic_load(&asked) < 2 && orion_now() < end;) {
        if (atomic_load(&gpu->busy->state) != ORION_BUSY) return;
        orion_drain_request(gpu);
        orion_sleep_precisely(ORION_MILLISECOND);
    }
}

static void the_drain_thread_believes_only_what_proves(struct orion_gpu *gpu)
{
    struct orion_work work;
    orion_driver.cuCtxPushCurrent_v2 = fake_use;
    launch(&work, CUDA_SUCCESS);
    ask(gpu, CUDA_ERROR_INVALID_CONTEXT); /* a green context is current to another thread */
    CHECK(is_busy(gpu));
    ask(gpu, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(is_busy(gpu));
    ask(gpu, CUDA_SUCCESS);
    CHECK(!is_busy(gpu));
}

int main(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_HP);
    struct orion_work work;
    for (int error = 1; error < CUDA_ERROR_UNKNOWN; error++) CHECK(orion_outcome_of((CUresult)error) != ORION_OUTCOME_COMPLETE);
    CHECK(orion_outcome_of(CUDA_SUCCESS) == ORION_OUTCOME_COMPLETE);
    CHECK(orion_outcome_of(CUDA_ERROR_LAUNCH_FAILED) == ORION_OUTCOME_LOST);
    CHECK(orion_outcome_of(CUDA_ERROR_TENSOR_MEMORY_LEAK) == ORION_OUTCOME_LOST);
    CHECK(orion_outcome_of(CUDA_ERROR_NOT_READY) == ORION_OUTCOME_UNKNOWN);
    CHECK(orion_outcome_of(CUDA_ERROR_INVALID_CONTEXT) == ORION_OUTCOME_UNKNOWN);
    CHECK(orion_outcome_of(CUDA_ERROR_OUT_OF_MEMORY) == ORION_OUTCOME_UNKNOWN);

    launch(&work, CUDA_SUCCESS);
    CHECK(is_busy(gpu));
    synchronise(CUDA_ERROR_INVALID_HANDLE); /* this error does not show that hp's work has ended */
    CHECK(is_busy(gpu) && atomic_load(&gpu->record->fault) == 0);
    synchronise(CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(!is_busy(gpu));
    CHECK(atomic_load(&gpu->record->fault) == CUDA_ERROR_ILLEGAL_ADDRESS);

    launch(&work, CUDA_ERROR_LAUNCH_FAILED); /* every later call fails; the first error is the cause */
    CHECK(!is_busy(gpu));
    CHECK(atomic_load(&gpu->record->fault) == CUDA_ERROR_ILLEGAL_ADDRESS);
    the_drain_thread_believes_only_what_proves(gpu);
    puts("faults: ok");
    return 0;
}
