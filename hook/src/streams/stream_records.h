/* Stream records: what the hook knows of each stream, and how much of the stream's work is complete.
 *
 * Each stream record has three counters. `begun` counts driver calls that submit work, before the call. `returned`
 * counts these calls when they have returned. `drained` counts the calls whose work is complete for certain. To prove
 * that work is complete, the hook reads `returned`, makes a synchronising driver call or records an event that completes
 * later, and then raises `drained` to the count that it read. So a proof never covers work that another thread submits
 * meanwhile.
 *
 * The counters only grow, even when another stream gets the stream record. So an old event that was recorded on the
 * earlier stream proves nothing about the new stream's work.
 *
 * The key of a stream record is the stream's handle; for a default stream, its context and, if it is a thread's own, the
 * thread. A record of a thread's own stream ends with the thread (core/thread_ends.h), or else once a new thread has its place
 * in memory. Look-ups need no lock. When the table is full, further streams of a GPU share one overflow stream record, and only
 * a synchronisation of the whole context proves its work. */
#ifndef ORION_STREAM_RECORDS_H
#define ORION_STREAM_RECORDS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"
#include "streams/place.h"
#include "streams/stream_name.h"

#define ORION_STREAM_RECORDS 1024u
#define ORION_STREAM_RECORD_BE 2816u /* bytes */

enum orion_stream_record_state {
    ORION_STREAM_RECORD_FREE = 0,
    ORION_STREAM_RECORD_CLAIMED = 1,
    ORION_STREAM_RECORD_READY = 2,
    ORION_STREAM_RECORD_ENDED = 3, /* the stream is gone; the record is free once its work is drained */
    ORION_STREAM_RECORD_ENDING = 4 /* the stream is gone, but events of be's work still need the record: be/ends.h */
};

struct orion_gpu;

struct orion_stream_record {
    _Atomic uint64_t begun, returned, drained;
    _Atomic uint32_t state;  /* enum orion_stream_record_state */
    _Atomic uint32_t hidden; /* 1: its context is ending, and the driver may give the stream's handle again */
    /* Whoever claims the record writes these, the owner before the handle. A thread that still walks the records may read them
     * meanwhile. So one that finds the record ready, then reads the handle, and then finds its own GPU, has a handle of its own stream. */
    _Atomic uint64_t key;
    _Atomic(struct orion_gpu *) gpu; /* NULL until claimed */
    _Atomic(CUstream) handle;        /* as orion_stream_handle names it */
    _Atomic(CUcontext) context;      /* for a stream of a program's green context: the primary context of its device */
    _Atomic(CUcontext) green;        /* that green context, as cuCtxFromGreenCtx names it; NULL: none */
    _Atomic uint32_t order;          /* enum orion_stream_order; NONE for an overflow record, too */
    _Atomic(const void *) thread;    /* of a thread's own stream: where the thread is; else NULL */

    _Atomic uint64_t mark_at, marked;                     /* hp: the next launch that hp/marks.h looks at; the last mark */
    _Atomic uint64_t begun_before;                        /* `begun` at the time when a client got the record */
    _Atomic(CUevent) last;                                /* completes after the last work of a destroyed stream */
    _Alignas(8) unsigned char be[ORION_STREAM_RECORD_BE]; /* be's state for the stream: see be/state.h */
} __attribute__((aligned(128)));

struct orion_stream_records {
    _Atomic uint32_t overflowed; /* 1: an overflow stream record is in use, so walks include the overflow stream records */
    _Atomic uint32_t high_water; /* stream records from this index on were never used */
    struct orion_stream_record entry[ORION_STREAM_RECORDS];
};
ORION_PART(stream_records)

struct orion_process;
/* The stream's record, on a managed GPU; NULL: the stream's context or GPU is unknown. */
struct orion_stream_record *orion_stream_record_of(struct orion_process *process, struct orion_stream_name stream);
uint32_t orion_stream_record_index(const struct orion_process *process, const struct orion_stream_record *stream_record);

/* Before the calling thread first uses its own default stream. */
void orion_stream_records_begin_thread(struct orion_process *process);
/* Ends the records of the calling thread's own default streams. */
void orion_stream_records_end_thread(struct orion_process *process);

/* A new event of the stream's context, whichever context is current: a stream records events of its own context only.
 * NULL: the driver refuses. flags: as for cuEventCreate. */
CUevent orion_stream_record_event(const struct orion_stream_record *stream_record, unsigned flags);

/* Whether this is an overflow stream record. Its counters belong to several streams; its handle belongs to none of
 * them. */
bool orion_stream_record_is_shared(const struct orion_process *process, const struct orion_stream_record *stream_record);

/* The first stream record behind `previous` (NULL: of all) that was used, and belongs to `gpu` (NULL: to any GPU). NULL: none. */
static inline struct orion_stream_record *orion_stream_records_next(const struct orion_process *process,
                                                                    const struct orion_gpu *gpu,
                                                                    struct orion_stream_record *previous)
{
    struct orion_stream_records *records = orion_stream_records(process);
    uint32_t first = atomic_load(&records->overflowed) ? 0 : ORION_GPUS, used = atomic_load(&records->high_water);
    struct orion_stream_record *next = previous != NULL ? previous + 1 : &records->entry[first];
    for (; next < &records->entry[used]; next++) {
        struct orion_gpu *owner = atomic_load(&next->gpu);
        if (owner != NULL && (gpu == NULL || owner == gpu)) return next;
    }
    return NULL;
}

#define ORION_EACH_STREAM_RECORD(name, process, gpu) \
    for (struct orion_stream_record *name = NULL; (name = orion_stream_records_next(process, gpu, name)) != NULL;)

/* The handle of the stream record's stream. The handle is valid in every thread, unless the stream is a per-thread
 * default stream. */
static inline CUstream orion_stream_record_handle(const struct orion_stream_record *stream_record) { return stream_record->handle; }
static inline struct orion_stream_name orion_stream_record_name(const struct orion_stream_record *stream_record)
{
    return (struct orion_stream_name){stream_record->handle, false};
}

/* Whether every thread can use that handle in the stream record's context. False for an overflow stream record, for a
 * per-thread default stream, and for the default stream of a green context. */
bool orion_stream_record_has_handle(const struct orion_process *process, const struct orion_stream_record *stream_record);

/* Whether it is the calling thread's own default stream, and not that of a green context: this thread can use its handle. */
bool orion_stream_record_is_of_this_thread(const struct orion_stream_record *stream_record);

/* Whether a wait for the context includes the stream: it is the stream's context or green context. */
static inline bool orion_stream_record_is_in(const struct orion_stream_record *stream_record, CUcontext context)
{
    return context == stream_record->context || (context != NULL && context == stream_record->green);
}

/* Whether the driver orders the work of both streams, as if it were that of one. */
bool orion_stream_records_are_ordered(const struct orion_stream_record *one, const struct orion_stream_record *other);

/* Whether all work that has begun is complete. */
static inline bool orion_stream_record_is_drained(const struct orion_stream_record *stream_record)
{
    return atomic_load(&stream_record->drained) == atomic_load(&stream_record->begun);
}

/* Raises `drained` to `returned`, but never lowers it. A change counts as progress of the stream record's GPU. */
void orion_stream_record_prove(struct orion_stream_record *stream_record, uint64_t returned);

#endif
