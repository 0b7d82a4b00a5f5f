/* Stream captures: what the hook must not do to them.
 *
 * Work on a stream that is being captured is recorded, not run: it is neither gated, timed nor counted. Whether a stream
 * is captured is asked of the driver (a capture spreads through event waits), but only while the process has a capture
 * at all. The hook's own calls run in relaxed mode: in global mode another thread's event query spoils a capture
 * (seen: 900, and 901 at its end). A context-wide record spoils it in every mode, so the drain thread touches no context
 * while a capture lives or begins, and none that is about to end (orion_touch). */
#ifndef ORION_CAPTURE_H
#define ORION_CAPTURE_H

#include <cuda.h>
#include <stdbool.h>

#include "streams/stream_name.h"

struct orion_process;

/* Between changing and changed no thread of the hook touches a context (a record would spoil a capture). An EndCapture that
 * fails with a status other than an unbegun capture has ended it too: this file sorts that out. */
void orion_capture_changing(void); /* before cuStreamBeginCapture*, cuStreamEndCapture */
enum orion_capture_change { ORION_CAPTURE_BEGUN, ORION_CAPTURE_ENDED };
void orion_capture_changed(enum orion_capture_change change, CUresult result);

bool orion_capture_records(struct orion_process *process, struct orion_stream_name stream);

/* A stream that is destroyed while it captures ends its capture. */
void orion_capture_stream_ending(struct orion_process *process, struct orion_stream_name stream);

struct orion_relaxed {
    CUstreamCaptureMode before;
    bool changed;
};
struct orion_relaxed orion_capture_relax(void);
void orion_capture_unrelax(struct orion_relaxed *relaxed);

/* For the drain thread. True: until orion_touched no capture begins and no context ends. */
bool orion_touch(struct orion_process *process);
void orion_touched(struct orion_process *process);

/* Around a change that the drain thread must not fall into: waits, boundedly, until it has let go. */
void orion_forbid_touch(struct orion_process *process);
void orion_allow_touch(struct orion_process *process);

#endif
