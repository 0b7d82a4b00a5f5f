/* Collectives: kernels that wait on one GPU for their peers on others. They may begin on all GPUs of the job or on none.
 * The GPUs of a job belong to one process, or each to a process of its own, a *rank* (ranks.h).
 *
 * Suppose that a collective (such as NCCL's all-reduce) runs on GPU 0 while its peer is held on GPU 1. Until the hp of
 * GPU 1 is idle, the collective spins on GPU 0 and takes time slices from the hp of GPU 0. So a collective waits for
 * every GPU on which the job has launched collectives: these GPUs are *tied*. All other work waits only for the
 * gate of its own GPU.
 *
 * A collective that has begun on one GPU must run to its end on all GPUs. So the hook numbers the collectives of each
 * GPU in the order of their launches: the n-th collective of one GPU is the peer of the n-th collective of another GPU.
 * One word, shared by all GPUs, contains the highest number that may begin. While every hp is idle, this word is far
 * above all launched numbers. While some hp is busy, or the job has no turn, this word is the last number that some GPU
 * has begun. Before each collective, the collective's stream waits until the word allows the collective's number. The
 * stream then writes the number into a second word, which belongs to the GPU. So one store to the first word closes or
 * opens all GPUs. The valves' watchers make this store (valve.h); each watcher looks at the hp clients of all tied GPUs
 * of its process, and at what the other processes of the job say about theirs. Without a valve, the launching thread
 * decides on the CPU by the same words.
 *
 * The words lie in one page, which GPUs and processes write. A process alone makes it. The processes of a job get it from
 * the agent, because the agent knows which clients belong together. If the page comes after a process has tied several
 * GPUs of its own, the process keeps its own page.
 *
 * If a job uses groups of several communicators, the numbers of its GPUs may be out of step, that is, far apart.
 * While some hp is busy, the word is then the last number that all GPUs have begun. So a collective that has begun on
 * one GPU does not let its peers begin. No collective waits for ever: the word opens when every hp is idle, whatever
 * the numbers are.
 *
 * Rejected: stopping all work on all GPUs when one hp is busy. GPUs would be idle although their work delays no hp. A
 * collective that has begun on one GPU would be kept from its peers, and would spin for as long as that hp is busy. */
#ifndef ORION_COLLECTIVE_H
#define ORION_COLLECTIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/meetings.h"
#include "be/ranks.h"
#include "be/stop.h"
#include "process/gpu.h"
#include "be/pinned_page.h"
#include "process/process.h"

struct orion_stream_record;
struct orion_process;
struct orion_work;

struct orion_collectives {
    _Atomic uint32_t lock;         /* tried, never waited for; held while the page is made, chosen or pinned */
    _Atomic uint32_t refused;      /* this device or driver does not support waits in streams */
    _Atomic uint32_t ties;         /* 1: a GPU of this process has launched a collective */
    struct orion_pinned_page own;  /* guarded by the lock: a page for a process alone */
    struct orion_pinned_page page; /* guarded by the lock: the page in use, pinned once ranks are tied */
    struct orion_ranks ranks;
    _Atomic uint32_t launched[ORION_GPUS]; /* the number of each GPU's last collective; numbers wrap around */
    struct orion_meetings meetings[ORION_GPUS];
};
ORION_PART(collectives)

/* Called at the launch of a collective. Returns the collective's number. 0: only the gate of its own GPU stops the
 * collective. */
uint32_t orion_collective_begin(struct orion_process *process, struct orion_gpu *gpu);

/* Whether some other GPU has launched the collective of that number. */
bool orion_collective_peer_launched(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);

/* orion_collective_ready returns whether the hook can put a wait into the stream, before the collective.
 * orion_collective_pass puts the wait there. If it returns false, the caller must gate the collective on the CPU. */
bool orion_collective_ready(struct orion_process *process, const struct orion_stream_record *stream_record);
bool orion_collective_pass(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work);

/* For a collective that is gated on the CPU. held returns whether the collective must wait. wait waits until the
 * collective may go. note_unarmed records that the collective goes. */
bool orion_collective_held(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);
void orion_collective_wait(struct orion_process *process, struct orion_gpu *gpu, uint32_t number);
void orion_collective_note_unarmed(struct orion_process *process, struct orion_stream_record *stream_record,
                                   const struct orion_work *work);

/* Watchers call orion_collective_update. It closes or opens the word. True: a GPU may have begun a collective
 * meanwhile, so call it again soon. orion_collective_open opens the word. */
bool orion_collective_update(struct orion_process *process);
void orion_collective_open(struct orion_process *process);

/* The tied GPU whose hp keeps a launched collective of this GPU from beginning; `gpu` itself if that hp is on the GPU of
 * another process; NULL: none does. */
struct orion_gpu *orion_collective_blocked_by(struct orion_process *process, struct orion_gpu *gpu);

extern const struct orion_stop orion_collective_stop; /* claims collectives; in collective_stop.c */

#endif
