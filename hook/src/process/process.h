/* The process: everything that the hook knows, in one mapping that a forked child finds wiped.
 *
 * MADV_WIPEONFORK zeroes the mapping in the child, so the child starts as if the hook had just been loaded, however it
 * was forked (fork, clone, a raw system call): no atfork handler has to run, no stale role or pointer survives. */
#ifndef ORION_PROCESS_H
#define ORION_PROCESS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/gpu.h"

/* Whose work a stream's is: the GPU of its client; NULL: nobody's, or of a GPU without a role. An upper layer says so. */
typedef struct orion_gpu *orion_owner(struct orion_process *process, CUstream stream, CUdevice device);

struct orion_process {
    _Atomic uint32_t started;             /* 0: not, or a forked child; 1: by some thread right now; 2: yes */
    _Atomic uint32_t managed;             /* GPUs with a role; 0 lets every call pass at once */
    _Atomic uint32_t joining;             /* GPUs whose first join is not decided */
    _Atomic uint32_t scheduler;           /* the generation of the scheduler of threads that runs; 0: none runs */
    orion_owner *_Atomic owner;           /* set before the first GPU has a role */
    _Atomic uint32_t stream_record_epoch; /* grows when a stream or a context ends: cached stream records are looked up again */
    _Atomic uint32_t gpu_count, gpu_making;
    _Atomic uint32_t sees_exit; /* a handler at exit is registered */

    /* Contexts that the drain threads may not touch, and how many of them do: see capture.c */
    _Atomic int32_t captures, untouchable;
    _Atomic uint32_t touching;
    _Atomic uint32_t context_epoch; /* grows when a context ends */

    _Atomic uint32_t blocked_proofs; /* threads inside a synchronising call */
    _Atomic uint32_t said;           /* one bit a sentence: each is said once */

    struct orion_gpu gpus[ORION_GPUS];
};

/* Whether clients are threads of this process: see threads/inprocess.h. */
static inline bool orion_process_has_scheduler(struct orion_process *process)
{
    return atomic_load_explicit(&process->scheduler, memory_order_acquire) != 0;
}

/* What upper layers keep for the process lies behind it in the same mapping: a forked child finds that wiped as well. This
 * layer knows how many bytes each part may have. The owner of a part names its type by ORION_PART, which makes a function
 * of the part's name; at a constant distance, so that finding it costs nothing. */
struct orion_mapping {
    struct orion_process process;
    _Alignas(128) unsigned char stream_records[1048704];
    _Alignas(128) unsigned char recordings[131072];
    _Alignas(128) unsigned char own_streams[2048];
    _Alignas(128) unsigned char kernels[622720];
    _Alignas(128) unsigned char durations[524416];
    _Alignas(128) unsigned char graphs[131200];
    _Alignas(128) unsigned char memory[262272];
    _Alignas(128) unsigned char collectives[256];
    _Alignas(128) unsigned char inprocess[512];
};

#define ORION_PART(name) \
    _Static_assert(sizeof(struct orion_##name) <= sizeof((struct orion_mapping *)0)->name, "struct orion_mapping: " #name); \
    static inline struct orion_##name *orion_##name(const struct orion_process *process) \
    { \
        return (struct orion_##name *)((uintptr_t)process + offsetof(struct orion_mapping, name)); \
    }

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
