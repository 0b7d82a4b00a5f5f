/* Checkpoint and restore of this process, at its own request. Where a driver's behaviour is not documented, this one is
 * as strict as any that was reported: a restore that fails loses the process, and a lock stops the calls of every
 * thread, the locking one included.
 *
 * Not simulated: the checkpoint of another process, custom storage, other GPUs at a restore. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "allocation.h"
#include "checkpoint.h"
#include "client.h"
#include "clock.h"
#include "mps.h"
#pragma GCC visibility push(default)
#include "orion_sim.h"
#pragma GCC visibility pop

#define THREAD_ID UINT32_C(0x3fffffff) /* of a robust futex's word */

static _Atomic CUprocessState process = CU_PROCESS_STATE_RUNNING;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER; /* held by the one call that changes the state */
static atomic_bool imported;

void sim_checkpoint_imported(void) { atomic_store(&imported, true); }

bool sim_checkpoint_is_away(void) { return atomic_load(&process) == CU_PROCESS_STATE_CHECKPOINTED; }

void sim_checkpoint_read(void)
{
    if (sim_checkpoint_is_away()) raise(SIGSEGV);
}

static bool all_zero(const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size && !*at) at++, size--;
    return !size;
}

/* May this call be made for process `pid`, with these reserved bytes of its arguments (NULL: no arguments)? */
static CUresult check(int pid, const void *reserved, size_t size)
{
    SIM_TRY(sim_ready());
    SIM_REFUSE(pid <= 0 || (reserved && !all_zero(reserved, size)), CUDA_ERROR_INVALID_VALUE);
    return pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static void pass(uint64_t duration_ns)
{
    static _Atomic uint32_t never;
    uint64_t until = sim_now_ns() + duration_ns;
    while (duration_ns && sim_now_ns() < until) sim_sleep_until(until, &never, 0);
}

static uint64_t duration_of_all(uint64_t each_gib_ns)
{
    return (uint64_t)((unsigned __int128)sim_books_bytes() * each_gib_ns >> 30);
}

CUresult CUDAAPI cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    SIM_TRY(check(pid, NULL, 0));
    SIM_REFUSE(!state, CUDA_ERROR_INVALID_VALUE);
    *state = atomic_load(&process);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCheckpointProcessGetRestoreThreadId(int pid, int *thread)
{
    SIM_TRY(check(pid, NULL, 0));
    SIM_REFUSE(!thread, CUDA_ERROR_INVALID_VALUE);
    uint64_t client = sim_own_client_number();
    SIM_REFUSE(client == SIM_NEVER, CUDA_ERROR_NOT_INITIALIZED);
    *thread = (int)(atomic_load(&sim_machine->alive[client]) & THREAD_ID);
    return CUDA_SUCCESS;
}

static CUresult lock(uint64_t timeout_ns)
{
    SIM_REFUSE(atomic_load(&process) != CU_PROCESS_STATE_RUNNING, CUDA_ERROR_ILLEGAL_STATE);
    SIM_REFUSE(!sim_calls_stop(timeout_ns), CUDA_ERROR_NOT_READY);
    pass(sim_machine->parameters.lock_ns);
    atomic_store(&process, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

/* What this process has that no checkpoint can save. */
static CUresult refusal(void)
{
    CUresult injected = (CUresult)atomic_exchange(&sim_machine->fail_checkpoint, 0);
    SIM_REFUSE(injected, injected);
    SIM_REFUSE(sim_books_any_mig(), CUDA_ERROR_OUT_OF_MEMORY); /* as reported of NVIDIA's driver */
    SIM_REFUSE(sim_mps_client() || sim_allocation_unsaved(), CUDA_ERROR_NOT_SUPPORTED);
    return sim_books_any_lost() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

/* A refused process stays locked. Work that never ends keeps the call for ever, as in the driver. */
static CUresult checkpoint(void)
{
    SIM_REFUSE(atomic_load(&process) != CU_PROCESS_STATE_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
    SIM_TRY(refusal());
    sim_books_drain();
    pass(duration_of_all(sim_machine->parameters.out_ns));
    sim_books_leave();
    atomic_store(&process, CU_PROCESS_STATE_CHECKPOINTED);
    return CUDA_SUCCESS;
}

static CUresult come_back(void)
{
    CUresult injected = (CUresult)atomic_exchange(&sim_machine->fail_restore, 0);
    SIM_REFUSE(injected, injected);
    SIM_REFUSE(sim_books_any_lost(), CUDA_ERROR_UNKNOWN);
    SIM_REFUSE(atomic_load(&imported), CUDA_ERROR_OPERATING_SYSTEM);
    SIM_REFUSE(!sim_books_return(), CUDA_ERROR_OUT_OF_MEMORY);
    pass(duration_of_all(sim_machine->parameters.back_ns));
    return CUDA_SUCCESS;
}

/* As in driver 580, a restore that has failed cannot be tried again: its process can only be killed. */
static CUresult restore(void)
{
    SIM_REFUSE(atomic_load(&process) == CU_PROCESS_STATE_FAILED, CUDA_ERROR_OPERATING_SYSTEM);
    SIM_REFUSE(atomic_load(&process) != CU_PROCESS_STATE_CHECKPOINTED, CUDA_ERROR_ILLEGAL_STATE);
    CUresult result = come_back();
    atomic_store(&process, result ? CU_PROCESS_STATE_FAILED : CU_PROCESS_STATE_LOCKED);
    return result;
}

static CUresult unlock(void)
{
    SIM_REFUSE(atomic_load(&process) != CU_PROCESS_STATE_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
    atomic_store(&process, CU_PROCESS_STATE_RUNNING);
    sim_calls_continue();
    return CUDA_SUCCESS;
}

/* One call at a time changes the state. */
#define ALONE(result, call) \
    pthread_mutex_lock(&changing); \
    CUresult result = call; \
    pthread_mutex_unlock(&changing)

CUresult CUDAAPI cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    SIM_TRY(check(pid, args ? &args->reserved0 : NULL, sizeof *args - offsetof(CUcheckpointLockArgs, reserved0)));
    ALONE(result, lock(args ? args->timeoutMs * UINT64_C(1000000) : 0));
    return result;
}

CUresult CUDAAPI cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    SIM_TRY(check(pid, args ? args->reserved : NULL, sizeof args->reserved));
    SIM_REFUSE(args && args->customStorageInfo_out, CUDA_ERROR_NOT_SUPPORTED);
    ALONE(result, checkpoint());
    return result;
}

/* The pairs of GPUs must keep every GPU as it is. */
static bool same_gpus(const CUcheckpointRestoreArgs *args)
{
    for (unsigned i = 0; i < args->gpuPairsCount; i++)
        if (memcmp(&args->gpuPairs[i].oldUuid, &args->gpuPairs[i].newUuid, sizeof(CUuuid))) return false;
    return true;
}

CUresult CUDAAPI cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    SIM_TRY(check(pid, args ? args->reserved : NULL, sizeof args->reserved));
    SIM_REFUSE(args && args->gpuPairsCount && !args->gpuPairs, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(args && (args->customStorageInfo_out || !same_gpus(args)), CUDA_ERROR_NOT_SUPPORTED);
    ALONE(result, restore());
    return result;
}

CUresult CUDAAPI cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    SIM_TRY(check(pid, args, sizeof *args));
    ALONE(result, unlock());
    return result;
}

int orion_sim_fail_checkpoint(uint32_t result)
{
    if (!sim_open()) return -1;
    atomic_store(&sim_machine->fail_checkpoint, result);
    return 0;
}

int orion_sim_fail_restore(uint32_t result)
{
    if (!sim_open()) return -1;
    atomic_store(&sim_machine->fail_restore, result);
    return 0;
}
