/* The shared pages: the contract between the hook and the node agent.
 *
 * A GPU is all pages of one GPU. Every page is a sealed 4 KiB memfd with exactly one writer for ever:
 *
 *   policy  one a GPU     written by the agent    read by every client of the GPU
 *   grant   one a slot    written by the agent    read by the clients of the slot
 *   busy    one a client  written by the client   read by the agent and, where the client is hp, by be clients
 *   record  one a client  written by the client   read by the agent alone
 *
 * Nothing here holds a pointer, a lock or a length that a reader has to trust. Readers bound every index and
 * treat every value as hostile. All fields are little-endian, naturally aligned; words that two processes use at
 * the same time are _Atomic and lock-free. Times are CLOCK_MONOTONIC nanoseconds.
 *
 * `hook/layout.py` mirrors this file; tests/hook/test_layout.py compares sizes and offsets. A change of any offset or meaning raises
 * ORION_LAYOUT_VERSION. Hook and agent may be one version apart, either way, while an upgrade or a rollback is under way:
 * they agree on the lower one as a client joins, and a page may have the header of the other. So from one version to the
 * next a layout only appends (0: not said); what moves or changes its meaning does so over two.
 *
 * Refused: one region for all clients (a tenant could truncate or scribble on its neighbours), sequence locks
 * (a writer killed inside one leaves readers spinning), process-shared mutexes (they hold pointers). */
#ifndef ORION_PAGES_H
#define ORION_PAGES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "orion/policy.h"

#define ORION_BENCH_LAYOUTS 0x10000u /* added to the version by the library of `orion bench`, whose pages hold more */
#ifndef ORION_BASELINES
#define ORION_LAYOUT_NEWEST ORION_LAYOUT_VERSION /* that is understood */
#define ORION_LAYOUT_OLDEST (ORION_LAYOUT_VERSION > 1 ? ORION_LAYOUT_VERSION - 1 : 1)
#else
#define ORION_LAYOUT_NEWEST (ORION_BENCH_LAYOUTS + ORION_LAYOUT_VERSION)
#define ORION_LAYOUT_OLDEST ORION_LAYOUT_NEWEST
#endif
#define ORION_PAGE_SIZE 4096u
#define ORION_PAGE_MAGIC UINT64_C(0x3147504e4f49524f) /* "ORIONPG1" */
#define ORION_PLACES 512u                             /* clients that one GPU can have          */
#define ORION_WAIT_BUCKETS 32u

enum orion_page_kind { ORION_PAGE_POLICY = 1, ORION_PAGE_GRANT = 2, ORION_PAGE_BUSY = 3, ORION_PAGE_RECORD = 4 };
enum orion_role { ORION_ROLE_NONE = 0, ORION_ROLE_HP = 1, ORION_ROLE_BE = 2 };
/* What a kernel is short of: two that are short of the same hinder each other more. */
enum orion_kernel_class { ORION_CLASS_UNKNOWN = 0, ORION_CLASS_COMPUTE = 1, ORION_CLASS_MEMORY = 2 };

/* The states of an hp client's busy word. be takes every state but IDLE as busy.
 *   IDLE      no work and the linger is over
 *   BUSY      work was launched that is not proven drained
 *   CLOSING   one thread is proving that all work has drained; a launch turns it back to BUSY
 *   LINGER    drained, but hp's own gaps are usually shorter than this one has been so far */
enum orion_busy_state { ORION_IDLE = 0, ORION_BUSY = 1, ORION_CLOSING = 2, ORION_LINGER = 3 };

struct orion_page_header {
    uint64_t magic;
    uint32_t layout;
    uint32_t kind;
    char gpu[48]; /* "GPU-<uuid>", NUL-padded */
};

/* The policy (orion/policy.h) twice; `current` says which one is whole. A word that layout 1 had for baselines is not used
 * before layout 3, since an agent of layout 1 writes it. */
struct orion_policy_page {
    struct orion_page_header header;
    _Atomic uint32_t current;    /* 0 or 1: index into copy; written after the copy is complete */
    _Atomic uint32_t hp_clients; /* living hp clients of the GPU */
    _Atomic uint32_t be_clients; /* living be clients of the GPU; hp's thread looks less often while it is 0 */
    uint32_t spare[13];
    struct orion_policy copy[2];
    uint8_t unused[1664];
    /* By place: the generation of an hp client whose process the agent saw stopped (SIGSTOP, core dump), else 0.
     * A be client stops waiting for such a client once its heartbeat is stale too, so a continued one counts at once. */
    _Atomic uint32_t stopped[ORION_PLACES];
};

/* What a slot may do. Double-buffered like the policy. */
struct orion_grant {
    uint64_t sequence;
    uint32_t role; /* enum orion_role; fixed for the slot's life */
    uint32_t reserved;
    uint64_t window_share_ns;    /* expected work that each be client of the slot may have in flight */
    uint64_t memory_limit_bytes; /* 0: no limit; for each process of the slot */
    uint32_t compute_request_milli, compute_limit_milli, sm_share_milli, spare_milli; /* for later policies; 0: none */
    uint32_t weight_milli; /* be: its part of what be gets is in proportion to this; 0: 1000 */
    uint32_t held;         /* be: not 0 while it is ahead of its peers by more than a quantum: as if hp were busy. Ends by
                                  * itself, should the agent have died: the end in CLOCK_MONOTONIC milliseconds, low 32 bits */
    uint64_t spare[9];
};

struct orion_grant_page {
    struct orion_page_header header;
    _Atomic uint32_t current;
    uint32_t spare[15];
    struct orion_grant copy[2];
    uint8_t unused[3712];
};

struct orion_busy_page {
    struct orion_page_header header;
    /* The line that readers touch. */
    _Atomic uint32_t state;         /* enum orion_busy_state; a futex: be waits on it, hp's thread wakes */
    _Atomic uint32_t alive;         /* robust futex: thread id | FUTEX_WAITERS; the kernel sets FUTEX_OWNER_DIED; 0: not yet held */
    _Atomic uint64_t progress;      /* grows whenever some of this client's work is proven complete */
    _Atomic uint64_t heartbeat_ns;  /* when the client's thread last looked while busy */
    _Atomic uint64_t drained_ns;    /* when the last busy period drained */
    _Atomic uint64_t busy_since_ns; /* when the open busy period began */
    _Atomic uint64_t overlap_until_ns; /* hp's leave: be may overlap until then; 0: not in this busy period */
    _Atomic uint64_t current;          /* the latest launch, packed by orion_pack_current; 0: unknown, or nobody asks for it */
    uint64_t retired;                  /* a word of layout 1, which its clients write */
    _Atomic uint64_t typical_ns;       /* what this client's busy periods usually last */
#ifndef ORION_BASELINES
    uint8_t unused[3960];
#else
    uint8_t unused[3952];
    _Atomic uint64_t iterations; /* synchronising calls after some work: ends of iterations, requests, tokens */
#endif
};

struct orion_record_page {
    struct orion_page_header header;
    uint32_t client_index, generation; /* as the agent gave them */
    uint32_t process_id;               /* in the client's own namespace; for people */
    uint32_t reserved;
    char command[16];                /* /proc/self/comm, any bytes */
    _Atomic uint64_t launches;       /* calls that put work on the GPU */
    _Atomic uint64_t gated_launches; /* be: launches that waited for hp */
    _Atomic uint64_t gated_ns;       /* be: time spent waiting for hp */
    _Atomic uint64_t window_waits;   /* be: launches that waited for the window */
    _Atomic uint64_t window_wait_ns;
    _Atomic uint64_t waiting_since_ns;  /* be: a launch is waiting at the gate since; 0: none */
    _Atomic uint64_t in_flight_ns;      /* be: expected work in flight */
    _Atomic uint64_t window_share_ns;   /* be: the share that it last worked under */
    _Atomic uint64_t samples;           /* be: durations measured */
    _Atomic uint64_t kernels_known;     /* be: identities with a learnt duration */
    _Atomic uint64_t busy_ns;           /* hp: sum of the closed busy periods, lingers not counted */
    _Atomic uint64_t busy_periods;      /* hp */
    _Atomic uint64_t busy_since_ns;     /* hp: the open busy period began; 0: none */
    _Atomic uint64_t linger_ns;         /* hp: the linger learnt so far */
    _Atomic uint64_t memory_bytes;      /* device memory allocated through the driver */
    _Atomic uint64_t memory_refusals;   /* allocations over the limit */
    _Atomic uint64_t given_up;          /* waits ended because hp made no progress or was stopped */
    _Atomic uint64_t unknown_functions; /* look-ups of a version that the hook does not know */
    _Atomic uint64_t
        wait_bucket[ORION_WAIT_BUCKETS];   /* be gate waits: bucket i counts waits in [2^(i-1), 2^i) us; the last: longer */
    _Atomic uint64_t gpu_ns;               /* be: expected time of all work that has completed */
    _Atomic uint64_t overlapped_launches;  /* be: let through while hp was busy */
    _Atomic uint64_t overlapped_ns;        /* be: their expected time */
    _Atomic uint64_t partitioned_launches; /* be: of all launches, those on fewer SMs */
    _Atomic uint64_t slowdown_milli;  /* hp: its work's time in overlapped busy periods over that in control periods; 0: unknown */
    _Atomic uint64_t overlap_ns;      /* hp: how young a busy period must be for overlap, as the budget allows now */
    _Atomic uint64_t control_periods; /* hp: busy periods kept free of overlap for comparison */
    _Atomic uint64_t shares_context;  /* 1: under MPS, contexts run together */
    _Atomic uint64_t long_kernel_ns;  /* be: the longest kernel known that is longer than the policy's long_kernel_ns */
    char long_kernel_name[128];       /* be: its name, NUL-padded; written before long_kernel_ns */
    _Atomic uint64_t fault;           /* the CUresult with which the client lost its context first; 0: none */
    _Atomic uint64_t
        launches_counted_ns; /* when `launches` was counted, by CLOCK_MONOTONIC: rates are over the time between counts */
    uint8_t unused[3384];
};

/* One launch of hp: SMs (16 bits), class (8), the number of the launch (8, so that like ones can be told apart), expected
 * duration in 100 ns (32, saturating). What is unknown is 0. */
static inline uint64_t orion_pack_current(uint32_t sms, uint32_t kernel_class, uint32_t launch, uint64_t expected_ns)
{
    uint64_t hundreds = expected_ns / 100 > UINT32_MAX ? UINT32_MAX : expected_ns / 100;
    return (uint64_t)(sms & 0xffff) | (uint64_t)(kernel_class & 0xff) << 16 | (uint64_t)(launch & 0xff) << 24 | hundreds << 32;
}
static inline uint32_t orion_current_sms(uint64_t current) { return (uint32_t)current & 0xffff; }
static inline uint32_t orion_current_class(uint64_t current) { return (uint32_t)(current >> 16) & 0xff; }
static inline uint32_t orion_current_launch(uint64_t current) { return (uint32_t)(current >> 24) & 0xff; }
static inline uint64_t orion_current_ns(uint64_t current) { return (current >> 32) * 100; }

_Static_assert(sizeof(struct orion_page_header) == 64, "header");
_Static_assert(sizeof(struct orion_policy_page) == ORION_PAGE_SIZE, "policy page");
_Static_assert(offsetof(struct orion_policy_page, stopped) == 2048, "stopped");
_Static_assert(sizeof(struct orion_grant) == 128, "grant");
_Static_assert(sizeof(struct orion_grant_page) == ORION_PAGE_SIZE, "grant page");
_Static_assert(sizeof(struct orion_busy_page) == ORION_PAGE_SIZE, "busy page");
_Static_assert(offsetof(struct orion_busy_page, state) == 64, "busy line");
_Static_assert(offsetof(struct orion_busy_page, current) == 112, "all that be reads of hp lies in one cache line");
_Static_assert(sizeof(struct orion_record_page) == ORION_PAGE_SIZE, "record page");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "shared words must be lock-free");

#endif
