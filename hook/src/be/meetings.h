/* Meetings: a collective waits off the GPU until all its peers could begin.
 *
 * A collective that has begun spins until its peers begin, too. If a peer's GPU still computes, that may take many
 * milliseconds, and an hp that comes meanwhile shares its GPU with the spinning kernel: it takes twice as long. So the stream
 * first writes into its rank's words of the page (ranks.h) that it has *arrived*, and then waits for the same words of the
 * other ranks. A stream that waits takes no SM. Only streams on GPUs with an hp and a watcher wait; the streams of all GPUs
 * write.
 *
 * The arrivals of each stream are numbered apart, because streams overtake one another: the n-th arrival of a rank's i-th
 * stream is the peer of the n-th arrival of another rank's i-th stream. A rank that has never arrived in an i-th stream is
 * not waited for.
 *
 * If ranks do not launch their collectives in the same order, or have groups among them, a stream may wait for an arrival
 * that depends on its own collective. So the wait is bounded: the watchers (valve.h) end it after MOST_NS, not counting time
 * for which hp holds some rank, by writing the other ranks' words themselves. After a few such ends in one stream the rank waits no more. A
 * rank that has left, and a context that ends, end the waits at once.
 *
 * Ranks of several groups, such as two servers in one pod, do not know who belongs to which: NCCL does not show it. Waits for a
 * rank of another group would make each group as slow as the slowest one. So where a stream waits for a good part of the time, a
 * watcher lets a collective go without the ranks that are late, once. If it ends before such a rank has come, that one is a
 * *outsider*, and the stream does not wait for it any more.
 *
 * Rejected: the watchers let each collective go when they see that all ranks have arrived. A watcher looks every 50 us, and a
 * layer of tensor parallelism has a collective every 100 us. */
#ifndef ORION_MEETINGS_H
#define ORION_MEETINGS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/pages.h"
#include "process/gpu.h"

struct orion_process;
struct orion_stream_record;
struct orion_work;

/* Of each GPU. Launching threads write the first members. */
struct orion_meetings {
    _Atomic uint32_t streams;                         /* number of streams that have launched collectives */
    _Atomic uint32_t arrivals[ORION_MEETING_STREAMS]; /* by stream: collectives launched */
    _Atomic uint32_t waits[ORION_MEETING_STREAMS];    /* by stream: the last arrival that waits for other ranks */
    _Atomic uint32_t met;                             /* the ranks that some stream has waited for: a bit for each index */
    _Atomic uint32_t apart;                           /* 1: this rank waits no more */
    /* By stream: the outsiders, as in `met`; the last arrival that may wait for them; an arrival that went without late ranks, until
     * its collective has ended. */
    _Atomic uint32_t outsiders[ORION_MEETING_STREAMS], settled[ORION_MEETING_STREAMS], tried[ORION_MEETING_STREAMS];
    _Atomic uint32_t looking; /* a lock that is only tried; guards what follows */
    struct {
        uint32_t arrival; /* of the wait that was seen last */
        uint64_t looked_ns, waited_ns;
        uint32_t ended, ended_at;        /* number of waits that were ended in a row; the arrival of the last one */
        uint64_t all_waits_ns, since_ns; /* how long all waits took since then */
        uint32_t late, in_vain;          /* ranks without which `tried` went; how often that showed nothing */
    } seen[ORION_MEETING_STREAMS];
};

/* Numbers the arrival of a collective, tied or not, at its launch. */
void orion_meeting_number(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work);

/* Whether the stream of a tied rank's collective waits for the others. */
bool orion_meeting_waits(const struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work);

/* Puts the arrival and the waits into the stream. `page_address`: where GPUs find the page; 0: they cannot write it, so this
 * thread writes the arrival. Returns what the driver said. */
CUresult orion_meeting_arrive(struct orion_process *process, struct orion_stream_record *stream_record,
                              const struct orion_work *work, CUdeviceptr page_address);

/* Sets the words of a rank that is about to be tied: they continue the numbers of this process. */
void orion_meetings_begin(const struct orion_process *process, const struct orion_gpu *gpu, struct orion_rank *rank);

/* For watchers: whether a stream of this process waits for other ranks, and what ends its wait. `held`: an hp holds some rank,
 * so no time counts. `at_once`: all waits end. */
bool orion_meetings_wait(const struct orion_process *process);
void orion_meetings_end(struct orion_process *process, bool held, bool at_once);

#endif
