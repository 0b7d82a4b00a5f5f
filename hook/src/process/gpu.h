/* One GPU's pages as this process sees them, and what the process keeps of that GPU for itself.
 *
 * All pages of a GPU lie in one reservation of address space, made when the GPU's first context is created and never
 * given back: a page is replaced by mapping over it, so a thread that reads one while it is replaced reads the old or
 * the new one and never faults. Until the process has joined, and for places that nobody holds, the reservation is
 * private zero pages: policy `none`, state IDLE. The reservation is not inherited by a forked child (MADV_DONTFORK),
 * which therefore can write no page of its parent's. */
#ifndef ORION_GPU_H
#define ORION_GPU_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/pages.h"

#define ORION_GPUS 16u /* GPUs that one process can use under the hook; further ones pass through */

#define ORION_GPU_HP 320u /* bytes */
#define ORION_GPU_BE 320u

enum orion_join_state { ORION_JOIN_NEW = 0, ORION_JOIN_TRYING = 1, ORION_JOIN_MANAGED = 2, ORION_JOIN_UNMANAGED = 3 };

struct orion_gpu {
    uint32_t client; /* of a client that is threads of this process, + 1: see virtual_board.h; 0: of a GPU */
    CUdevice device;
    char uuid[48];            /* "GPU-..." */
    _Atomic uint32_t role;    /* enum orion_role; NONE until joined */
    _Atomic uint32_t join;    /* enum orion_join_state; a private futex */
    _Atomic uint64_t made_ns; /* when the process first used the GPU */

    /* The GPU's thread: see thread.c */
    _Atomic uint32_t notifier;   /* a private futex: grows to wake the thread */
    _Atomic uint64_t wake_at_ns; /* when it will look by itself */
    _Atomic uint32_t thread_runs;
    void *(*_Atomic thread_body)(void *); /* see notifier.h */

    const struct orion_policy_page *policy;
    const struct orion_grant_page *grant;
    struct orion_busy_page *busy;
    struct orion_record_page *record;
    const struct orion_busy_page *neighbours; /* [ORION_PLACES], by place */

    /* What upper layers keep for the GPU: they give it its type (hp/state.h, be/state.h) and check its size. */
    _Alignas(8) unsigned char hp[ORION_GPU_HP];
    _Alignas(8) unsigned char be[ORION_GPU_BE];

    /* For be: see gate.c. The thread writes the list: places first, then the count. */
    _Atomic uint32_t hp_count;
    _Atomic uint16_t hp_client_index[ORION_PLACES];
    _Atomic uint32_t hp_generation[ORION_PLACES]; /* by place; 0: nobody */
    _Atomic uint64_t given_up_on[ORION_PLACES];   /* by place: progress + 1 at which waiting was given up; 0: waited for */
    _Atomic uint64_t seen_progress[ORION_PLACES]; /* by place: progress + 1 when last waited for */
    _Atomic uint64_t progressed_ns[ORION_PLACES]; /* by place: since when it has been that */
    _Atomic uint64_t suspected_ns[ORION_PLACES];  /* by place: when the agent was last asked to look */

    _Atomic uint32_t sharing; /* enum orion_sharing of policy.h */
};

struct orion_process;
struct orion_gpu *orion_gpu_find(struct orion_process *process, CUdevice device); /* NULL: not made */

/* Finds it, or makes it and says so; NULL if the table is full. `joins`: launches wait until its join is decided. */
struct orion_gpu *orion_gpu_make(struct orion_process *process, CUdevice device, bool joins, bool *made);
void orion_gpu_await_join(struct orion_gpu *gpu); /* bounded: until managed or known not to be */

/* The complete copies. Writers flip `current` after the copy is whole; a reader that is a whole change behind reads
 * single words, each of which was true a moment ago. */
static inline const struct orion_policy *orion_gpu_policy(const struct orion_gpu *gpu)
{
    return &gpu->policy->copy[atomic_load_explicit(&gpu->policy->current, memory_order_acquire) & 1];
}
static inline const struct orion_grant *orion_gpu_grant(const struct orion_gpu *gpu)
{
    return &gpu->grant->copy[atomic_load_explicit(&gpu->grant->current, memory_order_acquire) & 1];
}

/* The hp clients of the GPU, by number; of a table that changes meanwhile, each is some client of it. */
static inline uint32_t orion_gpu_neighbours(const struct orion_gpu *gpu)
{
    uint32_t count = atomic_load_explicit(&gpu->hp_count, memory_order_acquire);
    return count < ORION_PLACES ? count : ORION_PLACES;
}
static inline uint32_t orion_gpu_neighbour_place(const struct orion_gpu *gpu, uint32_t i)
{
    return atomic_load_explicit(&gpu->hp_client_index[i], memory_order_relaxed) % ORION_PLACES;
}
static inline const struct orion_busy_page *orion_gpu_neighbour(const struct orion_gpu *gpu, uint32_t i)
{
    return &gpu->neighbours[orion_gpu_neighbour_place(gpu, i)];
}

/* For the hook's thread: replace pages. All return 0 or -1. */
enum orion_gpu_page { ORION_GPU_POLICY, ORION_GPU_GRANT, ORION_GPU_BUSY, ORION_GPU_RECORD };
int orion_gpu_map(struct orion_gpu *gpu, enum orion_gpu_page page, int fd);
int orion_gpu_map_neighbour(struct orion_gpu *gpu, uint32_t client_index, uint32_t generation, int fd);
void orion_gpu_drop_neighbour(struct orion_gpu *gpu, uint32_t client_index, uint32_t generation);

#endif
