/* Ends of streams and contexts with be's work.
 *
 * A program may destroy a stream while work is queued in it. The driver completes the work all the same, so it stays in flight:
 * the valve's watcher must see it, the window must bound it, and its GPU time counts. So the hook puts a last event behind the
 * work before the stream ends. Until that event is complete, the stream record is ORION_STREAM_RECORD_ENDING, and no other
 * stream gets it. Events outlive their stream, but not their context.
 *
 * If the valve may hold the work, the hook destroys the stream only when the work is complete. Else hp's requests take half as long
 * again: the driver keeps the context on the GPU for a whole time slice, although nothing of it runs (seen on an H200: 6.4 ms instead
 * of 4.2, measurements/probes/ends.c; why is not known). */
#ifndef ORION_ENDS_H
#define ORION_ENDS_H

#include <cuda.h>
#include <stdbool.h>

struct orion_gpu;
struct orion_process;
struct orion_stream_record;

/* CAPTURED: the stream is being captured, so an event in it proves nothing. OF_ENDED_THREAD: a thread's own stream, which no call can
 * name any more. Its work without an event stays in flight until it is proven, or complete by its expected time (window.c). */
enum orion_stream_end { ORION_STREAM_DESTROYED, ORION_STREAM_CAPTURED, ORION_STREAM_OF_ENDED_THREAD };

/* Called before the stream record's stream is destroyed, or once its thread has ended. True: the hook keeps the stream, and destroys
 * it later. */
bool orion_ends_stream(struct orion_process *process, struct orion_stream_record *stream_record, enum orion_stream_end end);

/* Frees the record of a destroyed stream if its work is complete. The caller holds the ledger and is in relaxed capture mode. */
void orion_ends_free(struct orion_stream_record *stream_record);

/* Called when the stream record's context ends, or when nothing may use its events any more. Its work counts as complete. */
void orion_ends_forget(struct orion_stream_record *stream_record, bool context_lives);

/* Called when a context ends (NULL: any of the GPU), for the events that are of no stream record. */
void orion_ends_context(struct orion_gpu *gpu, CUcontext context, bool context_lives);

#endif
