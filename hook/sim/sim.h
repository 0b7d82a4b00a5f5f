/* The driver inside one process: handles, the current context, and the start of every call.
 *
 * A handle is the address of a 512-byte entry in one arena. The arena is never unmapped, so the driver can read an
 * entry's kind and detect a handle that is stale or foreign. Threads change shared state only between sim_enter and
 * sim_leave, which admit one thread at a time. */
#ifndef ORION_SIM_SIM_H
#define ORION_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "call.h"
#include "queue.h"
#include "state.h"

#define SIM_DRIVER_VERSION 13000
#define SIM_MAX_THREADS 1024
#define SIM_SHARED_MEMORY 49152
#define SIM_SHARED_MEMORY_OPTIN 232448
#define SIM_PRIORITIES 6 /* stream priorities 0 (lowest) to -5 */
#define SIM_PARAMETERS 64
#define SIM_EXPORT __attribute__((visibility("default")))

enum sim_handle_kind {
    SIM_FREE = 0,
    SIM_CONTEXT = 0x51430001,
    SIM_STREAM,
    SIM_EVENT,
    SIM_MODULE,
    SIM_LIBRARY,
    SIM_FUNCTION,
    SIM_GRAPH,
    SIM_NODE,
    SIM_EXEC,
    SIM_POOL,
    SIM_PHYSICAL,
    SIM_CAPTURE,
    SIM_GREEN,
    SIM_RESOURCES,
    SIM_CONDITION,
};

struct sim_capture;
struct sim_launch;

struct CUctx_st {
    uint32_t kind;
    int device;
    uint64_t slot;
    unsigned flags, references;
    unsigned peers; /* devices with enabled access, one bit each */
    bool primary, dead;
    unsigned long long id;
    _Atomic CUresult sticky; /* an error that stays until the context is destroyed */
    size_t limits[CU_LIMIT_MAX];
    struct CUstream_st *legacy;     /* the legacy default stream */
    struct CUstream_st *everything; /* a hidden stream in which events of the whole context are recorded */
    struct CUstream_st *streams;    /* all streams, including the two above and those of its green contexts */
    struct CUgreenCtx_st *greens;
    struct CUgreenCtx_st *green; /* not NULL: this is only a name for that green context; see green.h */
    _Atomic int holder;          /* of such a name: the thread whose stack contains it; 0: none */
    unsigned holds;              /* how often that stack contains it; only that thread uses this */
};

struct CUstream_st {
    uint32_t kind;
    struct CUctx_st *context;    /* for a stream of a green context: the primary context */
    struct CUgreenCtx_st *green; /* NULL: none */
    bool detached;               /* its green context was destroyed */
    struct CUstream_st *next;
    uint64_t slot, generation;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool legacy;
    _Atomic uint64_t thread;     /* not 0: it is this thread's own default stream */
    struct sim_capture *capture; /* NULL: not capturing */
    void *frontier;              /* while capturing: the nodes that the next node depends on */
    size_t frontier_count;
    bool capture_origin;
};

struct CUevent_st {
    uint32_t kind;
    struct CUctx_st *context;
    unsigned flags;
    uint64_t slot, slot_generation;      /* time stamp; slot SIM_NEVER: none */
    struct sim_position at;              /* the last record; number 0: never; access only through sim_event_position */
    _Atomic unsigned version;            /* odd while `at` is being set */
    struct sim_capture *_Atomic capture; /* the capture that contains the last record; NULL: none */
    uint64_t capture_id;
    void *frontier; /* in that capture: the nodes before the record */
    size_t frontier_count;
};

/* A kernel of an image. Its CUkernel and its CUfunction are both the address of this structure. */
struct sim_kernel {
    uint32_t kind;
    struct sim_image *image;
    char name[128];
    uint64_t label; /* for the trace */
    uint64_t duration_ns, sms;
    bool sms_of_grid;                      /* the kernel uses as many SMs as its blocks fill */
    int duration_parameter, sms_parameter; /* the launch takes the value from this parameter; -1: fixed */
    int log_parameter;                     /* -1: none; else the kernel writes to a log, see struct sim_log */
    bool barrier;                          /* its blocks wait for each other, so all of them must run at once */
    int meets_parameter;                   /* -1: none; else the kernel waits for kernels of other GPUs, see meeting.c */
    CUresult error;                        /* the permanent error of the context after this kernel; CUDA_SUCCESS: none */
    int parameter_count;
    uint16_t parameter_size[SIM_PARAMETERS], parameter_offset[SIM_PARAMETERS];
    int max_dynamic_shared, preferred_carveout;
    _Atomic bool loaded; /* its code is on the GPU: from its first launch on */
};

/* The address of a log is a parameter of a kernel, 0: none; the next parameter is what the kernel appends when it has
 * run. The program owns the log, and makes it long enough. */
struct sim_log { uint64_t count, entries[]; };

/* The arena. */
bool sim_handles_open(void);
void *sim_handle_new(enum sim_handle_kind kind, size_t size);
void sim_handle_free(void *handle);
bool sim_handle_is(const void *handle, enum sim_handle_kind kind);

/* Every CUDA call starts with one of these two, by the macros, which also begin the call (call.h). Both check that the
 * driver is initialised, that the process is not a forked child, and that the thread does not run a host function. The
 * second also requires a context. */
CUresult sim_ready(void);
CUresult sim_context(struct CUctx_st **context);
#define SIM_REFUSE(condition, error) \
    do { \
        if (condition) return (error); \
    } while (0)
#define SIM_TRY(call) \
    do { \
        CUresult tried_ = (call); \
        if (tried_) return tried_; \
    } while (0)
#define SIM_READY() \
    SIM_CALL(); \
    SIM_TRY(sim_ready())
#define SIM_CONTEXT(name) \
    SIM_CALL(); \
    struct CUctx_st *name; \
    SIM_TRY(sim_context(&name))
#define SIM_IN_CONTEXT() \
    SIM_CALL(); \
    do { \
        struct CUctx_st *unused_; \
        SIM_TRY(sim_context(&unused_)); \
    } while (0)
#define SIM_STREAM(name, handle) \
    SIM_CALL(); \
    struct CUstream_st *name; \
    SIM_TRY(sim_stream(handle, &name))

extern __thread bool sim_per_thread_default; /* during this call the default stream is the thread's own */
extern _Atomic bool sim_forked;

/* Contexts. */
int sim_given_gpus(int into[SIM_GPUS]); /* the machine's GPUs that the container was given, in the machine's order */
void sim_choose_devices(void);          /* once, before the first query of devices */
int sim_device_count(void);
bool sim_device_valid(CUdevice device);
int sim_device_gpu(CUdevice device);                              /* the machine's number of a device of this process */
struct CUctx_st *sim_current(void);                               /* for a green context: its primary context */
CUresult sim_primary(CUdevice device, struct CUctx_st **context); /* in its present state, retained or not; NULL if inactive */

/* Streams. sim_stream finds the object of a handle, and makes a default stream at its first use. */
CUresult sim_stream(CUstream handle, struct CUstream_st **stream);
int sim_priority(int asked); /* the one that the driver gives */
CUresult sim_stream_new(struct CUctx_st *context, struct CUgreenCtx_st *green, unsigned flags, int priority,
                        struct CUstream_st **stream);
void sim_stream_forget(struct CUstream_st *stream);
struct sim_position sim_stream_position(struct CUstream_st *stream); /* behind all queued work; under the lock */
CUresult sim_stream_wait(struct CUstream_st *stream);

/* Queue one operation, ordered with the default stream. `at` (may be NULL) gets the operation's position. */
CUresult sim_submit(struct CUstream_st *stream, const struct sim_op *op, struct sim_position *at);

/* Queue work as an operation that takes the work's time. The caller has already moved the bytes. */
CUresult sim_submit_kernel(struct CUstream_st *stream, const struct sim_launch *launch, void *const *parameters);
CUresult sim_submit_copy(struct CUstream_st *stream, enum sim_engine engine, size_t bytes);
CUresult sim_submit_prefetch(struct CUstream_st *stream, enum sim_engine engine, uintptr_t start, size_t bytes); /* managed */
CUresult sim_submit_memset(struct CUstream_st *stream, uintptr_t start, size_t bytes);
/* A kernel that waits for kernels of other GPUs: the address of their word, and the number that the word must reach. */
CUresult sim_submit_meeting(struct CUstream_st *stream, const struct sim_op *kernel, uint64_t word, uint64_t number);
CUresult sim_submit_host(struct CUstream_st *stream, bool (*run)(void *), void *data, uint64_t early_ns);
CUresult sim_submit_record(struct CUstream_st *stream, struct CUevent_st *event);
/* Make a stream wait for all work queued in the streams of its context, or of its green context if it has one. */
CUresult sim_wait_for_streams(struct CUstream_st *stream);
/* Make a stream wait for work of another one: by the driver's own means, such as inside a graph; or by an event. */
CUresult sim_submit_wait(struct CUstream_st *stream, const struct sim_position *on);
CUresult sim_submit_event_wait(struct CUstream_st *stream, const struct sim_position *on);

/* Whether a batch of memory operations of a stream is valid. */
CUresult sim_check_memory_ops(const CUstreamBatchMemOpParams *ops, unsigned count, unsigned flags);

/* The position of an event's last record. Threads may record and query at the same time. */
struct sim_position sim_event_position(struct CUevent_st *event);
void sim_event_set_position(struct CUevent_st *event, const struct sim_position *at);

/* Kernels. */
struct sim_kernel *sim_kernel(const void *handle); /* NULL: not a kernel */
#define SIM_KERNEL_CALL(handle, wrong) \
    SIM_READY(); \
    SIM_REFUSE(wrong, CUDA_ERROR_INVALID_VALUE); \
    SIM_REFUSE(!sim_kernel(handle), CUDA_ERROR_INVALID_HANDLE)
int sim_blocks_per_sm(int threads, size_t shared); /* blocks of this many threads and bytes that fit on an SM */

/* Charge device memory, in bytes; false: not enough is left. */
bool sim_memory_take(struct CUctx_st *context, uint64_t bytes);
void sim_memory_return(struct CUctx_st *context, uint64_t bytes);

#endif
