/* Marks: how be sees that hp works while nothing of hp's queue has been waited for.
 *
 * The drain thread's event (drain.h) lies behind everything that was queued before it. A program may queue seconds of
 * work in a millisecond. Until all of it is complete this event shows nothing, and be gives up on an hp client that
 * completes nothing for the policy's stall time (be/gate.h). An event cannot be placed into the middle of a queue later.
 * So launching threads record events between their launches, and the drain thread queries them while it waits.
 *
 * A launch compares one word of its stream record. At most every ORION_MARK_STRIDE launches it looks further, and
 * records an event only if the GPU has be clients and nothing has proved its stream's work meanwhile. So programs that
 * run alone or often wait for their work pay next to nothing. A graph counts as ORION_MARK_STRIDE launches: it may take
 * as long as a thousand kernels.
 *
 * No mark is made while a capture is open or a context ends (orion_touch), on an overflow stream record, on a stream of
 * a green context, or if the stream's context is not current. Then progress is as visible as the drain thread's event
 * makes it. A mark whose event fails is dropped: it proves nothing, and later marks take its place. */
#ifndef ORION_MARKS_H
#define ORION_MARKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hp/mark_ring.h"
#include "process/process.h"
#include "streams/stream_records.h"

struct orion_marks { _Alignas(128) struct orion_mark_ring ring[ORION_GPUS]; };
ORION_PART(marks)

/* Whether orion_marks_launched must be called after a call that submitted work and has been counted as returned. */
static inline bool orion_marks_due(const struct orion_stream_record *stream_record, bool graph)
{
    return graph || atomic_load_explicit(&stream_record->returned, memory_order_relaxed) >=
                        atomic_load_explicit(&stream_record->mark_at, memory_order_relaxed);
}
void orion_marks_launched(struct orion_process *process, struct orion_stream_record *stream_record, bool graph);

/* Proves the work of complete marks. Called by the GPU's drain thread. Returns the number of marks that are not complete. */
uint32_t orion_marks_look(struct orion_process *process, struct orion_gpu *gpu);
uint64_t orion_marks_every(const struct orion_gpu *gpu); /* how often it must be called while hp works, in nanoseconds */

/* Destroys the events of a context (NULL: of all contexts) on a GPU before it ends. Threads must be kept from using
 * contexts meanwhile (orion_forbid_touch). If a thread owns a mark nevertheless, because its driver call blocks, the next
 * owner forgets the mark's event. */
void orion_marks_end(struct orion_process *process, const struct orion_gpu *gpu, CUcontext context);

#endif
