/* One GPU's pages as this process sees them, and this process's own state for that GPU.
 *
 * All pages of a GPU lie in one reservation of address space. The hook makes the reservation when the process creates
 * the GPU's first context, and never frees it. The hook replaces a page by mapping over it, so a thread that reads the
 * page at that moment reads the old page or the new one and never faults. Before the process has joined, and at client
 * indices that no client uses, the reservation contains private zero pages: policy `none`, state IDLE. A forked child
 * does not inherit the reservation (MADV_DONTFORK), so it cannot write its parent's pages. */
#ifndef ORION_GPU_H
#define ORION_GPU_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orion/join.h"
#include "orion/pages.h"

#define ORION_GPUS 16u /* GPUs of one process that the hook manages; calls for further GPUs pass through */

#define ORION_GPU_HP 320u /* bytes */
#define ORION_GPU_BE 600u /* bytes */

enum orion_join_state { ORION_JOIN_NEW = 0, ORION_JOIN_TRYING = 1, ORION_JOIN_MANAGED = 2, ORION_JOIN_UNMANAGED = 3 };

/* Where the memory of the process moves with its turns: what launches know of its pages. memory/pager.h writes it. */
struct orion_gpu_pages {
    _Atomic uint32_t move;    /* 1: launches of a turn wait until the pages for it have come */
    _Atomic uint64_t turn_ns; /* begin of the turn for which they have come, or will not come any more */
    _Atomic uint64_t came_ns; /* when they had come; UINT64_MAX: they did not */
    _Atomic uint64_t took_ns; /* for how long they came lately */
};

struct orion_gpu {
    uint32_t client; /* 0: a real GPU; else a virtual GPU (virtual_gpu.h): the number of its client of threads, + 1 */
    CUdevice device;
    char uuid[48];                /* "GPU-..." */
    _Atomic uint32_t role;        /* enum orion_role; NONE until joined */
    _Atomic uint32_t join;        /* enum orion_join_state; a private futex */
    _Atomic uint64_t made_ns;     /* when the process first used the GPU */
    _Atomic uint64_t known_limit; /* of memory, while it has no role (agent/known_limit.h); 0: none is known */

    /* The GPU's thread: see thread.c */
    _Atomic uint32_t notifier;   /* a private futex; its value grows to wake the thread */
    _Atomic uint64_t wake_at_ns; /* when the thread wakes without a notification */
    _Atomic uint32_t thread_runs;
    void *(*_Atomic thread_body)(void *); /* see notifier.h */

    const struct orion_policy_page *policy;
    const struct orion_grant_page *grant;
    struct orion_busy_page *busy;
    struct orion_record_page *record;
    const struct orion_busy_page *neighbours; /* [ORION_GPU_CLIENTS_MAX], by client index; see orion_gpu_neighbour */
    size_t page_step;                         /* bytes from one page to the next: orion_page_step */

    /* The page of this client's job, and the client's index in it. NULL: the job has no page. The first page stays. */
    struct orion_job_page *_Atomic job;
    _Atomic uint32_t rank;

    struct orion_gpu_pages pages;

    /* Bytes for the state of upper layers. Those layers define its type (hp/state.h, be/state.h) and check its size. */
    _Alignas(8) unsigned char hp[ORION_GPU_HP];
    _Alignas(8) unsigned char be[ORION_GPU_BE];

    /* The hp clients that a be client waits for: see gate.c. The GPU's thread writes the list hp_client_index: first
     * the entries, then the count. The index of the arrays behind the list is the client index. */
    _Atomic uint32_t hp_count;
    _Atomic uint16_t hp_client_index[ORION_GPU_CLIENTS_MAX];
    _Atomic uint32_t hp_generation[ORION_GPU_CLIENTS_MAX]; /* 0: no client */
    _Atomic uint64_t given_up_on[ORION_GPU_CLIENTS_MAX];   /* progress + 1 when be stopped waiting; 0: be waits */
    _Atomic uint64_t seen_progress[ORION_GPU_CLIENTS_MAX]; /* progress + 1 when be last waited for the client */
    _Atomic uint64_t progressed_ns[ORION_GPU_CLIENTS_MAX]; /* when seen_progress last changed */
    _Atomic uint64_t looked_ns[ORION_GPU_CLIENTS_MAX];     /* when a waiter last looked at it */
    _Atomic uint64_t suspected_ns[ORION_GPU_CLIENTS_MAX];  /* when be last asked the agent to check the client */

    _Atomic uint32_t sharing;      /* enum orion_sharing of policy.h */
    _Atomic uint32_t parking_seen; /* the grant's `park` that the GPU's thread saw last */
};

/* Writes "GPU-..." with the device's UUID. False: the driver does not say it. */
bool orion_gpu_name(CUdevice device, char name[48]);

struct orion_process;
struct orion_gpu *orion_gpu_find(struct orion_process *process, CUdevice device); /* NULL: the device has no entry yet */

/* Returns the device's entry; makes it if there is none, and then sets *made. NULL: the table is full, or making
 * failed. `joins`: launches wait until the agent's decision on the join is known. */
struct orion_gpu *orion_gpu_make(struct orion_process *process, CUdevice device, bool joins, bool *made);

/* Waits, for a bounded time, until the join has succeeded or failed; without an agent it fails at once. Allocations wait
 * longer than launches: what a process has allocated before it knew its limit stays. If the slot is known to have a limit, they
 * wait also while no agent answers: it may be replaced, and only an agent knows what other processes of the slot hold. */
void orion_gpu_await_join(struct orion_gpu *gpu);
void orion_gpu_await_limit(struct orion_gpu *gpu);

/* These return the complete copy of the policy and of the grant. A writer changes `current` after it has completed the
 * other copy. If two changes happen while a reader reads, the reader may get words of both; each word by itself was
 * valid a moment ago. */
static inline const struct orion_policy *orion_gpu_policy(const struct orion_gpu *gpu)
{
    return &gpu->policy->copy[atomic_load_explicit(&gpu->policy->current, memory_order_acquire) & 1];
}
static inline const struct orion_grant *orion_gpu_grant(const struct orion_gpu *gpu)
{
    return &gpu->grant->copy[atomic_load_explicit(&gpu->grant->current, memory_order_acquire) & 1];
}

/* How many clients of each role the GPU has now. */
static inline uint32_t orion_gpu_hp_clients(const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->policy->hp_clients, memory_order_relaxed);
}
static inline uint32_t orion_gpu_be_clients(const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&gpu->policy->be_clients, memory_order_relaxed);
}

/* The limit of memory that holds now; 0: none. */
static inline uint64_t orion_gpu_limit(const struct orion_gpu *gpu)
{
    if (atomic_load(&gpu->role) == ORION_ROLE_NONE) return atomic_load(&gpu->known_limit);
    return orion_gpu_grant(gpu)->memory_limit_bytes;
}

/* The hp clients of the GPU, 0 to orion_gpu_neighbours() - 1. If the list changes meanwhile, every number still gives
 * some client of the list. */
static inline uint32_t orion_gpu_neighbours(const struct orion_gpu *gpu)
{
    uint32_t count = atomic_load_explicit(&gpu->hp_count, memory_order_acquire);
    return count < ORION_GPU_CLIENTS_MAX ? count : ORION_GPU_CLIENTS_MAX;
}
static inline const struct orion_busy_page *orion_gpu_neighbour(const struct orion_gpu *gpu, uint32_t i)
{
    size_t index = atomic_load_explicit(&gpu->hp_client_index[i], memory_order_relaxed) % ORION_GPU_CLIENTS_MAX;
    return (const struct orion_busy_page *)((uintptr_t)gpu->neighbours + index * gpu->page_step);
}

/* These functions replace pages; only the GPU's thread may call them. All return 0, or -1 on failure. */
enum orion_gpu_page { ORION_GPU_POLICY, ORION_GPU_GRANT, ORION_GPU_BUSY, ORION_GPU_RECORD };
int orion_gpu_map(struct orion_gpu *gpu, enum orion_gpu_page page, int fd);
int orion_gpu_map_neighbour(struct orion_gpu *gpu, uint32_t client_index, uint32_t generation, int fd);
int orion_gpu_map_job(struct orion_gpu *gpu, uint32_t rank, int fd);
void orion_gpu_drop_neighbour(struct orion_gpu *gpu, uint32_t client_index, uint32_t generation);
void orion_gpu_drop_other_neighbours(struct orion_gpu *gpu, const struct orion_client_index *listed, uint32_t count);

#endif
