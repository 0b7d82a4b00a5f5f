#include "hp/drain.h"

#include <sys/prctl.h>

#include "process.h"
#include "system.h"
#include "thread.h"
#include "generated/driver.h"
#include "hp/busy.h"
#include "streams/capture.h"
#include "streams/lanes.h"

#define MARKS 64u
#define LOOK_LEAST_NS (50 * ORION_MICROSECOND)
#define LOOK_MOST_NS ORION_MILLISECOND
#define REST_NS ORION_SECOND

struct mark { struct orion_lane *lane; uint64_t returned; };
struct marks {
    CUcontext context;
    bool alone;      /* one lane's stream, else all of the context's */
    uint32_t count;
    struct mark mark[MARKS];
};

/* A client of threads shares its context with others, whose work is not its own to wait for: one stream at a time, by an
 * event in it or by the one that was left behind it when it was destroyed. */
static bool is_proven_alone(struct orion_process *process, const struct orion_board *board, const struct orion_lane *lane)
{
    if (board->client == 0 || orion_lane_is_shared(process, lane)) return false;
    return atomic_load(&lane->state) == ORION_LANE_READY || atomic_load(&lane->last) != NULL;
}

/* The lanes of one context of the board that have unproven work. */
static bool mark_next_context(struct orion_process *process, struct orion_board *board, struct marks *marks)
{
    marks->context = NULL;
    marks->alone = false;
    marks->count = 0;
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used && marks->count < MARKS; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        if (lane->board != board) continue;
        uint64_t returned = atomic_load(&lane->returned);
        if (returned == atomic_load(&lane->drained)) continue;
        if (marks->context == NULL) marks->context = lane->context;
        if (lane->context != marks->context) continue;
        bool alone = is_proven_alone(process, board, lane);
        if (alone && marks->count > 0) continue;
        marks->mark[marks->count++] = (struct mark){lane, returned};
        marks->alone = alone;
        if (alone) break;
    }
    return marks->count > 0;
}

/* Leaves *event NULL unless it was recorded. */
static CUresult record_event(const struct marks *marks, CUevent *event)
{
    if (!marks->alone && orion_driver.cuCtxRecordEvent == NULL) return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = orion_driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return result;
    result = marks->alone ? orion_driver.cuEventRecord(*event, orion_lane_handle(marks->mark[0].lane))
                          : orion_driver.cuCtxRecordEvent(marks->context, *event);
    if (result == CUDA_SUCCESS) return result;
    orion_driver.cuEventDestroy_v2(*event);
    *event = NULL;
    return result;
}

/* The context's event is made, recorded and looked at with no capture begun and no context ended meanwhile. */
static CUresult record(struct orion_process *process, const struct marks *marks, CUevent *event)
{
    CUcontext popped;
    if (!orion_touch(process)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct orion_lane *lane = marks->mark[0].lane;
    CUresult result;
    if (marks->alone && atomic_load(&lane->state) != ORION_LANE_READY) { /* its stream has been destroyed */
        *event = atomic_exchange(&lane->last, NULL);
        result = *event != NULL ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED; /* just now: at the next look, then */
    } else if ((result = orion_driver.cuCtxPushCurrent_v2(marks->context)) == CUDA_SUCCESS) {
        result = record_event(marks, event);
        if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_OUT_OF_MEMORY) result = orion_driver.cuCtxSynchronize();
        orion_driver.cuCtxPopCurrent_v2(&popped);
    }
    orion_touched(process);
    return result;
}

/* The event's state; gives it back when it is of no more use. A context that has ended took its events with it. */
static CUresult look_at(struct orion_process *process, uint32_t epoch, CUevent event)
{
    if (!orion_touch(process)) return CUDA_ERROR_NOT_READY;
    CUresult result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (atomic_load(&process->context_epoch) == epoch) {
        result = orion_driver.cuEventQuery(event);
        if (result != CUDA_ERROR_NOT_READY) orion_driver.cuEventDestroy_v2(event);
    }
    orion_touched(process);
    return result;
}

static CUresult await(struct orion_process *process, uint32_t epoch, CUevent event)
{
    CUresult result;
    uint64_t pause = LOOK_LEAST_NS;
    while ((result = look_at(process, epoch, event)) == CUDA_ERROR_NOT_READY) {
        orion_sleep_precisely(pause);
        if (pause < LOOK_MOST_NS) pause += pause / 4;
    }
    return result;
}

/* False: nothing more to do for now. */
static bool drain_once(struct orion_process *process, struct orion_board *board)
{
    struct marks marks;
    CUevent event = NULL;
    /* One context a request: a process with several is asked about the others at the next look. */
    if (!mark_next_context(process, board, &marks)) {
        orion_busy_try_close(process, board);
        return false;
    }
    uint32_t epoch = atomic_load(&process->context_epoch);
    CUresult result = record(process, &marks, &event);
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) return false;
    if (result == CUDA_SUCCESS && event != NULL) result = await(process, epoch, event);
    /* A context whose calls fail for good (a sticky error, a driver shut down) has nothing left to wait for. */
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED) return false;
    for (uint32_t i = 0; i < marks.count; i++) orion_lane_prove(marks.mark[i].lane, marks.mark[i].returned);
    orion_busy_try_close(process, board);
    return marks.alone;
}

static void drain(struct orion_process *process, struct orion_board *board)
{
    for (unsigned streams = 0; streams < MARKS && drain_once(process, board); streams++) {}
}

static void *run(void *argument)
{
    struct orion_board *board = argument;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    prctl(PR_SET_NAME, "orion-drain", 0, 0, 0);
    orion_driver.cuThreadExchangeStreamCaptureMode(&mode);
    for (;;) {
        uint32_t bell = atomic_load(&board->drain_bell);
        if (atomic_exchange(&board->drain_wanted, 0)) drain(orion_the_process, board);
        else orion_futex_wait(&board->drain_bell, bell, REST_NS, false);
    }
    return NULL;
}

void orion_drain_want(struct orion_board *board)
{
    uint32_t none = 0;
    if (atomic_exchange(&board->drain_wanted, 1)) return;
    if (atomic_compare_exchange_strong(&board->drain_thread, &none, 1) && orion_thread_spawn(run, board) != 0) {
        atomic_store(&board->drain_thread, 0); /* tried again at the next look */
        atomic_store(&board->drain_wanted, 0);
    }
    atomic_fetch_add(&board->drain_bell, 1);
    orion_futex_wake_all(&board->drain_bell, false);
}
