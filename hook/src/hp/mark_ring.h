/* The ring of marks: events behind parts of hp's queued work, so that hp's progress is visible while the GPU works off a
 * long queue (marks.h). This file chooses entries and distances. It makes no driver call.
 *
 * An entry is FREE, OWNED or PENDING. A thread that wants to use an entry sets OWNED with a compare-and-exchange
 * (acquire), and FREE or PENDING when it is done (release). Only the owner reads or writes the other members. No thread
 * waits for an owner: it skips the entry. So a launch never waits here, and a thread that never returns costs one
 * entry.
 *
 * If no entry is left, every second pending mark is dropped, and the distance between marks doubles. So the marks that
 * remain are spread over the whole queue, however long it is: evenly in each stream if the streams are few.
 *
 * The distance (stride) is a number of launches. The durations of hp's launches are unknown, so the distance follows
 * what the marks show: it grows to ORION_MARK_STRIDE while a whole round of the ring takes a small part of the policy's
 * stall time, and shrinks when one gap between completions is a large part of it. */
#ifndef ORION_MARK_RING_H
#define ORION_MARK_RING_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "streams/stream_records.h"

#define ORION_MARKS 64u
#define ORION_MARK_STRIDE 16u /* launches; an event costs 4 % of a launch, and so 0.3 % at this distance */

enum orion_mark_state { ORION_MARK_FREE = 0, ORION_MARK_OWNED = 1, ORION_MARK_PENDING = 2 };

struct orion_mark {
    _Atomic uint32_t state;
    uint32_t ended; /* the ring's `ended` when the event was made; if the ring's is another, the event may be gone */
    CUevent event;  /* kept while the mark is FREE, because a creation costs more than a recording; NULL: none */
    CUcontext context;
    struct orion_stream_record *stream_record;
    uint64_t returned; /* the stream record's `returned` before the event was recorded: what the event proves */
    uint64_t recorded_ns;
};

struct orion_mark_ring {
    _Atomic uint32_t next;         /* where the next search for an entry begins */
    _Atomic uint32_t stride;       /* a power of two; 0: 1 */
    _Atomic uint64_t completed_ns; /* when a thread last found a mark complete */
    _Atomic uint32_t ended;        /* grows when a context ends */
    struct orion_mark mark[ORION_MARKS];
};

/* The number of launches between two marks of a stream. */
uint32_t orion_mark_ring_stride(const struct orion_mark_ring *ring);

/* Returns an entry that the caller now owns; NULL: none is left. */
struct orion_mark *orion_mark_ring_take(struct orion_mark_ring *ring, uint64_t now, uint64_t stall_ns);

/* Makes the calling thread the owner of this pending mark. False: it is not pending. */
bool orion_mark_own(struct orion_mark *mark);
void orion_mark_give(struct orion_mark *mark, enum orion_mark_state state);

/* Whether the marked work is complete, as some other call has proved. Only the owner may call this. */
bool orion_mark_is_proven(const struct orion_mark *mark);

/* A mark that was recorded at `recorded_ns` was found complete. */
void orion_mark_ring_completed(struct orion_mark_ring *ring, uint64_t recorded_ns, uint64_t now, uint64_t stall_ns);

/* A stream's queue has been worked off: what was dropped for its sake no longer limits the next queue. */
void orion_mark_ring_relax(struct orion_mark_ring *ring);

#endif
