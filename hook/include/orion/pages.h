/* The shared pages: the interface between the hook and the node agent.
 *
 * Every page is a sealed memfd of 4 KiB, also where the kernel's own pages are larger. One process writes it, and no other
 * process ever does:
 *
 *   policy  one for each GPU     written by the agent    read by all clients of the GPU
 *   grant   one for each slot    written by the agent    read by the clients of the slot
 *   busy    one for each client  written by the client   read by the agent; an hp client's also by be clients
 *   record  one for each client  written by the client   read by the agent only
 *
 * One page is an exception: the job page. All be clients of one pod (or of one `orion run`) write it, because any of
 * them must be able to stop all of them with one store. They trust one another, and no other client gets the page. The
 * agent clears the words of a client that has left, and reads nothing.
 *
 *   job     one for each job     written by its clients  read by the same clients
 *
 * No page contains a pointer, a lock or a length that a reader must trust. Readers check every index against its bounds
 * and treat every value as hostile. All fields are little-endian and naturally aligned. Words that two processes use at
 * the same time are _Atomic and lock-free. Times are CLOCK_MONOTONIC nanoseconds.
 *
 * `hook/layout.py` mirrors this file; tests/hook/test_layout.py compares sizes and offsets. If the offset or the
 * meaning of a field changes, ORION_LAYOUT_VERSION must grow. During an upgrade or a rollback, hook and agent may be
 * one version apart, in either direction. They agree on the lower version when a client joins, and a page may have the
 * header of the other version. So from one version to the next a layout only appends fields (0 in a new field: not
 * set). To move a field or to change its meaning, two successive versions are necessary.
 *
 * Rejected: one region for all clients (a tenant could truncate it or overwrite its neighbours' data), sequence locks
 * (if a writer is killed while it holds one, readers spin for ever), process-shared mutexes (they contain pointers). */
#ifndef ORION_PAGES_H
#define ORION_PAGES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "orion/policy.h"

/* The library of `orion bench` adds this to the version, because its pages have more fields. */
#define ORION_BENCH_LAYOUTS 0x10000u
#ifndef ORION_BASELINES
#define ORION_LAYOUT_NEWEST ORION_LAYOUT_VERSION /* this library understands OLDEST to NEWEST */
#define ORION_LAYOUT_OLDEST (ORION_LAYOUT_VERSION > 1 ? ORION_LAYOUT_VERSION - 1 : 1)
#else
#define ORION_LAYOUT_NEWEST (ORION_BENCH_LAYOUTS + ORION_LAYOUT_VERSION)
#define ORION_LAYOUT_OLDEST ORION_LAYOUT_NEWEST
#endif
#define ORION_PAGE_SIZE 4096u
#define ORION_PAGE_MAGIC UINT64_C(0x3147504e4f49524f) /* "ORIONPG1" */
#define ORION_GPU_CLIENTS_MAX 512u                    /* most clients of one GPU; a client index is below this */
#define ORION_BESIDES 192u                            /* clients of a slot that know what its other clients hold */
#define ORION_WAIT_BUCKETS 32u
#define ORION_MEMORY_TAKEN (UINT64_C(1) << 63) /* in memory_taken: the client says it */
#define ORION_BUSY_PERIODS 128u                /* hp: a record page has so many of the last busy periods */
#define ORION_RANKS_MAX 31u                    /* most ranks of one job: clients of its job page */
#define ORION_MEETING_STREAMS 8u               /* most streams of a rank whose collectives wait for one another */
#define ORION_FLOOR_CYCLE_MS 200u              /* be's floor is the end of each section of so long of CLOCK_MONOTONIC: be/gate.c */
#define ORION_RANK_LEASE_MS 200u               /* a rank's word that holds or releases its peers is valid for at most this long */

enum orion_page_kind {
    ORION_PAGE_POLICY = 1,
    ORION_PAGE_GRANT = 2,
    ORION_PAGE_BUSY = 3,
    ORION_PAGE_RECORD = 4,
    ORION_PAGE_JOB = 5
};
enum orion_role { ORION_ROLE_NONE = 0, ORION_ROLE_HP = 1, ORION_ROLE_BE = 2 };
/* Whether device allocations of the slot become managed memory (hook/src/memory/unified.h).
 *   NONE    they do not
 *   WITHIN  they do, while there is free memory on the GPU for them
 *   BEYOND  they do, also beyond the GPU's memory: on the simulated GPU only */
enum orion_unified { ORION_UNIFIED_NONE = 0, ORION_UNIFIED_WITHIN = 1, ORION_UNIFIED_BEYOND = 2 };
/* What limits a kernel's speed. Two kernels of the same class slow each other down more than kernels of different
 * classes. */
enum orion_kernel_class { ORION_CLASS_UNKNOWN = 0, ORION_CLASS_COMPUTE = 1, ORION_CLASS_MEMORY = 2 };

/* The states of an hp client's busy word. be treats every state except IDLE as busy.
 *   IDLE      there is no work, and the linger is over
 *   BUSY      some launched work may be incomplete
 *   CLOSING   a thread checks whether all work is complete; a launch changes the state back to BUSY
 *   LINGER    all work is complete, but hp's next launch is likely to follow soon */
enum orion_busy_state { ORION_IDLE = 0, ORION_BUSY = 1, ORION_CLOSING = 2, ORION_LINGER = 3 };

struct orion_page_header {
    uint64_t magic;
    uint32_t layout;
    uint32_t kind;
    char gpu[48]; /* "GPU-<uuid>", NUL-padded */
};

/* Two copies of the policy (orion/policy.h); `current` is the index of the complete one. In layout 1 baselines used a
 * word of the policy. Agents of layout 1 still write that word, so no layout before 3 may use it again. */
struct orion_policy_page {
    struct orion_page_header header;
    _Atomic uint32_t current;    /* 0 or 1: index into copy; written after the copy is complete */
    _Atomic uint32_t hp_clients; /* living hp clients of the GPU */
    _Atomic uint32_t be_clients; /* living be clients of the GPU; while it is 0, hp's thread wakes less often */
    uint32_t spare[13];
    struct orion_policy copy[2];
    uint8_t unused[1664];
    /* By client index: the generation of an hp client whose process the agent saw stopped (SIGSTOP, core dump), else 0.
     * A be client stops waiting for such an hp client only while the hp client's heartbeat is stale, too. When the
     * process continues, its heartbeat is fresh, and be waits for it again at once. */
    _Atomic uint32_t stopped[ORION_GPU_CLIENTS_MAX];
};

/* What a slot may do. The grant page contains two copies of this structure, as the policy page does of the policy. */
struct orion_grant {
    uint64_t sequence;
    uint32_t role;                        /* enum orion_role; constant while the slot exists */
    uint32_t parks;                       /* be: 1: the agent may ask the slot's processes to leave the GPU's memory */
    uint64_t window_share_ns;             /* expected time of the work that each be client of the slot may have in flight */
    uint64_t memory_limit_bytes;          /* for each process, and with credits for the slot; 0: no limit */
    uint32_t compute_request_milli;       /* be: the part of the GPU's time that the slot is sure to get; 0: none */
    uint32_t compute_limit_milli;         /* the most of the GPU's time that the slot may use; 0: no limit */
    uint32_t sm_share_milli, spare_milli; /* for later policies; 0: none */
    uint32_t retired[2];                  /* 0; agents of layout 4 write these, so no layout before 6 may use them */
    /* When the slot may launch (be/turns.h, hp/ceiling.h): the turn that is, or was last; then a turn that repeats every
     * cycle_ns. An end that is not after its begin: no turn. Outside its turns the slot waits. */
    uint64_t turn_begin_ns, turn_end_ns;
    uint64_t next_begin_ns, next_end_ns, cycle_ns;
    uint64_t plan_until_ns;  /* from then on the slot does not wait, so that it never waits for a dead agent; 0: no turns */
    uint64_t memory_wait_ns; /* how long an allocation waits for others to leave a full GPU; 0: it does not wait */
    uint32_t unified;        /* be: enum orion_unified: device allocations become managed memory */
    uint32_t unused;
    uint64_t memory_request_bytes; /* unified: the most of each process that is not managed; 0: no limit */
};

struct orion_grant_page {
    struct orion_page_header header;
    _Atomic uint32_t current;
    _Atomic uint32_t plan;          /* grows with each change of the turns, after the change; a futex: the agent wakes clients */
    _Atomic uint32_t credit_epoch;  /* differs between the pages of successive agents; 0: the agent gives no credit */
    _Atomic uint32_t used_mib;      /* what the slot's processes hold together, lately, in MiB */
    _Atomic uint32_t park;          /* odd: the slot's processes shall leave the GPU's memory; grows with each wish */
    _Atomic uint32_t leaving_mib;   /* hp: how much of what is not free on the GPU others would leave to the slot, in MiB */
    _Atomic uint32_t returning_mib; /* how much of what is free others have been let back into, in MiB */
    _Atomic uint32_t question;      /* differs for each of the agent's questions to the driver what processes hold */
    uint32_t spare[8];
    struct orion_grant copy[2];
    /* By client index, a bit each: the client has joined since `park` became odd, and stays until the agent has seen whether
     * the host's memory can hold what it has on the GPU. */
    _Atomic uint32_t stays[ORION_GPU_CLIENTS_MAX / 32];
    uint8_t unused[64];
    /* At the client index modulo ORION_BESIDES: what the slot holds, lately, apart from what the client's own hook counts: in MiB, behind
     * the client's generation. Of two clients with the same place one has it. Earlier agents leave 0. */
    _Atomic uint64_t besides[ORION_BESIDES];
    /* By client index: how much device memory the client may hold, in MiB. All credits of a slot and what its dead
     * processes still hold are together no more than the limit. The client publishes what it holds and then looks at its
     * credit (memory/memory.h); the agent lowers a credit and then looks at what the client holds. So one of them sees
     * the other. */
    _Atomic uint32_t credit_mib[ORION_GPU_CLIENTS_MAX];
};

struct orion_busy_page {
    struct orion_page_header header;
    /* One cache line (state to retired) contains all that be reads at the gate. */
    _Atomic uint32_t state;            /* enum orion_busy_state; a futex: be waits on it, hp's thread wakes be */
    _Atomic uint32_t alive;            /* robust futex: thread id | FUTEX_WAITERS, later FUTEX_OWNER_DIED; 0: not held yet */
    _Atomic uint64_t progress;         /* grows when the client finds out that work is complete */
    _Atomic uint64_t heartbeat_ns;     /* when the client's thread last ran during a busy period */
    _Atomic uint64_t drained_ns;       /* when the client found the work of the last busy period complete */
    _Atomic uint64_t busy_since_ns;    /* when the current busy period began */
    _Atomic uint64_t overlap_until_ns; /* hp's permission: be may overlap until this time; 0: not in this busy period */
    _Atomic uint64_t current;          /* the latest launch, packed by orion_pack_current; 0: not published */
    uint64_t retired;                  /* unused; clients of layout 1 write it */
    _Atomic uint64_t typical_ns;       /* how long this client's busy periods usually are */
#ifndef ORION_BASELINES
    uint8_t unused[3960];
#else
    uint8_t unused[3952];
    _Atomic uint64_t iterations; /* synchronising calls after work: each ends an iteration, a request or a token */
#endif
};

struct orion_busy_period { _Atomic uint64_t begin_ns, end_ns; };

struct orion_record_page {
    struct orion_page_header header;
    uint32_t client_index, generation; /* assigned by the agent */
    uint32_t process_id;               /* in the client's PID namespace; for users only */
    uint32_t reserved;
    char command[16];                /* /proc/self/comm; any bytes are possible */
    _Atomic uint64_t launches;       /* calls that put work on the GPU */
    _Atomic uint64_t gated_launches; /* be: launches that waited for hp */
    _Atomic uint64_t gated_ns;       /* be: time spent waiting for hp */
    _Atomic uint64_t window_waits;   /* be: launches that waited for the window */
    _Atomic uint64_t window_wait_ns;
    _Atomic uint64_t waiting_since_ns;  /* be: since when a launch has waited at the gate; 0: none waits */
    _Atomic uint64_t in_flight_ns;      /* be: expected time of the work in flight */
    _Atomic uint64_t window_share_ns;   /* be: the share of the window that the client last used */
    _Atomic uint64_t samples;           /* be: measured durations */
    _Atomic uint64_t kernels_known;     /* be: identities with a learnt duration */
    _Atomic uint64_t busy_ns;           /* hp: sum of the closed busy periods, without lingers */
    _Atomic uint64_t busy_periods;      /* hp: number of the closed busy periods */
    _Atomic uint64_t busy_since_ns;     /* hp: when the current busy period began; 0: there is none */
    _Atomic uint64_t linger_ns;         /* hp: the linger learnt so far */
    _Atomic uint64_t memory_bytes;      /* device memory that the hook counts (memory/memory.h) */
    _Atomic uint64_t memory_refusals;   /* allocations that failed because of the limit */
    _Atomic uint64_t given_up;          /* be: waits that ended because hp made no progress or was stopped */
    _Atomic uint64_t unknown_functions; /* looked-up driver functions that the hook does not know */
    /* be: waits at the gate; bucket i counts waits of [2^(i-1), 2^i) us, the last bucket also longer ones. */
    _Atomic uint64_t wait_bucket[ORION_WAIT_BUCKETS];
    _Atomic uint64_t gpu_ns;               /* be: time on the GPU, measured, of completed work */
    _Atomic uint64_t overlapped_launches;  /* be: launches that began while hp was busy */
    _Atomic uint64_t overlapped_ns;        /* be: expected time of the overlapped launches */
    _Atomic uint64_t partitioned_launches; /* be: launches that ran on a part of the SMs */
    /* hp: time per launch in overlapped periods, divided by the time per launch in control periods; 0: unknown. */
    _Atomic uint64_t slowdown_milli;
    _Atomic uint64_t overlap_ns;          /* hp: the age up to which a busy period allows overlap now */
    _Atomic uint64_t control_periods;     /* hp: busy periods that hp kept free of overlap for comparison */
    _Atomic uint64_t shares_context;      /* 1: contexts run together (MPS) */
    _Atomic uint64_t long_kernel_ns;      /* be: its longest kernel's duration, if over the policy's long_kernel_ns */
    char long_kernel_name[128];           /* be: that kernel's name, NUL-padded; written before long_kernel_ns */
    _Atomic uint64_t fault;               /* the CUresult with which the client first lost its context; 0: none */
    _Atomic uint64_t launches_counted_ns; /* when `launches` was counted; divide by the time between two counts */
    _Atomic uint64_t piece_ns;            /* be: about the longest work between two waits at the valve, lately */
    _Atomic uint64_t credit_epoch;        /* of the grant page whose credit the client keeps to; written after memory_bytes */
    _Atomic uint64_t parking;             /* be: orion_pack_parking: its answer to the grant's `park`; 0: never asked */
    _Atomic uint64_t parking_since_ns;    /* be: since when it is in that state */
    uint64_t retired;                     /* 0; earlier hooks of layout 5 write it, so no layout before 7 may use it */
    /* hp: the last closed busy periods; earlier hooks leave 0. Period n is at n % ORION_BUSY_PERIODS. One thread
     * at a time stores its begin, its end, and then n + 1 in busy_periods, each with release order. A reader reads
     * busy_periods (n), the periods, and busy_periods again (m), each with acquire order. Then the periods from
     * m - ORION_BUSY_PERIODS + 1 to n - 1 are whole: the writer may be storing period m. */
    struct orion_busy_period period[ORION_BUSY_PERIODS];
    _Atomic uint64_t ran_on_ns; /* be: what of gpu_ns ran after the slot's turns (be/turns.h); earlier hooks leave 0 */
    /* The least and the most of memory_bytes since the agent's last question to the driver, in MiB, behind the number of the question. A
     * client that has changed nothing since has an earlier number. */
    _Atomic uint64_t memory_least, memory_most;
    _Atomic uint64_t has_pools; /* 1: the device may hold less than memory_bytes at any moment: pools give back without a word */
    /* What of memory_bytes is surely taken, and ORION_MEMORY_TAKEN: not what the driver is about to be asked for. Earlier hooks leave 0. */
    _Atomic uint64_t memory_taken;
    uint8_t unused[1256];
};

/* A rank: one client of a job, that is, one process on one GPU. Only this client writes its words, and the agent clears
 * them when the client has left. `*_until_ms` are ends of leases: CLOCK_MONOTONIC in milliseconds, low 32 bits; 0: no
 * lease. Readers ignore an end that is over, or further away than a lease. So a rank that dies or stops holds its peers
 * for no longer than a lease. */
struct orion_rank {
    _Atomic uint32_t tied;            /* 1: has launched a collective */
    _Atomic uint32_t launched;        /* the number of its last collective; numbers wrap around */
    _Atomic uint32_t has_hp;          /* 1: its GPU has an hp client */
    _Atomic uint32_t closed_until_ms; /* the hp of its GPU is busy */
    _Atomic uint32_t ending_until_ms; /* one of its contexts ends, so all its work must be able to finish */
    uint32_t spare[11];
    /* The GPU writes these, in a line of their own. */
    _Atomic uint32_t begun;                          /* the number of the last collective that began */
    _Atomic uint32_t arrived[ORION_MEETING_STREAMS]; /* by stream: the last collective that it has come to: be/meetings.h */
    uint32_t unused[15 - ORION_MEETING_STREAMS];
};

/* The header's `gpu` is the name of the job page, which no other job page has. */
struct orion_job_page {
    struct orion_page_header header;
    _Atomic uint32_t allowed; /* the highest number that may begin on any GPU: see be/collective.h */
    _Atomic uint32_t ranks;   /* no rank has this index or a higher one; written by the agent */
    uint32_t spare[14];
    struct orion_rank rank[ORION_RANKS_MAX];
};

/* One launch of hp: SMs (16 bits), class (8 bits), the launch's number (8 bits, to distinguish equal launches),
 * expected duration in 100 ns (32 bits, saturating). Unknown values are 0. */
static inline uint64_t orion_pack_current(uint32_t sms, uint32_t kernel_class, uint32_t launch, uint64_t expected_ns)
{
    uint64_t hundreds = expected_ns / 100 > UINT32_MAX ? UINT32_MAX : expected_ns / 100;
    return (uint64_t)(sms & 0xffff) | (uint64_t)(kernel_class & 0xff) << 16 | (uint64_t)(launch & 0xff) << 24 | hundreds << 32;
}
static inline uint32_t orion_current_sms(uint64_t current) { return (uint32_t)current & 0xffff; }
static inline uint32_t orion_current_class(uint64_t current) { return (uint32_t)(current >> 16) & 0xff; }
static inline uint32_t orion_current_launch(uint64_t current) { return (uint32_t)(current >> 24) & 0xff; }
static inline uint64_t orion_current_ns(uint64_t current) { return (current >> 32) * 100; }

/* The states of a be client that the agent asks to leave the GPU's memory, and to come back: hook/src/parking/parking.h.
 *   RUNNING    as if nobody had asked
 *   LEAVING    its launches wait; work in flight ends; then the driver copies its memory to the host
 *   PARKED     it holds nothing on the GPU
 *   RETURNING  the driver copies its memory back
 *   REFUSED    it runs on, and holds its memory; the reason says why. It tries again upon a newer wish
 *   LOST       it could not come back, and never will: the driver fails all of its calls */
enum orion_parking_state {
    ORION_PARKING_RUNNING = 0,
    ORION_PARKING_LEAVING = 1,
    ORION_PARKING_PARKED = 2,
    ORION_PARKING_RETURNING = 3,
    ORION_PARKING_REFUSED = 4,
    ORION_PARKING_LOST = 5
};
enum orion_parking_reason {
    ORION_PARKING_REASON_NONE = 0,
    ORION_PARKING_REASON_NO_DRIVER = 1,  /* the driver has no such calls */
    ORION_PARKING_REASON_MANAGED = 2,    /* the process has managed memory */
    ORION_PARKING_REASON_IMPORTED = 3,   /* it has memory of another process, or another one or a device may have its memory */
    ORION_PARKING_REASON_TOGETHER = 4,   /* contexts run together (MPS) */
    ORION_PARKING_REASON_IS_HP = 5,      /* it is hp on another GPU */
    ORION_PARKING_REASON_BUSY = 6,       /* its work did not end in time */
    ORION_PARKING_REASON_CAPTURING = 7,  /* it captures a graph, or ends a context */
    ORION_PARKING_REASON_LOCK = 8,       /* a call of the program did not return in time, or holds the driver */
    ORION_PARKING_REASON_CHECKPOINT = 9, /* the driver refused to copy its memory out */
    ORION_PARKING_REASON_RESTORE = 10,   /* the driver could not copy its memory back */
    ORION_PARKING_REASON_SLOTS = 11,     /* it uses a GPU whose slot does not park */
    ORION_PARKING_REASON_HOST = 12       /* it has a pool or memory of cuMemCreate on the host */
};

/* number: the wish that the client answers; result: the CUresult that explains the reason, or 0. */
static inline uint64_t orion_pack_parking(uint32_t number, uint32_t result, enum orion_parking_reason reason,
                                          enum orion_parking_state state)
{
    return (uint64_t)number << 32 | (uint64_t)(result & 0xffff) << 16 | (uint64_t)(reason & 0xff) << 8 | (uint64_t)(state & 0xff);
}

_Static_assert(sizeof(struct orion_page_header) == 64, "header");
_Static_assert(sizeof(struct orion_policy_page) == ORION_PAGE_SIZE, "policy page");
_Static_assert(offsetof(struct orion_policy_page, stopped) == 2048, "stopped");
_Static_assert(sizeof(struct orion_grant) == 128, "grant");
_Static_assert(sizeof(struct orion_grant_page) == ORION_PAGE_SIZE, "grant page");
_Static_assert(offsetof(struct orion_grant_page, besides) == 512, "besides");
_Static_assert(offsetof(struct orion_grant_page, credit_mib) == 2048, "credit");
_Static_assert(sizeof(struct orion_busy_page) == ORION_PAGE_SIZE, "busy page");
_Static_assert(offsetof(struct orion_busy_page, state) == 64, "busy line");
_Static_assert(offsetof(struct orion_busy_page, current) == 112, "all that be reads of hp at the gate is in one cache line");
_Static_assert(sizeof(struct orion_record_page) == ORION_PAGE_SIZE, "record page");
_Static_assert(sizeof(struct orion_rank) == 128 && offsetof(struct orion_rank, begun) == 64, "rank");
_Static_assert(sizeof(struct orion_job_page) == ORION_PAGE_SIZE, "job page");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "shared words must be lock-free");

#endif
