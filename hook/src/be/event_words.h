/* Event words: a stream that waits for an event of a held stream takes no time from hp, nor from the slot that has the turn.
 *
 * A stream that waits for a word (cuStreamWaitValue32) gives its time slice away. A stream that waits for an event does not: as
 * long as the event's stream is held, the waiting stream keeps its context on the GPU for whole time slices, and an hp there
 * takes nearly twice as long (measurements/probes/stream_wait.c). So before each event the hook puts the write of a number into
 * the event's stream, and before each wait for that event a wait for the number. The event follows at once.
 *
 * Each stream record has a word, and the numbers of a word only grow: they are given and put into the stream under a lock.
 * The wait for a number comes after its write was put into the other stream, so every wait ends. When a stream ends, its word is
 * not used until the last write has arrived; else a late write of the old stream would lower the word under a new one.
 * Programs without waits between streams pay nothing: the words begin with the first such wait.
 *
 * Rejected: one word for the whole process, because streams overtake one another. Waits for the valve's word before the
 * event, because the stream is past that wait when the valve closes. */
#ifndef ORION_EVENT_WORDS_H
#define ORION_EVENT_WORDS_H

#include <stdatomic.h>
#include <stdint.h>

#include "be/pinned_page.h"
#include "streams/stream_records.h"

struct orion_event_words {
    _Atomic uint32_t lock;         /* tried, never waited for; guards what follows but crossed and refused */
    _Atomic uint32_t crossed;      /* 1: some stream has waited for an event of another one */
    _Atomic uint32_t refused;      /* this device or driver does not support such waits */
    struct orion_pinned_page page; /* a word for each stream record */
    uint32_t last[ORION_STREAM_RECORDS];
    _Atomic uint32_t ended[ORION_STREAM_RECORDS]; /* 1: the stream of the last number has ended */
};
ORION_PART(event_words)

/* Called before an event is recorded. Returns the number that its stream writes before it; 0: none. */
uint32_t orion_event_word_write(struct orion_process *process, struct orion_stream_record *stream_record);

/* Called before a stream waits for an event that was recorded on `source`, behind that number. */
void orion_event_word_wait(struct orion_process *process, struct orion_stream_record *stream_record,
                           const struct orion_stream_record *source, uint32_t number);

/* The stream has ended; another stream may get its record. */
void orion_event_word_end(struct orion_process *process, const struct orion_stream_record *stream_record);

#endif
