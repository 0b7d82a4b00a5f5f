/* An hp process that survives the loss of its context does not stay busy, and it reports the loss. */
#include "check.h"

#include "core/core.h"
#include "core/faults.h"
#include "fake_driver.h"
#include "streams/stream_records.h"

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

int main(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_HP);
    struct orion_work work;
    CHECK(!orion_fault_is_final(CUDA_SUCCESS) && !orion_fault_is_final(CUDA_ERROR_NOT_READY));
    CHECK(!orion_fault_is_final(CUDA_ERROR_OUT_OF_MEMORY) && !orion_fault_is_final(CUDA_ERROR_INVALID_VALUE));

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
    puts("faults: ok");
    return 0;
}
