/* The process: all state of the hook, in one mapping that is wiped in a forked child.
 *
 * MADV_WIPEONFORK zeroes the mapping in the child, so the child starts as if the hook had just been loaded. This works
 * for every way to fork (fork, clone, a raw system call): no atfork handler is needed, and no stale role or pointer
 * remains. */
#ifndef ORION_PROCESS_H
#define ORION_PROCESS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/gpu.h"
#include "process/unknown.h"
#include "system/mix.h"

struct orion_stream_record;

/* Returns the GPU of the client that owns the stream; NULL: no client owns it, or the GPU has no role. An upper layer
 * provides the function. */
typedef struct orion_gpu *orion_owner(struct orion_process *process, CUstream stream, CUdevice device);

/* Ends the record of the default stream of a thread that ends or has ended. An upper layer provides the function. */
typedef void orion_stream_ended(struct orion_process *process, struct orion_stream_record *stream_record);

/* Called before a thread's first use of its own default stream. An upper layer may provide the function. */
typedef void orion_stream_of_thread(struct orion_process *process);

/* What a thread of the program does before its next launch. Threads of the hook ask for it, because a thread of the program has
 * the program's descriptors, or because the launch must wait. */
enum orion_errand {
    ORION_ERRAND_SLICES = 1u, /* sets the time slices: slices/time_slice.h */
    ORION_ERRAND_PARKER = 2u, /* starts the thread that parks the process: parking/parking.h */
    ORION_ERRAND_STAY = 4u,   /* waits until the process is back on the GPU */
    ORION_ERRAND_ABSENT = 8u  /* only with STAY: calls that the driver does not stop wait, too (absence.h) */
};

#define ORION_CONTEXT_PLACES 64u /* a power of two */

struct orion_process {
    _Atomic uint32_t started;                      /* 0: not started, as in a forked child; 1: being started; 2: started */
    _Atomic uint32_t managed;                      /* number of GPUs with a role; if 0, every call passes at once */
    _Atomic uint32_t joining;                      /* number of GPUs whose first join has not yet succeeded or failed */
    _Atomic uint32_t scheduler;                    /* generation of the running scheduler of threads; 0: none runs */
    orion_owner *_Atomic owner;                    /* set before the first GPU has a role */
    orion_stream_ended *_Atomic thread_ended;      /* as `owner` */
    orion_stream_of_thread *_Atomic thread_begins; /* NULL: nothing is to be done */
    _Atomic uint32_t stream_record_epoch;          /* grows when a stream or context ends: makes cached stream records invalid */
    _Atomic uint32_t gpu_count, gpu_making;        /* entries in `gpus`; a lock around making one */
    _Atomic uint32_t sees_exit;                    /* 1: the handler at exit is registered */

    /* For capture.c: the numbers of open captures, of reasons why drain threads must not use a context now, and of
     * drain threads that use a context now. */
    _Atomic int32_t captures, untouchable;
    _Atomic int32_t exits; /* of `untouchable`: 1 once the process has begun to exit; the driver's own handler ends the contexts */
    _Atomic int32_t kept_open; /* of `untouchable`: 1 only keeps the stops open, while the process parks; no context ends */
    _Atomic uint32_t touching;
    _Atomic uint32_t context_epoch;                          /* grows when a context ends */
    _Atomic uint32_t role_changes;                           /* of clients that are threads */
    _Atomic uint32_t ends_of_contexts[ORION_CONTEXT_PLACES]; /* one grows when a context of that place ends: orion_ends_of */

    _Atomic uint32_t errands;          /* enum orion_errand: what the next launch of be does first */
    _Atomic uint32_t parks;            /* 1: the thread that parks the process was started */
    _Atomic uint32_t parking_notifier; /* a private futex: grows when a grant's word `park` has changed */

    _Atomic uint32_t primary_retains[ORION_GPUS]; /* by device: the program's references to the primary context */
    _Atomic(CUcontext) primary[ORION_GPUS];       /* by device; see orion_process_primary */

    _Atomic uint32_t blocked_proofs; /* threads inside a synchronising call */
    _Atomic uint32_t present;        /* threads inside a call that the driver does not stop; see absence.h */
    _Atomic uint32_t said;           /* bit i: sentence i of report.h was written */

    struct orion_unknown unknown;
    struct orion_gpu gpus[ORION_GPUS];
};

/* Whether clients are threads of this process: see threads/inprocess.h. */
static inline bool orion_process_has_scheduler(struct orion_process *process)
{
    return atomic_load_explicit(&process->scheduler, memory_order_acquire) != 0;
}

/* The device's primary context. NULL: the program has not got it, it has ended, or the hook does not manage the device. */
static inline CUcontext orion_process_primary(const struct orion_process *process, CUdevice device)
{
    return device >= 0 && device < (CUdevice)ORION_GPUS ? atomic_load(&process->primary[device]) : NULL;
}

/* How many contexts of the handle's place have ended. While this is the same, the context lives. */
static inline _Atomic uint32_t *orion_ends_of(struct orion_process *process, CUcontext context)
{
    return &process->ends_of_contexts[orion_mix((uint64_t)(uintptr_t)context) % ORION_CONTEXT_PLACES];
}

/* How many entries of `gpus` are in use: those with a lower index. */
static inline uint32_t orion_process_gpus(const struct orion_process *process)
{
    uint32_t count = atomic_load(&process->gpu_count);
    return count < ORION_GPUS ? count : ORION_GPUS;
}
#define ORION_EACH_GPU(name, process) \
    for (__typeof__(&(process)->gpus[0]) name = (process)->gpus; name < (process)->gpus + orion_process_gpus(process); name++)

/* Whether the process is be on any GPU. */
static inline bool orion_process_has_be(const struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        if (atomic_load(&gpu->role) == ORION_ROLE_BE) return true;
    return false;
}

/* Whether a launch of be has something to do first. */
static inline bool orion_has_errands(const struct orion_process *process)
{
    return __builtin_expect(atomic_load_explicit(&process->errands, memory_order_relaxed) != 0, 0);
}

/* State of upper layers lies behind the process in the same mapping, so it is wiped in a forked child, too. This layer
 * knows only the size of each part. The owner of a part states the part's type with ORION_PART. ORION_PART defines a
 * function that returns the part; the part has a constant offset, so the function costs nothing. */
struct orion_mapping {
    struct orion_process process;
    _Alignas(128) unsigned char stream_records[3014784];
    _Alignas(128) unsigned char recordings[327680];
    _Alignas(128) unsigned char capture_origins[1152];
    _Alignas(128) unsigned char marks[51200];
    _Alignas(128) unsigned char own_streams[2560];
    _Alignas(128) unsigned char client_orders[36992];
    _Alignas(128) unsigned char kernels[622720];
    _Alignas(128) unsigned char durations[524416];
    _Alignas(128) unsigned char graphs[688256];
    _Alignas(128) unsigned char graph_copies[65664];
    _Alignas(128) unsigned char memory[12583424];
    _Alignas(128) unsigned char pools[36096];
    _Alignas(128) unsigned char graph_memory[8320];
    _Alignas(128) unsigned char collectives[12288];
    _Alignas(128) unsigned char event_words[8320];
    _Alignas(128) unsigned char inprocess[512];
    _Alignas(128) unsigned char time_slice[2176];
    _Alignas(128) unsigned char views[1280];
    _Alignas(128) unsigned char parking[256];
    _Alignas(128) unsigned char credit_requests[768];
    _Alignas(128) unsigned char room_requests[640];
    _Alignas(128) unsigned char pagers[1024];
    _Alignas(128) unsigned char lookups[32768];
};

#define ORION_PART(name) \
    _Static_assert(sizeof(struct orion_##name) <= sizeof((struct orion_mapping *)0)->name, "struct orion_mapping: " #name); \
    static inline struct orion_##name *orion_##name(const struct orion_process *process) \
    { \
        return (struct orion_##name *)((uintptr_t)process + offsetof(struct orion_mapping, name)); \
    }

extern struct orion_process *orion_the_process; /* NULL until orion_process_started() has returned it */

/* Starts the process's state if necessary and returns it; NULL: no memory, or the kernel is too old. */
struct orion_process *orion_process_started(void);

/* NULL: the process is unmanaged, so the hook passes the call through. In this common case the check costs one load and
 * one comparison. */
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
