/* One GPU's pages as this process sees them, and what the process keeps of that GPU for itself.
 *
 * All pages of a board lie in one reservation of address space, made when the GPU's first context is created and never
 * given back: a page is replaced by mapping over it, so a thread that reads one while it is replaced reads the old or
 * the new one and never faults. Until the process has joined, and for places that nobody holds, the reservation is
 * private zero pages: policy `none`, state IDLE. The reservation is not inherited by a forked child (MADV_DONTFORK),
 * which therefore can write no page of its parent's. */
#ifndef ORION_BOARD_H
#define ORION_BOARD_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/baselines.h"
#include "be/partition.h"
#include "be/valve.h"
#include "hp/budget.h"
#include "hp/linger.h"
#include "orion/pages.h"

#define ORION_BOARDS 16u /* GPUs that one process can use under the hook; further ones pass through */

enum orion_join_state { ORION_JOIN_NEW = 0, ORION_JOIN_TRYING = 1, ORION_JOIN_MANAGED = 2, ORION_JOIN_UNMANAGED = 3 };

struct orion_board {
    uint32_t client;                   /* of a client that is threads of this process, + 1: see virtual_board.h; 0: of a GPU */
    CUdevice device;
    char uuid[48];                     /* "GPU-..." */
    _Atomic uint32_t role;             /* enum orion_role; NONE until joined */
    _Atomic uint32_t join;             /* enum orion_join_state; a private futex */
    _Atomic uint64_t made_ns;          /* when the process first used the GPU */

    /* The board's thread: see thread.c */
    _Atomic uint32_t bell;             /* a private futex: grows to wake the thread */
    _Atomic uint64_t wake_at_ns;       /* when it will look by itself */
    _Atomic uint32_t thread_runs;

    const struct orion_policy_page *policy;
    const struct orion_grant_page *grant;
    struct orion_busy_page *busy;
    struct orion_record_page *record;
    const struct orion_busy_page *neighbours; /* [ORION_PLACES], by place */

    /* hp: see busy.c */
    _Atomic uint32_t closing, close_wanted;
    _Atomic uint64_t busy_since_ns;
    _Atomic uint64_t typical_busy_ns;  /* how long busy periods last; written by the one that closes */
    struct orion_linger linger;
    struct orion_budget budget;        /* see budget.c */
    _Atomic uint64_t looked_begun;     /* the thread's own: work begun when it last looked */
    _Atomic uint32_t drain_wanted;     /* the drain thread should prove what nobody synchronises on */
    _Atomic uint32_t drain_thread;     /* 0: none yet, 1: runs; see drain.c */
    _Atomic uint32_t drain_bell;       /* a private futex */

    /* be: see gate.c. The thread writes the list: places first, then the count. */
    _Atomic uint32_t hp_count;
    _Atomic uint16_t hp_place[ORION_PLACES];
    _Atomic uint32_t hp_generation[ORION_PLACES];   /* by place; 0: nobody */
    _Atomic uint64_t given_up_on[ORION_PLACES];     /* by place: progress + 1 at which waiting was given up; 0: waited for */
    _Atomic uint64_t seen_progress[ORION_PLACES];   /* by place: progress + 1 when last waited for */
    _Atomic uint64_t progressed_ns[ORION_PLACES];   /* by place: since when it has been that */
    _Atomic uint64_t suspected_ns[ORION_PLACES];    /* by place: when the agent was last asked to look */

    _Atomic uint32_t sharing;          /* enum orion_sharing of policy.h */
    struct orion_valve valve;          /* be: see valve.c */
    struct orion_partition partition;  /* be: see partition.c */
    _Atomic uint32_t moving;           /* be: launches on their way to the partition */
    struct orion_baseline baseline;    /* see baselines.c */

    /* be: see window.c */
    _Atomic uint64_t in_flight_ns;
    _Atomic uint32_t ledger;           /* taken while lanes' chunks are kept; see orion_ledger_take */
    uint64_t waited_ns, moved_ns;      /* guarded by the ledger: the last wait for the window; when work last completed */
    uint32_t lanes_at_work;            /* guarded by the ledger: lanes with work in flight, at the last look */
    uint64_t head_ns;                  /* guarded by the ledger: when the oldest work in flight began to run, estimated */
};

struct orion_process;
struct orion_board *orion_board_of(CUdevice device);   /* makes it at first use; NULL if the table is full */
struct orion_board *orion_board_make(struct orion_process *process, CUdevice device);
void orion_board_await_join(struct orion_board *board);/* bounded: until managed or known not to be */

/* The complete copies. Writers flip `current` after the copy is whole; a reader that is a whole change behind reads
 * single words, each of which was true a moment ago. */
static inline const struct orion_policy *orion_board_policy(const struct orion_board *board)
{
    return &board->policy->copy[atomic_load_explicit(&board->policy->current, memory_order_acquire) & 1];
}
static inline const struct orion_grant *orion_board_grant(const struct orion_board *board)
{
    return &board->grant->copy[atomic_load_explicit(&board->grant->current, memory_order_acquire) & 1];
}

/* The hp clients of the GPU, by number; of a table that changes meanwhile, each is some client of it. */
static inline uint32_t orion_board_neighbours(const struct orion_board *board)
{
    uint32_t count = atomic_load_explicit(&board->hp_count, memory_order_acquire);
    return count < ORION_PLACES ? count : ORION_PLACES;
}
static inline uint32_t orion_board_neighbour_place(const struct orion_board *board, uint32_t i)
{
    return atomic_load_explicit(&board->hp_place[i], memory_order_relaxed) % ORION_PLACES;
}
static inline const struct orion_busy_page *orion_board_neighbour(const struct orion_board *board, uint32_t i)
{
    return &board->neighbours[orion_board_neighbour_place(board, i)];
}

/* For the hook's thread: replace pages. All return 0 or -1. */
enum orion_board_page { ORION_BOARD_POLICY, ORION_BOARD_GRANT, ORION_BOARD_BUSY, ORION_BOARD_RECORD };
int orion_board_map(struct orion_board *board, enum orion_board_page page, int fd);
int orion_board_map_neighbour(struct orion_board *board, uint32_t place, uint32_t generation, int fd);
void orion_board_drop_neighbour(struct orion_board *board, uint32_t place, uint32_t generation);

#endif
