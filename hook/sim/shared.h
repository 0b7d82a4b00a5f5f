/* The state of the simulated machine, as laid out in the shared file.
 *
 * The file is one header, which never moves, followed by regions. A region is a complete copy of the state; `current`
 * names the valid one. A process enters a region under its lock and logs every store before it makes the store. When an
 * owner keeps its lock (because it was killed, stopped or throttled), another process copies the region, undoes
 * the unfinished stores in the copy, and makes the copy current. If the owner continues later, it writes into a region
 * that no process reads. The owner detects this and does its work again. So one mechanism handles death, SIGSTOP and
 * CPU quotas.
 *
 * Rejected: a robust mutex alone (a stopped owner would stop the machine, and another library may use the thread's
 * robust list); two copies of all state, switched at every call (each launch would copy megabytes); a daemon (users
 * would have to start it).
 *
 * Words have 64 bits, except futexes, for which Linux requires 32. Times are nanoseconds of CLOCK_MONOTONIC. In this
 * folder, a slot is an entry of one of the state's arrays, numbered from 0. A reference is a slot's number, never an
 * address, because each process maps the file elsewhere. */
#ifndef ORION_SIM_SHARED_H
#define ORION_SIM_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_MAGIC UINT64_C(0x4d49534e4f49524f) /* "ORIONSIM" */
#define SIM_LAYOUT 10u
#define SIM_GPUS 16u
#define SIM_CLIENTS 1024u
#define SIM_CONTEXTS 2048u
#define SIM_STREAMS 4096u
#define SIM_RANGES 8192u /* allocations of managed memory */
#define SIM_QUEUE 1024u  /* operations pending in one stream */
#define SIM_EVENTS 65536u
#define SIM_JOURNAL 16384u
#define SIM_TRACE 16384u
#define SIM_SM_WORDS 4u
#define SIM_SMS (SIM_SM_WORDS * 64u) /* SMs of one GPU, at most */
#define SIM_NEVER UINT64_MAX
#define SIM_HOST_BYTES_PER_US 50000u     /* 50 GB/s between host and device */
#define SIM_TOGETHER (SIM_CONTEXTS + 1u) /* the group of the contexts of all MPS clients, which run together */

enum sim_mode { SIM_TIMESLICE = 0, SIM_MPS = 1 };
enum sim_engine { SIM_HOST_TO_DEVICE = 0, SIM_DEVICE_TO_HOST = 1, SIM_DEVICE_TO_DEVICE = 2, SIM_ENGINES = 3 };

/* What a running kernel waits for without advancing. */
enum sim_spin {
    SIM_SPINS_NEVER = 0,
    SIM_SPINS_FOR_SMS = 1,  /* its blocks wait for each other: it needs all its SMs */
    SIM_SPINS_FOR_PEERS = 2 /* it waits for kernels of other GPUs (meeting.c) */
};

enum sim_kind {
    SIM_KERNEL = 1,     /* runs on the compute engine */
    SIM_COPY = 2,       /* runs on the copy engine `sms` (enum sim_engine) */
    SIM_RECORD = 3,     /* writes the time into event slot a, if the slot's generation is b */
    SIM_WAIT = 4,       /* waits until stream slot a of generation b has completed c operations */
    SIM_EVENT_WAIT = 5, /* the same, by which a program waits for an event: keeps its context on the compute engine */
    SIM_EFFECT = 6,     /* waits until the owning process has run the host function or memory operation */
};

#define SIM_ANYWHERE 1u /* the kernel may use SMs outside `allowed` */
#define SIM_PAGED 2u    /* it waits for pages, and `a` says for how many bytes more */
#define SIM_PARTLY 4u   /* it touches a part of one range */
#define SIM_PRIORITY 8u /* from this bit on: the kernel's own priority; 0: that of its stream */

/* A set of SMs of one GPU, one bit each. */
struct sim_sms { uint64_t word[SIM_SM_WORDS]; };

/* One operation in a stream's queue. A process fills it without logging the stores, then includes it in `tail`. */
struct sim_op {
    uint64_t kind;
    uint64_t remaining_ns; /* valid while the operation does not run; a kernel: its time on `sms` SMs */
    uint64_t end_ns;       /* 0 while the operation does not run; an effect: not 0 once it is done */
    uint64_t sms;          /* number of SMs that the kernel needs; a copy: its engine */
    uint64_t a, b, c;      /* see enum sim_kind; a kernel: a = start of its piece (or SIM_PAGED); b: SIM_ANYWHERE and so on;
                            * c: enum sim_spin; a copy: b = 1: moves c bytes of managed memory, which takes what is missing then */
    uint64_t touches;      /* the managed memory that a kernel needs, or that a copy moves */
    uint64_t name;         /* valid in the owning process only */
};

/* `touches`: all managed memory of the context, none, or up to four ranges as numbers of 16 bits: their slots + 1. With SIM_PARTLY
 * one range, and in the bits behind it how many blocks. */
#define SIM_TOUCHES_ALL 0u
#define SIM_TOUCHES_NONE UINT64_MAX
#define SIM_TOUCHED 4u
#define SIM_BLOCK (UINT64_C(2) << 20) /* of managed memory: the driver moves no less */

struct sim_stream {
    uint64_t used, generation;
    uint64_t context;
    uint64_t priority;      /* 0 is the highest */
    uint64_t closing;       /* 1: destroyed; the slot is freed when the queue is empty */
    uint64_t busy_position; /* index in sim_state.busy, plus 1; 0: idle */
    uint64_t ready_ns;      /* when the operation at the head became the head */
    _Atomic uint64_t tail;  /* operations ever queued */
    _Atomic uint64_t done;  /* operations ever completed; the head of the queue has this number */
    struct sim_sms allowed; /* SMs that its kernels may use: all, or those of its green context */
    struct sim_sms held;    /* SMs on which the operation at the head runs */
};

struct sim_context {
    uint64_t used, client, gpu, memory, last_ran_ns, streams;
    uint64_t managed, resident; /* managed memory, and the part of it on the GPU, which `memory` contains, too (paging.c) */
    uint64_t away;              /* bytes that a checkpoint has taken off the GPU */
    uint64_t group;             /* the context's number + 1, or SIM_TOGETHER; different groups are time-sliced */
};
/* One allocation of managed memory. */
struct sim_range {
    uint64_t used, context, bytes, resident;
    uint64_t touched_ns; /* when a kernel that needs it last began, or pages of it last came */
    uint64_t pages_ns;   /* until then pages of it come in, and no kernel begins that needs it */
};
struct sim_client {
    uint64_t used, number, trace;
    uint64_t away_ns; /* checkpointed, and shown on its GPUs until this time; 0: not checkpointed */
};
struct sim_event {
    uint64_t used, generation, client, next;
    _Atomic uint64_t time_ns;
};
/* The time in which one kernel ran without interruption, for the trace. */
struct sim_piece { uint64_t client, start_ns, end_ns, name; };

struct sim_gpu {
    uint64_t memory;                       /* bytes in use */
    uint64_t link_ns;                      /* until then pages come in over the link to the host */
    uint64_t group;                        /* the group that uses the compute engine; 0: none */
    uint64_t last_group, switched_ns;      /* the last group that used it; from when on its kernels may run */
    uint64_t slice_start_ns, slice_end_ns; /* the end is 0 while no other group waits for the engine */
    struct sim_sms held;                   /* SMs on which kernels run */
    uint64_t copying[SIM_ENGINES];         /* by copy engine: the stream whose copy runs, plus 1; 0: idle */
};

/* Each `_high` is the number of slots of its array that were ever used. A copy of the state omits all other slots. The
 * scalars come first, because a copy takes them as one block. */
struct sim_state {
    uint64_t now_ns;
    _Atomic uint64_t next_ns; /* the state does not change before this time, unless a process queues an operation */
    uint64_t reaped_ns;
    uint64_t clients_high, contexts_high, ranges_high, streams_high, events_high;
    uint64_t event_free; /* first freed event slot, plus 1; 0: none, take a slot that was never used */
    uint64_t busy_count;
    uint64_t trace_head; /* pieces written so far; `trace` is a ring */
    struct sim_gpu gpus[SIM_GPUS];
    struct sim_client clients[SIM_CLIENTS];
    struct sim_context contexts[SIM_CONTEXTS];
    struct sim_range ranges[SIM_RANGES];
    struct sim_stream streams[SIM_STREAMS];
    uint64_t busy[SIM_STREAMS]; /* the streams whose queues are not empty, in no order */
    struct sim_event events[SIM_EVENTS];
    struct sim_piece trace[SIM_TRACE];
    struct sim_op queue[SIM_STREAMS][SIM_QUEUE];
};

struct sim_store { uint64_t offset, old; };

struct sim_region {
    _Atomic uint32_t lock;      /* 0 free, 1 held, 2 held and others wait; a futex */
    _Atomic uint32_t frozen;    /* 1: a process copies the region, and the copy may lack later commits */
    _Atomic uint64_t turns;     /* how many times a process took the lock */
    _Atomic uint64_t logged;    /* stores logged so far */
    _Atomic uint64_t committed; /* stores that are permanent */
    struct sim_store journal[SIM_JOURNAL];
    struct sim_state state;
};

struct sim_parameters {
    uint64_t gpus, sms, memory, slice_ns, switch_ns, mode, virtual_clock;
    uint64_t context_memory;           /* bytes of each GPU that a context takes for itself */
    uint64_t lock_ns, out_ns, back_ns; /* time of a checkpoint's lock; of each GiB that leaves the GPU and returns */
    uint64_t fault_ns;                 /* time in which page faults bring in a GiB of managed memory */
    uint64_t listed_ns;                /* for so long NVML lists a process that is checkpointed */
    uint64_t mig;                      /* GPUs with MIG enabled, one bit each */
    uint64_t linked[SIM_GPUS];         /* for each GPU, the GPUs that NVLink joins to it, one bit each */
    int64_t numa[SIM_GPUS];            /* each GPU's NUMA node, -1: none */
    char seed[128];
};

/* The faults of a GPU, as administration tools see them. They are not part of a region. */
struct sim_health {
    _Atomic uint64_t xid;  /* number of Xid events so far << 32 | code of the last */
    _Atomic uint32_t lost; /* 1: the GPU no longer responds */
};

struct sim_header {
    uint64_t magic;
    uint64_t layout; /* combines SIM_LAYOUT with the sizes of header and region */
    char boot[40];   /* the boot id; a file of another boot is invalid, because CLOCK_MONOTONIC started again */
    struct sim_parameters parameters;
    _Atomic uint64_t current;     /* number of the valid region */
    _Atomic uint64_t next_region; /* never reused, because a stopped owner may still write to an old region */
    _Atomic uint64_t virtual_ns;
    struct sim_health health[SIM_GPUS];
    _Atomic uint32_t fail_checkpoint, fail_restore; /* what the next one of any process returns; 0: as it goes */
    /* By client: a robust futex that the client's keeper thread holds. The word is the thread's id while the thread
     * lives; when it dies, Linux sets FUTEX_OWNER_DIED. Threads of two pid namespaces may have the same id, so a client
     * takes a word only while it has the claim of its index (file.h). */
    _Atomic uint32_t alive[SIM_CLIENTS];
};

#endif
