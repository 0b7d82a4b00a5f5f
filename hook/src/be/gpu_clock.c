#include "be/gpu_clock.h"

#include "generated/driver.h"
#include "process/absence.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define RENEWED_NS ((int64_t)(8 * ORION_SECOND)) /* up to there a float of milliseconds has a precision of 1 us */
#define DRIFT_PART 5000u                         /* how much faster or slower than the CPU's clock the GPU's may be */

/* Returns whether the driver knows how much later `to` completed than `from`. */
static bool elapsed(CUevent from, CUevent to, int64_t *nanoseconds)
{
    float milliseconds = 0;
    enum orion_presence presence = orion_present_try(orion_the_process);
    if (presence == ORION_ABSENT) return false;
    CUresult result = orion_driver.cuEventElapsedTime(&milliseconds, from, to);
    orion_present_end(orion_the_process, presence);
    if (result != CUDA_SUCCESS) return false;
    if (!(milliseconds > -1e9f && milliseconds < 1e9f)) return false;
    *nanoseconds = (int64_t)((double)milliseconds * 1e6);
    return true;
}

static void renew(struct orion_gpu_clock *clock, const struct orion_stream_record *stream_record, CUevent *event, uint64_t at_ns)
{
    CUevent before = clock->base;
    if (before != NULL && clock->context != stream_record->context) {
        orion_driver.cuEventDestroy_v2(before);
        before = NULL;
    }
    *clock = (struct orion_gpu_clock){*event, stream_record->context, at_ns, clock->checked_ns};
    *event = before;
}

uint64_t orion_gpu_clock_end(struct orion_gpu_clock *clock, const struct orion_stream_record *stream_record, CUevent *event,
                             uint64_t launched_ns, uint64_t now_ns)
{
    int64_t since;
    bool known = clock->base != NULL && clock->context == stream_record->context && elapsed(clock->base, *event, &since);
    uint64_t passed = now_ns - clock->checked_ns;
    clock->checked_ns = now_ns;
    if (!known) {
        renew(clock, stream_record, event, now_ns);
        return now_ns;
    }
    /* The result is too late rather than too early, so that the next event that is found at once corrects it. */
    uint64_t at = clock->base_ns + (uint64_t)since + passed / DRIFT_PART;
    if (at > now_ns) at = now_ns;
    if (at < launched_ns) at = launched_ns;
    clock->base_ns = at - (uint64_t)since;
    if (since > RENEWED_NS || since < -RENEWED_NS) renew(clock, stream_record, event, at);
    return at;
}

bool orion_gpu_clock_read(const struct orion_gpu_clock *clock, const struct orion_stream_record *stream_record, CUevent event,
                          uint64_t *at_ns)
{
    int64_t since;
    if (event == NULL || clock->base == NULL || clock->context != stream_record->context) return false;
    if (!elapsed(clock->base, event, &since)) return false;
    *at_ns = clock->base_ns + (uint64_t)since;
    return true;
}

void orion_gpu_clock_forget(struct orion_gpu_clock *clock, CUcontext context, bool context_lives)
{
    if (clock->base == NULL || (context != NULL && clock->context != context)) return;
    if (context_lives) orion_driver.cuEventDestroy_v2(clock->base);
    clock->base = NULL;
}

void orion_gpu_clock_restart(struct orion_gpu_clock *clock)
{
    if (clock->base != NULL) orion_driver.cuEventDestroy_v2(clock->base);
    clock->base = NULL;
}
