/* Quiet: calls of the driver that wait for all earlier work of their context.
 *
 * The driver waits so where it loads code, and where it gives kernels more local memory. While it waits, it keeps the context
 * on the GPU for whole time slices. If a stream of the context is behind the closed valve, this lasts until the valve opens, and
 * hp's requests take nearly twice as long (seen on an H200: 7.9 ms instead of 4.0; measurements/probes/blocked_calls.c).
 * Programs load code when they start, and often later: for shapes that are new to a library.
 *
 * So such a call first waits until no work in flight can be held. From then on, until the call has returned, launches of other
 * threads are held on the CPU and not behind the valve. A kernel's first launch is such a call, too: the driver loads code lazily
 * (admission.c).
 *
 * The wait ends after the time that all work in flight can take, not counting the time for which the valve is closed: work in
 * flight may itself depend on what this thread does next. Other threads may always have work in flight. */
#ifndef ORION_QUIET_H
#define ORION_QUIET_H

#include <stdbool.h>

struct orion_gpu;
struct orion_process;
struct orion_stream_record;

/* Around the driver's call. gpu: that of the current context, if its work may be held; else NULL. */
struct orion_quiet { struct orion_gpu *gpu; };
void orion_quiet_begin(struct orion_quiet *quiet);
void orion_quiet_end(const struct orion_quiet *quiet);

/* Whether be's work on the GPU may be held behind the valve, so that such a call must wait. */
bool orion_quiet_matters(const struct orion_process *process, const struct orion_gpu *gpu);
/* Whether a thread is in such a call, or waits for one. */
bool orion_quiet_is_wanted(const struct orion_gpu *gpu);
/* The wait, for a caller that knows that it matters. */
void orion_quiet_wait(struct orion_process *process, struct orion_stream_record *stream_record);

#endif
