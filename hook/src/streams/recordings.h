/* What a later wait on an event proves: event -> the stream record that it was recorded on and how much had returned by then.
 *
 * One 64-bit word holds both (stream record index and the low 48 bits of the count), so a reader never pairs one recording's
 * stream record with another's count. Open-addressed, fixed, lock-free; an event that finds no place proves nothing, and the
 * drain thread proves its work instead. */
#ifndef ORION_RECORDINGS_H
#define ORION_RECORDINGS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"

#define ORION_RECORDINGS 8192u /* a power of two */

struct orion_recording_entry {
    _Atomic uint64_t event; /* 0: never used; 1: given up by a destroyed event */
    _Atomic uint64_t word;  /* stream record index + 1 in the top 16 bits, 0: nothing recorded */
};
struct orion_recordings { struct orion_recording_entry entry[ORION_RECORDINGS]; };
ORION_PART(recordings)

void orion_recordings_set(struct orion_recordings *recordings, CUevent event, uint32_t stream_record_index, uint64_t returned);
bool orion_recordings_get(struct orion_recordings *recordings, CUevent event, uint32_t *stream_record_index, uint64_t *returned);
void orion_recordings_forget(struct orion_recordings *recordings, CUevent event);

#endif
