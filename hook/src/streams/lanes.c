#include "streams/lanes.h"

#include "process.h"
#include "system.h"
#include "agent/board.h"
#include "generated/driver.h"
#include "learning/identity.h"
#include "threads/inprocess.h"
#include "threads/log.h"

#define NEIGHBOURHOOD 32u
#define CLAIM_SPINS 10000u

/* The streams that this thread used last, by a hash of the handle: most threads use one or two. */
#define REMEMBERED 8u
struct remembered {
    CUstream handle;
    CUcontext context;
    uint32_t epoch;
    bool per_thread, nobodys; /* the stream of no client of threads: there is no lane */
    struct orion_lane *lane;
};
static _Thread_local struct remembered remembered_lanes[REMEMBERED];

static struct remembered *remembered_of(CUstream handle)
{
    uintptr_t bits = (uintptr_t)handle;
    return &remembered_lanes[(bits ^ (bits >> 4) ^ (bits >> 8) ^ (bits >> 13)) % REMEMBERED];
}

static bool is_default(CUstream handle) { return (uintptr_t)handle <= 2; }
static bool is_per_thread(struct orion_stream_name stream)
{
    return stream.handle == CU_STREAM_PER_THREAD || (stream.handle == NULL && stream.per_thread);
}

static uint64_t key_of(struct orion_stream_name stream, CUcontext context)
{
    if (!is_default(stream.handle)) return (uint64_t)(uintptr_t)stream.handle;
    uint64_t thread = is_per_thread(stream) ? (uint64_t)(uintptr_t)remembered_lanes : 0;
    return (orion_mix((uint64_t)(uintptr_t)context + thread * 3) << 1) | 1; /* odd: no handle is */
}

static bool find_device(CUcontext context, CUdevice *device)
{
    CUcontext current = NULL;
    if (orion_driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return false;
    bool switched = context != NULL && current != context;
    if (switched && orion_driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return false;
    CUresult result = orion_driver.cuCtxGetDevice(device);
    if (switched) orion_driver.cuCtxPopCurrent_v2(&current);
    return result == CUDA_SUCCESS;
}

uint32_t orion_lanes_begin(const struct orion_process *process)
{
    return atomic_load_explicit(&process->lanes.overflowed, memory_order_seq_cst) ? 0 : ORION_BOARDS;
}

static struct orion_lane *claimed(struct orion_process *process, struct orion_lane *lane, uint64_t key,
                                  struct orion_stream_name stream, CUcontext context, struct orion_board *board)
{
    struct orion_board *before = lane->board;
    uint64_t begun = atomic_load(&lane->begun);
    if (before != NULL && before->client != 0) atomic_fetch_add(&before->record->launches, begun - lane->begun_before);
    lane->begun_before = begun;
    lane->key = key;
    lane->stream = stream;
    lane->context = context;
    lane->board = board;
    lane->past_valve_ns = 0; /* and no wait stands in this stream yet */
    lane->valve_epoch = atomic_load(&board->valve.epoch) - 1;
    if (orion_lane_index(process, lane) < ORION_BOARDS) atomic_store(&process->lanes.overflowed, 1);
    uint32_t index = orion_lane_index(process, lane), used = atomic_load(&process->lanes.high_water);
    while (used <= index && !atomic_compare_exchange_weak(&process->lanes.high_water, &used, index + 1)) {}
    atomic_store_explicit(&lane->state, ORION_LANE_READY, memory_order_release);
    return lane;
}

static bool claimable(struct orion_lane *lane, uint32_t state)
{
    if (state == ORION_LANE_FREE) return true;
    return state == ORION_LANE_ENDED && atomic_load(&lane->drained) == atomic_load(&lane->begun);
}

/* A lane being claimed by another thread is waited for, shortly: it may be of the same stream. */
static uint32_t settled_state(struct orion_lane *lane)
{
    uint32_t state = atomic_load_explicit(&lane->state, memory_order_acquire);
    for (uint32_t i = 0; state == ORION_LANE_CLAIMED && i < CLAIM_SPINS; i++) {
        orion_pause();
        state = atomic_load_explicit(&lane->state, memory_order_acquire);
    }
    return state;
}

static struct orion_lane *look_up(struct orion_process *process, uint64_t key, struct orion_stream_name stream,
                                  CUcontext context, struct orion_board *board)
{
    /* Lane i of the first ORION_BOARDS is board i's overflow lane; hashed lanes come after, packed from the front so
     * that a walk over all lanes is short. */
    uint32_t overflow = (uint32_t)(board - process->boards);
    for (;;) {
        struct orion_lane *open = NULL;
        uint32_t state_of_open = 0, used = atomic_load(&process->lanes.high_water);
        for (uint32_t i = ORION_BOARDS; i < ORION_LANES; i++) {
            struct orion_lane *lane = &process->lanes.lane[i];
            uint32_t state = settled_state(lane);
            if (state == ORION_LANE_READY && lane->key == key) return lane;
            if (open == NULL && claimable(lane, state)) open = lane, state_of_open = state;
            if (i >= used && open != NULL) break;
        }
        if (open == NULL) open = &process->lanes.lane[overflow], state_of_open = settled_state(open);
        if (open == &process->lanes.lane[overflow] && state_of_open == ORION_LANE_READY) return open;
        if (atomic_compare_exchange_strong(&open->state, &state_of_open, ORION_LANE_CLAIMED))
            return claimed(process, open, key, stream, context, board);
    }
}

static struct orion_lane *known_lane(struct orion_process *process, uint64_t key)
{
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = ORION_BOARDS; i < used; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        if (settled_state(lane) == ORION_LANE_READY && lane->key == key) return lane;
    }
    return NULL;
}

/* Between clients that are threads of this process: a stream stays its first client's whoever uses it later (a backward
 * pass runs in a thread of its own), and is nobody's until a client uses it. */
static struct orion_lane *lane_of_client(struct orion_process *process, struct orion_stream_name stream, CUcontext context,
                                         CUdevice device)
{
    uint64_t key = key_of(stream, context);
    struct orion_lane *lane = known_lane(process, key);
    if (lane != NULL) return lane;
    struct orion_board *board = orion_inprocess_board(process, stream.handle, device);
    if (board == NULL) return NULL;
    lane = look_up(process, key, stream, context, board);
    atomic_fetch_add(&process->lane_epoch, 1); /* who remembers it as nobody's looks again */
    orion_log(ORION_LOG_DEBUG, "stream %p is client %u's", (void *)stream.handle, board->client - 1);
    return lane;
}

static struct orion_lane *lane_slowly(struct orion_process *process, struct orion_stream_name stream, CUcontext context)
{
    CUdevice device;
    struct orion_lane *lane;
    bool threads = orion_inprocess_runs(process);
    uint32_t epoch = atomic_load(&process->lane_epoch);
    if (!is_default(stream.handle) && orion_driver.cuStreamGetCtx(stream.handle, &context) != CUDA_SUCCESS) return NULL;
    if (!find_device(context, &device)) return NULL;
    if (threads) {
        lane = lane_of_client(process, stream, context, device);
    } else {
        struct orion_board *board = orion_board_of(device);
        if (board == NULL) return NULL;
        orion_board_await_join(board);
        if (atomic_load(&board->role) == ORION_ROLE_NONE) return NULL;
        lane = look_up(process, key_of(stream, context), stream, context, board);
    }
    *remembered_of(stream.handle) = (struct remembered){stream.handle, context, epoch, stream.per_thread, lane == NULL, lane};
    return lane;
}

struct orion_lane *orion_lane_of(struct orion_process *process, struct orion_stream_name stream)
{
    CUcontext context = NULL;
    const struct remembered *last = remembered_of(stream.handle);
    bool same = (last->lane != NULL || last->nobodys) && last->handle == stream.handle && last->per_thread == stream.per_thread &&
                last->epoch == atomic_load_explicit(&process->lane_epoch, memory_order_acquire);
    if (is_default(stream.handle)) {
        if (orion_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL) return NULL;
        same = same && last->context == context;
    }
    return __builtin_expect(same, 1) ? last->lane : lane_slowly(process, stream, context);
}

CUstream orion_lane_handle(const struct orion_lane *lane)
{
    if (lane->stream.handle != NULL) return lane->stream.handle;
    return lane->stream.per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

uint32_t orion_lane_index(const struct orion_process *process, const struct orion_lane *lane)
{
    return (uint32_t)(lane - process->lanes.lane);
}

bool orion_lane_is_shared(const struct orion_process *process, const struct orion_lane *lane)
{
    return orion_lane_index(process, lane) < ORION_BOARDS;
}

void orion_lane_prove(struct orion_lane *lane, uint64_t returned)
{
    uint64_t drained = atomic_load(&lane->drained);
    while (drained < returned && !atomic_compare_exchange_weak(&lane->drained, &drained, returned)) {}
    if (drained < returned) atomic_fetch_add_explicit(&lane->board->busy->progress, 1, memory_order_relaxed);
}
