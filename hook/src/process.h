/* The process: everything that the hook knows, in one mapping that a forked child finds wiped.
 *
 * MADV_WIPEONFORK zeroes the mapping in the child, so the child starts as if the hook had just been loaded, however it
 * was forked (fork, clone, a raw system call): no atfork handler has to run, no stale role or pointer survives. */
#ifndef ORION_PROCESS_H
#define ORION_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "memory.h"
#include "agent/board.h"
#include "be/collective.h"
#include "learning/durations.h"
#include "learning/graphs.h"
#include "learning/kernels.h"
#include "streams/lanes.h"
#include "streams/recordings.h"
#include "threads/inprocess.h"

struct orion_process {
    _Atomic uint32_t started;        /* 0: not, or a forked child; 1: by some thread right now; 2: yes */
    _Atomic uint32_t managed;        /* boards with a role; 0 lets every call pass at once */
    _Atomic uint32_t joining;        /* boards whose first join is not decided */
    _Atomic uint32_t lane_epoch;     /* grows when a stream or a context ends: cached lanes are looked up again */
    _Atomic uint32_t board_count, board_making;

    /* Contexts that the drain threads may not touch, and how many of them do: see capture.c */
    _Atomic int32_t captures, untouchable;
    _Atomic uint32_t touching;
    _Atomic uint32_t context_epoch;  /* grows when a context ends */

    _Atomic uint32_t blocked_proofs; /* threads inside a synchronising call */
    _Atomic uint32_t said;           /* one bit a sentence: each is said once */

    struct orion_board boards[ORION_BOARDS];
    struct orion_lanes lanes;
    struct orion_collectives collectives;
    struct orion_recordings recordings;
    struct orion_durations durations;
    struct orion_kernels kernels;
    struct orion_graphs graphs;
    struct orion_memory memory;
    struct orion_inprocess inprocess;
};

extern struct orion_process *orion_the_process; /* NULL until something was started */

/* The started process, or NULL where it cannot be had (no memory). */
struct orion_process *orion_process_started(void);

/* Whether anything at all is to be done for a call: one load and one compare. */
static inline struct orion_process *orion_process_if_managed(void)
{
    struct orion_process *process = orion_the_process;
    if (__builtin_expect(process == NULL, 0)) return NULL;
    if (__builtin_expect(atomic_load_explicit(&process->managed, memory_order_relaxed) == 0, 0) &&
        atomic_load_explicit(&process->joining, memory_order_relaxed) == 0)
        return NULL;
    return process;
}

#endif
