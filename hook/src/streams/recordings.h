/* What the hook knows when the program has waited for an event: which work is complete. For each recorded event the
 * table keeps the stream record that the event was recorded on, and that stream record's `returned` count at that time
 * (stream_records.h).
 *
 * One 64-bit word contains both: the index of the stream record and the low 48 bits of the count. So a reader never
 * combines the stream record of one recording with the count of another. The table is open-addressed, has a fixed size,
 * and needs no lock. A second word has the stream record again, with the number that its stream writes before the event
 * (be/event_words.h). If no entry is free for an event, a wait on this event proves nothing; the drain thread later
 * finds out that the work is complete. */
#ifndef ORION_RECORDINGS_H
#define ORION_RECORDINGS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"

#define ORION_RECORDINGS 8192u /* a power of two */

struct orion_recording_entry {
    _Atomic uint64_t event;         /* 0: never used; 1: free again, because its event has ended */
    _Atomic uint64_t word;          /* stream record index + 1 in the top 16 bits, 0: nothing recorded */
    _Atomic uint64_t behind;        /* stream record index in the high half, the number in the low half; 0: none */
    _Atomic uint32_t waits;         /* as in orion_recorded */
    _Atomic uint32_t context_epoch; /* this and the next one as in orion_recorded: the event ends with its context */
    _Atomic(CUcontext) context;
};
struct orion_recordings { struct orion_recording_entry entry[ORION_RECORDINGS]; };
ORION_PART(recordings)

struct orion_recorded {
    uint32_t stream_record; /* its index */
    uint32_t waits;         /* so many waits of that stream are before the event: see be/driver_order.h */
    uint64_t returned;      /* that stream record's count */
    CUcontext context;      /* the event's; NULL: not known. orion_recordings_get leaves it and what follows out */
    uint32_t context_epoch; /* process->context_epoch */
};
/* `number`: what the stream writes before the event; 0: nothing. */
void orion_recordings_set(struct orion_recordings *recordings, CUevent event, const struct orion_recorded *recorded,
                          uint32_t number);
bool orion_recordings_get(struct orion_recordings *recordings, CUevent event, struct orion_recorded *recorded);

/* The stream record of an event, and the number. *number is 0 if there is none. */
bool orion_recordings_behind(struct orion_recordings *recordings, CUevent event, uint32_t *stream_record_index, uint32_t *number);
void orion_recordings_forget(struct orion_recordings *recordings, CUevent event); /* before it is recorded again */
void orion_recordings_end(struct orion_recordings *recordings, CUevent event);    /* before it is destroyed */
/* When a context ends: its events end without a call that names them. A wait on an event that was recorded before proves nothing. What
 * else may record an event stays known, because the event may be of another context. */
void orion_recordings_clear(struct orion_recordings *recordings);
/* Once a context has ended: makes the entries of its events free. One that was set after that call began, at `epoch`, may be of a new
 * context with the same handle. */
void orion_recordings_end_in(struct orion_recordings *recordings, CUcontext context, uint32_t epoch);

/* From now on something else may record the event behind work that the table does not know: a node of a graph, a whole context, a
 * launch. So a wait on the event proves nothing until it is destroyed. */
void orion_recordings_elsewhere(struct orion_recordings *recordings, CUevent event);

#endif
