#include "streams/capture.h"

#include <sched.h>

#include "generated/driver.h"
#include "process/process.h"
#include "streams/capture_origins.h"
#include "system/system.h"

#define TOUCH_SPINS 100000u /* a thread of the hook uses a context for about a microsecond, unless the driver holds it */

bool orion_capture_has(struct orion_stream_name stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstream handle = orion_stream_handle(stream);
    /* The legacy stream cannot be captured. A query of the legacy stream invalidates captures of streams that it
     * synchronises with. */
    if (handle == CU_STREAM_LEGACY) return false;
    if (orion_driver.cuStreamIsCapturing(handle, &status) != CUDA_SUCCESS) return true; /* unknown: do not touch it */
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct orion_relaxed orion_capture_relax(void)
{
    struct orion_relaxed relaxed = {CU_STREAM_CAPTURE_MODE_RELAXED, false};
    /* Unconditional: a capture may begin after a check of the count and before the call that would invalidate it. */
    relaxed.changed = orion_driver.cuThreadExchangeStreamCaptureMode(&relaxed.before) == CUDA_SUCCESS;
    return relaxed;
}

void orion_capture_unrelax(struct orion_relaxed *relaxed)
{
    if (relaxed->changed) orion_driver.cuThreadExchangeStreamCaptureMode(&relaxed->before);
}

bool orion_touch(struct orion_process *process)
{
    atomic_fetch_add(&process->touching, 1);
    if (atomic_load(&process->captures) == 0 && atomic_load(&process->untouchable) == 0) return true;
    atomic_fetch_sub(&process->touching, 1);
    return false;
}

void orion_touched(struct orion_process *process) { atomic_fetch_sub(&process->touching, 1); }

void orion_forbid_touch(struct orion_process *process)
{
    atomic_fetch_add(&process->untouchable, 1);
    for (uint32_t i = 0; atomic_load(&process->touching) && i < TOUCH_SPINS; i++) {
        if (i % 64 == 63) sched_yield();
        else orion_pause();
    }
}

void orion_allow_touch(struct orion_process *process) { atomic_fetch_sub(&process->untouchable, 1); }

/* The parker adds to `untouchable` before it sets `kept_open`, and takes both back in the opposite order. */
bool orion_contexts_end(const struct orion_process *process, int32_t exits)
{
    int32_t kept_open = atomic_load(&process->kept_open);
    return atomic_load(&process->untouchable) > kept_open + exits;
}

/* Counts captures even in an unmanaged process, because the process may join during a capture. */
void orion_capture_changing(void)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) orion_forbid_touch(process);
}

/* Whether this result of cuStreamEndCapture means that the capture continues or that there was none. */
static bool still_captures(CUresult result)
{
    return result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
           result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || result == CUDA_ERROR_INVALID_VALUE ||
           result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_NOT_INITIALIZED ||
           result == CUDA_ERROR_DEINITIALIZED;
}

void orion_capture_changed(enum orion_capture_change change, struct orion_stream_name stream, CUresult result)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    if (change == ORION_CAPTURE_BEGUN && result == CUDA_SUCCESS) orion_capture_origin_began(process, stream);
    if (change == ORION_CAPTURE_ENDED && !still_captures(result)) orion_capture_origin_ended(process, stream);
    orion_allow_touch(process);
}
