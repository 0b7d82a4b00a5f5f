/* Chunks are the parts of a be stream's work in flight; an event ends each chunk. Samples are timed launches, from
 * which the hook learns durations.
 *
 * The hook collects a stream's launches into chunks of about an eighth of the window, and puts an event behind each
 * chunk. When the event is complete, the chunk's work is complete. An event behind each launch would cost more than all
 * other work of the hook. The launches since the last event form the open chunk. The hook encloses some launches in two
 * timed events. The measured duration serves all launches that are alike, that is, have the same identity
 * (learning/identity.h). A lock for each GPU, the ledger, guards all chunks and samples.
 *
 * The events also measure the client's GPU time (usage.h): a chunk counts from the end of the chunk before it, or from its
 * launch if the stream was idle, to its own end. Where the stream waits for a stop, a chunk ends before the wait. The next
 * one begins behind it if the valve was closed when the wait was put there, or if the slots have turns. A chunk with a wait
 * inside, or whose stream may have been idle inside, counts no longer than expected. Nor does one whose work ran beside hp: on a
 * part of the SMs it took longer, and the expected time is that of the whole GPU. */
#ifndef ORION_CHUNKS_H
#define ORION_CHUNKS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* The most chunks of one stream record that have an event and are not complete. If there are that many, further
 * launches stay in the open chunk. More than ORION_RUN_AHEAD, so that with turns few chunks have a wait inside. */
#define ORION_CHUNKS 40u

/* While the program runs ahead behind an open valve and has no turns, a chunk has this many shares of the window: an event
 * costs the GPU about half as much as a wait. With turns it has one, so that the end of the work in flight is known sooner. */
#define ORION_CHUNK_SHARES 4u

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

/* The event at which the first work of a chunk may have begun. */
enum orion_chunk_begin { ORION_CHUNK_BEGIN_UNKNOWN, ORION_CHUNK_BEGIN_WAITED, ORION_CHUNK_BEGIN_TIMED };

/* Whether the stream may have done nothing between the begin and the end of a chunk. WAITS: if the valve was closed. BESIDE: its
 * work had a part of the SMs only. */
enum orion_chunk_pause { ORION_CHUNK_NO_PAUSE, ORION_CHUNK_WAITS, ORION_CHUNK_PAUSES, ORION_CHUNK_BESIDE };

/* What is known of a chunk's time on the GPU. */
struct orion_chunk_bounds {
    uint8_t begin, pause;
    uint8_t returned_ms;  /* so long after begun_ns at most the timed launch had returned; UINT8_MAX: unknown */
    bool awaits_program;  /* it may wait for what the program does next: in_flight.h */
    uint32_t valve_epoch; /* WAITS: the valve's epoch at the first wait */
};

struct orion_chunk {
    CUevent end;         /* created at first use and reused, as the others */
    CUevent waited;      /* behind a wait before the chunk */
    CUevent timed_start; /* before the one launch that is timed; the chunk then ends behind this launch */
    uint64_t cost_ns;
    uint64_t begun_ns; /* when its first launch was passed to the driver */
    uint64_t identity; /* of the timed launch; 0: no launch is timed */
    uint64_t returned; /* the stream record's `returned` before the end was recorded: what the end proves */
    struct orion_chunk_bounds bounds;
};

struct orion_chunks {
    uint32_t first, count;           /* the ring: chunks that have an event and are not complete */
    uint64_t open_ns, open_since_ns; /* the launches since the last event: their cost, and the time of the first */
    _Atomic uint64_t unlisted_ns;    /* the cost of launches whose threads did not get the ledger: in flight, but in no chunk yet */
    uint64_t until_ns;               /* when all launched work ends, if it takes as long as expected and never waits */
    uint64_t ended_ns;               /* the end of the last chunk that is complete */
    struct orion_chunk_bounds open;  /* of the open chunk */
    _Atomic bool sampling;           /* a timed launch has begun; its events are in the ring entry behind the last chunk */
    struct orion_chunk ring[ORION_CHUNKS];
};

/* The chunk after so many others: 0 is the oldest. */
static inline struct orion_chunk *orion_chunks_at(struct orion_chunks *chunks, uint32_t i)
{
    return &chunks->ring[(chunks->first + i) % ORION_CHUNKS];
}

/* The entry for the open chunk; NULL: the ring is full. */
static inline struct orion_chunk *orion_chunks_next(struct orion_chunks *chunks)
{
    return chunks->count < ORION_CHUNKS ? orion_chunks_at(chunks, chunks->count) : NULL;
}

/* The ledger: the lock of a GPU's be bookkeeping. Threads hold it for a short time only. orion_ledger_try_lock returns
 * false if it does not get the lock soon. The caller must then go on without the lock, because the caller may be a
 * signal handler that interrupted the thread with the lock. */
bool orion_ledger_try_lock(struct orion_gpu *gpu);
void orion_ledger_unlock(struct orion_gpu *gpu);

/* Subtracts cost_ns from the work in flight. */
void orion_ledger_subtract(struct orion_gpu *gpu, uint64_t cost_ns);

/* For these calls, the caller holds the ledger and is in relaxed capture mode.
 *   launched  adds a launch to the open chunk; launched_ns: when it was passed to the driver; beside_hp: while hp was busy
 *   list      adds the launches whose threads did not get the ledger
 *   close     puts an event behind the open chunk
 *   close_last  also if the ring is full: the last chunk then ends behind the open one
 *   reap      removes completed chunks from the work in flight, proves the work of their streams so far, returns how many
 *   drop      counts all chunks as complete
 *   forget    counts all chunks as complete and forgets their events */
void orion_chunks_launched(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t cost_ns,
                           uint64_t launched_ns, bool beside_hp);
void orion_chunks_list(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t now);
void orion_chunks_close(struct orion_process *process, struct orion_stream_record *stream_record);
void orion_chunks_close_last(struct orion_process *process, struct orion_stream_record *stream_record);
unsigned orion_chunks_reap(struct orion_process *process, struct orion_stream_record *stream_record);
void orion_chunks_drop(struct orion_stream_record *stream_record);
void orion_chunks_forget(struct orion_stream_record *stream_record, bool context_lives);

/* Called before and after a wait is put into the stream, under the ledger. Chunks of less than least_ns do not end for it.
 * exact: an event shows for how long the stream waits there. Else the valve is open and the stream seldom waits. */
void orion_chunks_before_wait(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t least_ns);
void orion_chunks_behind_wait(struct orion_stream_record *stream_record, bool exact);

/* Called before and after a launch that is timed. orion_chunks_sample returns false if another launch of the stream
 * record is being timed, or if the ring is full. orion_chunks_sampled returns false if orion_chunks_drop or
 * orion_chunks_forget ran meanwhile, so that the sample is lost. orion_chunks_not_sampled: the driver refused the launch. */
bool orion_chunks_sample(struct orion_stream_record *stream_record, uint64_t identity);
bool orion_chunks_sampled(struct orion_stream_record *stream_record);
void orion_chunks_not_sampled(struct orion_stream_record *stream_record);

#endif
