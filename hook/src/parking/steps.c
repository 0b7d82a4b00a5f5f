#include "parking/steps.h"

#include <unistd.h>

#include "be/chunks.h"
#include "be/state.h"
#include "be/stop.h"
#include "be/window.h"
#include "generated/driver.h"
#include "memory/memory.h"
#include "process/absence.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/capture.h"
#include "system/system.h"

#define LET_RUN_NS (200 * ORION_MILLISECOND) /* for so long queued work ends only while hp is idle */
#define DRAIN_MOST_NS (5 * ORION_SECOND)     /* work that takes longer is not waited for */
#define LOCK_MOST_MS 5000u
#define CALLS_MOST_NS ORION_SECOND /* what such a call waits for has ended */
#define STEP_NS ORION_MILLISECOND
#define LEDGER_TRIES 100u

static struct orion_parking_outcome went(enum orion_parking_reason reason, CUresult result)
{
    return (struct orion_parking_outcome){result == CUDA_SUCCESS ? ORION_PARKING_REASON_NONE : reason, result};
}

static bool driver_can(void)
{
    return orion_driver.cuCheckpointProcessLock != NULL && orion_driver.cuCheckpointProcessCheckpoint != NULL &&
           orion_driver.cuCheckpointProcessRestore != NULL && orion_driver.cuCheckpointProcessUnlock != NULL &&
           orion_driver.cuCheckpointProcessGetState != NULL;
}

enum orion_parking_reason orion_parking_refusal(struct orion_process *process)
{
    if (!driver_can()) return ORION_PARKING_REASON_NO_DRIVER;
    if (orion_process_has_scheduler(process)) return ORION_PARKING_REASON_TOGETHER;
    ORION_EACH_GPU(gpu, process) {
        if (atomic_load(&gpu->role) == ORION_ROLE_HP) return ORION_PARKING_REASON_IS_HP;
        if (atomic_load(&gpu->role) == ORION_ROLE_NONE || !orion_gpu_grant(gpu)->parks) return ORION_PARKING_REASON_SLOTS;
        if (orion_runs_together(gpu)) return ORION_PARKING_REASON_TOGETHER;
    }
    if (orion_memory_is_managed(process)) return ORION_PARKING_REASON_MANAGED;
    if (orion_memory_is_on_host(process)) return ORION_PARKING_REASON_HOST;
    return orion_memory_is_shared(process) ? ORION_PARKING_REASON_IMPORTED : ORION_PARKING_REASON_NONE;
}

/* -- Leaving --------------------------------------------------------------------------------------------------------- */

static bool has_work(struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        if (atomic_load(&orion_be(gpu)->in_flight_ns) > 0) return true;
    return false;
}

static void reap(struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process) orion_window_reap(process, gpu);
}

static bool is_capturing(struct orion_process *process) { return atomic_load(&process->captures) > 0; }

/* Waits until nothing is in flight, and no capture is open: what a capture records is not stopped, so it ends soon. Returns false at
 * `until`, or if the agent has changed its mind. Makes driver calls only if `asks`: while a stop holds work, a call of the program may
 * hold the driver's locks. */
static bool drains(struct orion_process *process, uint64_t until, bool asks, bool (*stops)(struct orion_process *))
{
    for (bool works; (works = has_work(process)) || is_capturing(process);) {
        if (stops(process) || orion_now() >= until) return false;
        if (asks && works) reap(process);
        orion_sleep_precisely(STEP_NS);
    }
    return true;
}

static struct orion_parking_outcome lock(struct orion_process *process, bool (*stops)(struct orion_process *))
{
    CUcheckpointLockArgs most = {.timeoutMs = LOCK_MOST_MS};
    CUresult result = orion_driver.cuCheckpointProcessLock((int)getpid(), &most);
    if (result != CUDA_SUCCESS) return went(ORION_PARKING_REASON_LOCK, result);
    /* Now no call of the program runs. A capture that began just before is still open, and memory may have become shared. */
    enum orion_parking_reason reason = is_capturing(process) ? ORION_PARKING_REASON_CAPTURING : orion_parking_refusal(process);
    if (stops(process)) reason = ORION_PARKING_REASON_BUSY;
    if (reason != ORION_PARKING_REASON_NONE) orion_driver.cuCheckpointProcessUnlock((int)getpid(), NULL);
    return (struct orion_parking_outcome){reason, CUDA_SUCCESS};
}

static struct orion_parking_outcome copy_out(struct orion_process *process, bool (*stops)(struct orion_process *))
{
    struct orion_parking_outcome outcome = lock(process, stops);
    if (outcome.reason != ORION_PARKING_REASON_NONE) return outcome;
    outcome = went(ORION_PARKING_REASON_CHECKPOINT, orion_driver.cuCheckpointProcessCheckpoint((int)getpid(), NULL));
    if (outcome.reason != ORION_PARKING_REASON_NONE) orion_driver.cuCheckpointProcessUnlock((int)getpid(), NULL);
    return outcome;
}

/* While nobody may touch contexts, no stop closes: what is queued can end. The stops stay open until the process is back. */
static void open_stops(struct orion_process *process)
{
    orion_forbid_touch(process);
    atomic_store(&process->kept_open, 1);
    orion_stops_open(process);
}

/* The process is on the GPU. */
static void go_on(struct orion_process *process)
{
    orion_absence_end(process);
    if (atomic_exchange(&process->kept_open, 0)) orion_allow_touch(process);
}

struct orion_parking_outcome orion_parking_leave(struct orion_process *process, bool (*stops)(struct orion_process *),
                                                 bool *stopped)
{
    struct orion_parking_outcome outcome = {ORION_PARKING_REASON_BUSY, CUDA_SUCCESS};
    drains(process, orion_now() + LET_RUN_NS, false, stops);
    *stopped = stops(process);
    if (*stopped) return outcome;
    open_stops(process);
    if (drains(process, orion_now() + DRAIN_MOST_NS, true, stops)) {
        bool is_absent = orion_absence_begin(process, orion_now() + CALLS_MOST_NS);
        if (!is_absent) outcome.reason = ORION_PARKING_REASON_LOCK;
        else if (!stops(process)) outcome = copy_out(process, stops);
    } else if (is_capturing(process) && !stops(process)) {
        outcome.reason = ORION_PARKING_REASON_CAPTURING;
    }
    if (outcome.reason != ORION_PARKING_REASON_NONE) go_on(process);
    *stopped = outcome.reason == ORION_PARKING_REASON_BUSY && stops(process);
    return outcome;
}

/* -- Coming back ----------------------------------------------------------------------------------------------------- */

/* The GPU's clock may have jumped, so no event of before says when one of now completed. */
static void restart_clocks(struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        for (uint32_t tries = 0; tries < LEDGER_TRIES; tries++) {
            if (!orion_ledger_try_lock(gpu)) continue; /* it has waited for a while */
            orion_gpu_clock_restart(&orion_be(gpu)->clock);
            orion_ledger_unlock(gpu);
            break;
        }
}

struct orion_parking_outcome orion_parking_return(struct orion_process *process)
{
    struct orion_parking_outcome outcome =
        went(ORION_PARKING_REASON_RESTORE, orion_driver.cuCheckpointProcessRestore((int)getpid(), NULL));
    if (outcome.reason == ORION_PARKING_REASON_NONE)
        outcome = went(ORION_PARKING_REASON_RESTORE, orion_driver.cuCheckpointProcessUnlock((int)getpid(), NULL));
    if (outcome.reason == ORION_PARKING_REASON_NONE) restart_clocks(process);
    go_on(process);
    return outcome;
}

bool orion_parking_is_away(struct orion_process *process)
{
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    if (driver_can()) orion_driver.cuCheckpointProcessGetState((int)getpid(), &state); /* if it fails, nothing has happened */
    if (state == CU_PROCESS_STATE_CHECKPOINTED) return true;
    if (state == CU_PROCESS_STATE_LOCKED) orion_driver.cuCheckpointProcessUnlock((int)getpid(), NULL);
    go_on(process);
    return false;
}
