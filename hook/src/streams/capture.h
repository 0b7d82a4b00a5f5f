/* Stream captures, and the calls of the hook that would invalidate them.
 *
 * The driver records work on a captured stream and does not run it. So the hook does not gate, time or count such work.
 * A capture spreads to other streams through event waits, so only the driver knows whether a stream is captured. The
 * hook asks the driver only while the process has a capture. The hook makes its own calls in relaxed capture mode: in
 * global mode an event query of another thread invalidates a capture (seen: error 900, and 901 at the end of the
 * capture). An event record for a whole context invalidates a capture in every mode, and an event in a captured stream is
 * never complete. So threads of the hook that find out when work is complete (hp/drain.h, be/in_flight.h) use no context
 * while a capture begins or is open, and none that is about to end (orion_touch). */
#ifndef ORION_CAPTURE_H
#define ORION_CAPTURE_H

#include <cuda.h>
#include <stdbool.h>

#include "process/process.h"
#include "streams/stream_name.h"

/* Between orion_capture_changing and orion_capture_changed no thread of the hook uses a context. A cuStreamEndCapture
 * that fails may still have ended the capture; orion_capture_changed derives this from `result`. */
void orion_capture_changing(void); /* before cuStreamBeginCapture*, cuStreamEndCapture */
enum orion_capture_change { ORION_CAPTURE_BEGUN, ORION_CAPTURE_ENDED };
void orion_capture_changed(enum orion_capture_change change, struct orion_stream_name stream, CUresult result);

/* Whether the stream is being captured. In a process without captures this costs one load. */
bool orion_capture_has(struct orion_stream_name stream);
static inline bool orion_capture_records(const struct orion_process *process, struct orion_stream_name stream)
{
    if (__builtin_expect(atomic_load_explicit(&process->captures, memory_order_acquire) == 0, 1)) return false;
    return orion_capture_has(stream);
}

/* The calling thread's capture mode becomes relaxed until orion_capture_unrelax. */
struct orion_relaxed {
    CUstreamCaptureMode before;
    bool changed;
};
struct orion_relaxed orion_capture_relax(void);
void orion_capture_unrelax(struct orion_relaxed *relaxed);

/* A thread calls these around its use of contexts for the hook. True: no capture begins and no context ends before orion_touched,
 * unless the driver holds the thread for long. False: it must not use a context now. */
bool orion_touch(struct orion_process *process);
void orion_touched(struct orion_process *process);

/* Called before and after a change during which no thread may use a context for the hook. orion_forbid_touch waits, for a
 * bounded time, until none does. */
void orion_forbid_touch(struct orion_process *process);
void orion_allow_touch(struct orion_process *process);

/* Whether no event may be used, as its context may be ending. exits: 1: not because the process exits (process.h). */
bool orion_contexts_end(const struct orion_process *process, int32_t exits);

#endif
