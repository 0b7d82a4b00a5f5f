/* The driver's side in this process: handles, the current context, and how calls begin.
 *
 * Handles are addresses in one arena, 512 bytes each and never unmapped, so a stale or foreign handle is told by
 * looking at its kind. What several threads change is changed between sim_enter and sim_leave, which let one in. */
#ifndef ORION_SIM_SIM_H
#define ORION_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "queue.h"
#include "state.h"

#define SIM_DRIVER_VERSION 13000
#define SIM_MAX_THREADS 1024
#define SIM_SHARED_MEMORY 49152
#define SIM_SHARED_MEMORY_OPTIN 232448
#define SIM_PRIORITIES 6 /* stream priorities 0 (least) to -5 */
#define SIM_PARAMETERS 64
#define SIM_EXPORT __attribute__((visibility("default")))

enum sim_handle_kind {
    SIM_FREE = 0, SIM_CONTEXT = 0x51430001, SIM_STREAM, SIM_EVENT, SIM_MODULE, SIM_LIBRARY, SIM_FUNCTION,
    SIM_GRAPH, SIM_NODE, SIM_EXEC, SIM_POOL, SIM_PHYSICAL, SIM_ARRAY, SIM_CAPTURE, SIM_GREEN, SIM_RESOURCES,
};

struct sim_capture;
struct sim_launch;

struct CUctx_st {
    uint32_t kind;
    int device;
    uint64_t slot;
    unsigned flags, references;
    unsigned peers;                  /* devices to which access was enabled, a bit each */
    bool primary, dead;
    unsigned long long id;
    _Atomic CUresult sticky;         /* an error that stays until the context is destroyed */
    size_t limits[CU_LIMIT_MAX];
    struct CUstream_st *legacy;      /* the legacy default stream */
    struct CUstream_st *everything;  /* a hidden stream: where events of the whole context are recorded */
    struct CUstream_st *streams;     /* all streams, these two and those of its green contexts included */
    struct CUgreenCtx_st *greens;
    struct CUgreenCtx_st *green;     /* not NULL: this is only a name for that green context; see green.h */
};

struct CUstream_st {
    uint32_t kind;
    struct CUctx_st *context;        /* of a green context's stream: the primary context */
    struct CUgreenCtx_st *green;     /* NULL: none */
    bool detached;                   /* its green context was destroyed */
    struct CUstream_st *next;
    uint64_t slot, generation;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool legacy, per_thread;
    struct sim_capture *capture;     /* NULL: not capturing */
    void *frontier;                  /* while capturing: the nodes that the next one depends on */
    size_t frontier_count;
    bool capture_origin;
};

struct CUevent_st {
    uint32_t kind;
    struct CUctx_st *context;
    unsigned flags;
    uint64_t slot, slot_generation;  /* time stamp; slot SIM_NEVER: none */
    struct sim_position at;          /* the last record; number 0: never; by sim_event_position alone */
    _Atomic unsigned version;        /* odd while `at` is being set */
    struct sim_capture *_Atomic capture; /* recorded in this capture, ... */
    uint64_t capture_id;
    void *frontier;                  /* ... after these nodes */
    size_t frontier_count;
};

/* A kernel of an image, also while it is called a function. */
struct sim_kernel {
    uint32_t kind;
    struct sim_image *image;
    char name[128];
    uint64_t label;                  /* for the timeline */
    uint64_t duration_ns, sms;
    bool sms_of_grid;                /* as many SMs as its blocks fill */
    int duration_parameter, sms_parameter; /* taken from this parameter at launch; -1: fixed */
    CUresult error;                  /* what the context has after it, for ever; CUDA_SUCCESS: a good kernel */
    int parameter_count;
    uint16_t parameter_size[SIM_PARAMETERS], parameter_offset[SIM_PARAMETERS];
    int max_dynamic_shared, preferred_carveout;
};

/* The arena. */
bool sim_handles_open(void);
void *sim_handle_new(enum sim_handle_kind kind, size_t size);
void sim_handle_free(void *handle);
bool sim_handle_is(const void *handle, enum sim_handle_kind kind);

/* Every call begins with one of these: initialised, not a forked child, not in a host function; and with a context. */
CUresult sim_ready(void);
CUresult sim_context(struct CUctx_st **context);
#define SIM_READY() \
    do { \
        CUresult ready_ = sim_ready(); \
        if (ready_) \
            return ready_; \
    } while (0)
#define SIM_CONTEXT(name) \
    struct CUctx_st *name; \
    do { \
        CUresult ready_ = sim_context(&name); \
        if (ready_) \
            return ready_; \
    } while (0)
#define SIM_REFUSE(condition, error) \
    do { \
        if (condition) \
            return (error); \
    } while (0)
#define SIM_TRY(call) \
    do { \
        CUresult tried_ = (call); \
        if (tried_) \
            return tried_; \
    } while (0)

extern __thread bool sim_per_thread_default; /* the default stream is the thread's own, in this call */
extern _Atomic bool sim_forked;

/* Contexts. */
void sim_choose_devices(void);       /* once, before anybody asks for devices */
int sim_device_count(void);
bool sim_device_valid(CUdevice device);
int sim_device_gpu(CUdevice device); /* the machine's number of a device of this process */
struct CUctx_st *sim_current(void); /* for a green context its primary context */
CUresult sim_primary(CUdevice device, struct CUctx_st **context); /* as it is, retained or not; NULL if inactive */

/* Streams: the object behind a handle, the default ones made as needed. */
CUresult sim_stream(CUstream handle, struct CUstream_st **stream);
CUresult sim_stream_new(struct CUctx_st *context, struct CUgreenCtx_st *green, unsigned flags, int priority,
                        struct CUstream_st **stream);
void sim_stream_forget(struct CUstream_st *stream);
struct sim_position sim_stream_position(struct CUstream_st *stream); /* of all that is queued; under the lock */
CUresult sim_stream_wait(struct CUstream_st *stream);

/* Queue one operation, ordered with the default stream; `at` (may be NULL) is where it ends. */
CUresult sim_submit(struct CUstream_st *stream, const struct sim_op *op, struct sim_position *at);

/* Work by the time it takes. Bytes are moved at once, the time passes in the stream. */
CUresult sim_submit_kernel(struct CUstream_st *stream, const struct sim_launch *launch, void *const *parameters);
CUresult sim_submit_copy(struct CUstream_st *stream, enum sim_engine engine, size_t bytes);
CUresult sim_submit_memset(struct CUstream_st *stream, size_t bytes);
CUresult sim_submit_host(struct CUstream_st *stream, bool (*run)(void *), void *data, uint64_t early_ns);
CUresult sim_submit_record(struct CUstream_st *stream, struct CUevent_st *event);
/* Make a stream wait for all that is queued in the streams of its context; of its green context, if it is of one. */
CUresult sim_wait_for_streams(struct CUstream_st *stream);
CUresult sim_submit_wait(struct CUstream_st *stream, const struct sim_position *on);

/* Where an event was last recorded; threads may record and ask at the same time. */
struct sim_position sim_event_position(struct CUevent_st *event);
void sim_event_set_position(struct CUevent_st *event, const struct sim_position *at);

/* Kernels. */
struct sim_kernel *sim_kernel(const void *handle); /* NULL: not one */
int sim_blocks_per_sm(int threads, size_t shared); /* blocks of so many threads and bytes that an SM holds */

/* Memory of the device in use, in bytes; false: not that much left. */
bool sim_memory_take(struct CUctx_st *context, uint64_t bytes);
void sim_memory_return(struct CUctx_st *context, uint64_t bytes);

#endif
