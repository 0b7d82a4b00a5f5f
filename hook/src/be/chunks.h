/* Chunks: a be stream record's work in flight, as far as events tell it apart, and the samples that durations are learnt from.
 *
 * Launches of a stream are gathered into chunks of about an eighth of the window, an event behind each, because an event a
 * launch costs more than the rest of the hook together. Some launches are wrapped into two timed events to learn how long
 * their identity takes. All of it is guarded by the GPU's ledger. */
#ifndef ORION_CHUNKS_H
#define ORION_CHUNKS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define ORION_CHUNKS 16u /* chunks of a stream record whose end is awaited; more are merged into the open one */

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

struct orion_chunk {
    CUevent end;                    /* plain, cheap; created at first use and used again and again */
    CUevent timed_start, timed_end; /* around the one launch that is timed; timed_end is the chunk's end then */
    uint64_t cost_ns;
    uint64_t begun_ns; /* when its first launch was handed to the driver */
    uint64_t identity; /* of the timed launch; 0: none is */
};

struct orion_chunks {
    uint32_t first, count;           /* ring of chunks awaiting their end */
    uint64_t open_ns, open_since_ns; /* launches behind the last event: their cost, the first one's time */
    bool sampling;                   /* a timed launch is under way, in the slot behind the last chunk */
    struct orion_chunk ring[ORION_CHUNKS];
};

/* The ledger: a GPU's book-keeping is short, and a thread that cannot have it (a signal handler above the holder) does
 * without. False: not had. */
bool orion_ledger_take(struct orion_gpu *gpu);
void orion_ledger_give(struct orion_gpu *gpu);

/* Takes that much off the work in flight. */
void orion_ledger_take_off(struct orion_gpu *gpu, uint64_t cost_ns);

/* With the ledger taken, around driver calls under relaxed capture mode: */
void orion_chunks_close(struct orion_process *process,
                        struct orion_stream_record *stream_record); /* an event behind the open chunk */
unsigned orion_chunks_reap(struct orion_process *process,
                           struct orion_stream_record *stream_record);                   /* retires what has completed: how many */
void orion_chunks_drop(struct orion_stream_record *stream_record);                       /* as if all of it had completed */
void orion_chunks_forget(struct orion_stream_record *stream_record, bool context_lives); /* and its events too */

/* Around a launch that is timed. False from the former: another one of the stream record is, or there is no room; from the latter:
 * it was forgotten meanwhile. */
bool orion_chunks_sample(struct orion_stream_record *stream_record, uint64_t identity);
bool orion_chunks_sampled(struct orion_stream_record *stream_record);

#endif
