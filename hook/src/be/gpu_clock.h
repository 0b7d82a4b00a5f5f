/* When events completed on the GPU, in CLOCK_MONOTONIC.
 *
 * The driver says only how much time passed between two events, as a float of milliseconds. So an earlier event is kept, the
 * base, together with the time at which it completed. Every some seconds the newest event becomes the base, because a float
 * would lose precision. No event is recorded for this.
 *
 * The time of the first base is the time at which the hook found it complete, which may be a millisecond too late. Every later
 * event that is found complete before its supposed time corrects this. */
#ifndef ORION_GPU_CLOCK_H
#define ORION_GPU_CLOCK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_stream_record;

struct orion_gpu_clock {
    CUevent base; /* of the context, with which it ends; NULL: none */
    CUcontext context;
    uint64_t base_ns, checked_ns;
};

/* Returns when *event completed, an event of the stream record that the hook has just found complete. The event may become
 * the base; then *event is another one, or NULL. launched_ns: the event cannot have completed before. */
uint64_t orion_gpu_clock_end(struct orion_gpu_clock *clock, const struct orion_stream_record *stream_record, CUevent *event,
                             uint64_t launched_ns, uint64_t now_ns);

/* Sets when another complete event completed. False: it cannot be known. */
bool orion_gpu_clock_read(const struct orion_gpu_clock *clock, const struct orion_stream_record *stream_record, CUevent event,
                          uint64_t *at_ns);

/* Called when the GPU's own time may have jumped: the next event becomes the base. */
void orion_gpu_clock_restart(struct orion_gpu_clock *clock);

/* Called when a context's events end; NULL: those of all contexts. */
void orion_gpu_clock_forget(struct orion_gpu_clock *clock, CUcontext context, bool context_lives);

#endif
