#include "window.h"

#include "accounts.h"
#include "board.h"
#include "capture.h"
#include "gate.h"
#include "generated/driver.h"
#include "lanes.h"
#include "process.h"
#include "system.h"

#define CHUNKS_A_WINDOW 8u
#define CHUNK_LEAST_NS (20 * ORION_MICROSECOND)
#define SHARE_LEAST_NS (20 * ORION_MICROSECOND)
#define LEDGER_SPINS 4000u
#define NEW_WAIT_NS (10 * ORION_MILLISECOND)   /* so long without waiting: what is waited for is something new */
#define FORGET_TRIES 1000u
#define STUCK_NS ORION_SECOND                  /* work that waits for what only the next launch brings */
#define WAKE_BEFORE_NS (30 * ORION_MICROSECOND)
#define DRY_NS (100 * ORION_MICROSECOND)       /* less queued than this, and a late waker leaves the GPU idle */
#define SLEEP_LEAST_NS (20 * ORION_MICROSECOND)
#define SLEEP_MOST_NS ORION_MILLISECOND        /* for work that goes alone: hp's state is looked at between sleeps */
#define SLEEP_MOST_OF_LIMIT 4u                 /* else at most so much of the window: expectations may be too long */
#define LATE_SLEEP_NS (50 * ORION_MICROSECOND)

uint64_t orion_window_share(const struct orion_board *board)
{
    uint64_t share = orion_board_grant(board)->window_share_ns;
    return share < SHARE_LEAST_NS ? SHARE_LEAST_NS : share;
}

bool orion_ledger_take(struct orion_board *board)
{
    for (uint32_t i = 0; i < LEDGER_SPINS; i++) {
        if (!atomic_exchange_explicit(&board->ledger, 1, memory_order_acquire)) return true;
        while (i < LEDGER_SPINS && atomic_load_explicit(&board->ledger, memory_order_relaxed)) orion_pause(), i++;
    }
    return false;
}

void orion_ledger_give(struct orion_board *board)
{
    atomic_store_explicit(&board->record->in_flight_ns, atomic_load(&board->in_flight_ns), memory_order_relaxed);
    atomic_store_explicit(&board->ledger, 0, memory_order_release);
}

static void take_off(struct orion_board *board, uint64_t cost_ns)
{
    uint64_t held = atomic_load(&board->in_flight_ns);
    while (!atomic_compare_exchange_weak(&board->in_flight_ns, &held, held > cost_ns ? held - cost_ns : 0)) {}
}

void orion_window_leave(struct orion_board *board, uint64_t expected_ns) { take_off(board, expected_ns); }

/* -- Chunks ---------------------------------------------------------------------------------------------------------- */

static bool event_ready(CUevent *event, unsigned flags)
{
    return *event != NULL || orion_driver.cuEventCreate(event, flags) == CUDA_SUCCESS;
}

static struct orion_chunk *next_chunk(struct orion_chunks *chunks)
{
    return chunks->count < ORION_CHUNKS ? &chunks->ring[(chunks->first + chunks->count) % ORION_CHUNKS] : NULL;
}

static void push_chunk(struct orion_chunks *chunks, struct orion_chunk *chunk, uint64_t identity)
{
    chunk->cost_ns = chunks->open_ns;
    chunk->begun_ns = chunks->open_since_ns;
    chunk->identity = identity;
    chunks->open_ns = 0;
    chunks->count++;
}

static void close_chunk(struct orion_process *process, struct orion_lane *lane)
{
    struct orion_chunks *chunks = &lane->chunks;
    struct orion_chunk *chunk = next_chunk(chunks);
    if (chunk == NULL || chunks->sampling || orion_lane_is_shared(process, lane)) return; /* the cost goes into the next chunk */
    struct orion_relaxed relaxed = orion_capture_relax();
    if (event_ready(&chunk->end, CU_EVENT_DISABLE_TIMING) &&
        orion_driver.cuEventRecord(chunk->end, orion_lane_handle(lane)) == CUDA_SUCCESS)
        push_chunk(chunks, chunk, 0);
    orion_capture_unrelax(&relaxed);
}

static void learn(struct orion_process *process, struct orion_board *board, struct orion_chunk *chunk)
{
    float milliseconds = 0;
    if (chunk->identity == 0 || orion_gate_touched_since(board, chunk->begun_ns)) return;
    if (orion_driver.cuEventElapsedTime(&milliseconds, chunk->timed_start, chunk->timed_end) != CUDA_SUCCESS) return;
    if (!(milliseconds >= 0 && milliseconds < 1e6f)) return;
    uint64_t measured_ns = (uint64_t)((double)milliseconds * 1e6);
    orion_duration_learn(&process->durations, chunk->identity, measured_ns);
    orion_account_long_kernel(process, board, chunk->identity, measured_ns);
    atomic_fetch_add_explicit(&board->record->samples, 1, memory_order_relaxed);
    atomic_store_explicit(&board->record->kernels_known, atomic_load(&process->durations.known), memory_order_relaxed);
}

static void retire(struct orion_process *process, struct orion_lane *lane)
{
    struct orion_chunks *chunks = &lane->chunks;
    struct orion_chunk *chunk = &chunks->ring[chunks->first];
    /* When the next one began to run, as far as can be told: behind this one, and not in the future. */
    uint64_t now = orion_now(), began = chunk->begun_ns > lane->board->head_ns ? chunk->begun_ns : lane->board->head_ns;
    lane->board->head_ns = chunk->cost_ns < ORION_SECOND && began + chunk->cost_ns < now ? began + chunk->cost_ns : now;
    learn(process, lane->board, chunk);
    orion_account_gpu_time(lane->board, chunk->cost_ns, now - chunk->begun_ns);
    take_off(lane->board, chunk->cost_ns);
    chunks->first = (chunks->first + 1) % ORION_CHUNKS;
    chunks->count--;
}

/* Retires what has completed. Returns how many chunks. */
static unsigned reap_lane(struct orion_process *process, struct orion_lane *lane)
{
    unsigned retired = 0;
    struct orion_chunks *chunks = &lane->chunks;
    while (chunks->count > 0) {
        struct orion_chunk *chunk = &chunks->ring[chunks->first];
        CUevent end = chunk->identity != 0 ? chunk->timed_end : chunk->end;
        CUresult result = orion_driver.cuEventQuery(end);
        if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) break;
        retire(process, lane);
        retired++;
    }
    return retired;
}

static void drop_lane(struct orion_lane *lane)
{
    struct orion_chunks *chunks = &lane->chunks;
    uint64_t cost = chunks->open_ns;
    for (uint32_t i = 0; i < chunks->count; i++) cost += chunks->ring[(chunks->first + i) % ORION_CHUNKS].cost_ns;
    chunks->first = (chunks->first + chunks->count) % ORION_CHUNKS; /* the slot behind stays: a sample may be in it */
    chunks->open_ns = chunks->count = 0;
    take_off(lane->board, cost);
}

/* -- Waiting for the window ------------------------------------------------------------------------------------------ */

/* Looks at every lane of the board and retires what is done. Returns how many chunks. */
static unsigned look(struct orion_process *process, struct orion_board *board, uint64_t now)
{
    unsigned retired = 0;
    uint32_t at_work = 0;
    uint64_t head = UINT64_MAX;
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++) {
        struct orion_lane *lane = &process->lanes.lane[i];
        if (lane->board != board) continue;
        struct orion_chunks *chunks = &lane->chunks;
        retired += reap_lane(process, lane);
        at_work += chunks->count > 0 || chunks->open_ns > 0;
        if (chunks->count > 0) {
            if (chunks->ring[chunks->first].begun_ns < head) head = chunks->ring[chunks->first].begun_ns;
        } else if (chunks->open_ns > 0 && now - chunks->open_since_ns > 4 * ORION_RUN_AHEAD * orion_window_share(board)) {
            drop_lane(lane); /* a tail without an event, long over by all that is known */
            retired++;
        }
    }
    if (head != UINT64_MAX && head > board->head_ns) board->head_ns = head;
    board->lanes_at_work = at_work;
    return retired;
}

/* Sleeps until the work in flight should have shrunk enough: to half of the window, so that the GPU is kept busy by the
 * other half while this thread wakes up and refills; to nothing for work that goes alone. Only where the GPU might run
 * dry meanwhile does it wake early and look without sleeping. */
static void wait_for_room(const struct orion_board *board, uint64_t expected_ns, uint64_t limit, uint64_t now)
{
    uint64_t held = atomic_load(&board->in_flight_ns);
    uint64_t target = expected_ns > limit ? 0 : limit - expected_ns < limit / 2 ? limit - expected_ns : limit / 2;
    bool dry = target < DRY_NS;
    uint64_t needed = held > target && held < ORION_WINDOW_ALONE ? held - target : 0; /* an unknown: it may end at once */
    uint64_t spent = now > board->head_ns ? now - board->head_ns : 0;
    uint64_t early = dry ? WAKE_BEFORE_NS : 0;
    uint64_t most = expected_ns > limit ? SLEEP_MOST_NS : limit / SLEEP_MOST_OF_LIMIT;
    if (most > SLEEP_MOST_NS) most = SLEEP_MOST_NS;
    if (needed > spent + early) {
        uint64_t sleep = needed - spent - early < most ? needed - spent - early : most;
        orion_sleep_precisely(sleep < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : sleep);
    } else if (dry && (needed > spent || spent - needed < WAKE_BEFORE_NS)) {
        for (unsigned i = 0; i < 64; i++) orion_pause();
    } else {
        uint64_t late = spent > needed ? (spent - needed) / 4 : 0;
        orion_sleep_precisely(late < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : late < LATE_SLEEP_NS ? late : LATE_SLEEP_NS);
    }
}

static void forget_all(struct orion_process *process, struct orion_board *board)
{
    uint32_t used = atomic_load(&process->lanes.high_water);
    for (uint32_t i = orion_lanes_begin(process); i < used; i++)
        if (process->lanes.lane[i].board == board) drop_lane(&process->lanes.lane[i]);
    atomic_store(&board->in_flight_ns, 0);
}

static void wait_once(struct orion_process *process, struct orion_lane *lane, uint64_t expected_ns, uint64_t limit)
{
    struct orion_board *board = lane->board;
    uint64_t now = orion_now();
    if (!orion_ledger_take(board)) {
        orion_sleep_precisely(SLEEP_LEAST_NS);
        return;
    }
    struct orion_relaxed relaxed = orion_capture_relax();
    unsigned retired = look(process, board, now);
    if (retired == 0 && lane->chunks.open_ns > 0) close_chunk(process, lane);
    if (retired > 0 || now > board->waited_ns + NEW_WAIT_NS || orion_gate_closed(board)) board->moved_ns = now;
    board->waited_ns = now;
    if (now > board->moved_ns + STUCK_NS) forget_all(process, board), retired = 1;
    orion_capture_unrelax(&relaxed);
    orion_ledger_give(board);
    if (retired == 0) wait_for_room(board, expected_ns, limit, now);
}

bool orion_window_enter(struct orion_process *process, struct orion_lane *lane, uint64_t expected_ns, uint64_t limit_ns)
{
    struct orion_board *board = lane->board;
    uint64_t held = atomic_load(&board->in_flight_ns);
    while (held == 0 || held + expected_ns <= limit_ns)
        if (atomic_compare_exchange_weak(&board->in_flight_ns, &held, held + expected_ns)) return true;
    uint64_t began = orion_now();
    wait_once(process, lane, expected_ns, limit_ns);
    atomic_store_explicit(&board->record->window_share_ns, orion_window_share(board), memory_order_relaxed);
    atomic_fetch_add_explicit(&board->record->window_wait_ns, orion_now() - began, memory_order_relaxed);
    return false;
}

/* -- Around a launch ------------------------------------------------------------------------------------------------- */

void orion_window_launching(struct orion_process *process, struct orion_lane *lane, uint64_t identity)
{
    if (orion_lane_is_shared(process, lane) || !orion_ledger_take(lane->board)) return;
    struct orion_chunk *chunk = next_chunk(&lane->chunks);
    if (chunk != NULL && !lane->chunks.sampling) {
        struct orion_relaxed relaxed = orion_capture_relax();
        if (event_ready(&chunk->timed_start, CU_EVENT_DEFAULT) && event_ready(&chunk->timed_end, CU_EVENT_DEFAULT) &&
            orion_driver.cuEventRecord(chunk->timed_start, orion_lane_handle(lane)) == CUDA_SUCCESS) {
            chunk->identity = identity;
            lane->chunks.sampling = true;
        }
        orion_capture_unrelax(&relaxed);
    }
    orion_ledger_give(lane->board);
}

static void end_sample(struct orion_lane *lane)
{
    struct orion_chunks *chunks = &lane->chunks;
    struct orion_chunk *chunk = next_chunk(chunks);
    chunks->sampling = false;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (orion_driver.cuEventRecord(chunk->timed_end, orion_lane_handle(lane)) == CUDA_SUCCESS)
        push_chunk(chunks, chunk, chunk->identity);
    orion_capture_unrelax(&relaxed);
}

void orion_window_launched(struct orion_process *process, struct orion_lane *lane, uint64_t expected_ns, bool timed)
{
    struct orion_board *board = lane->board;
    if (!orion_ledger_take(board)) {
        take_off(board, expected_ns);
        return;
    }
    struct orion_chunks *chunks = &lane->chunks;
    if (chunks->open_ns == 0) chunks->open_since_ns = orion_now();
    chunks->open_ns += expected_ns;
    /* While running ahead, a chunk is a whole window; else an eighth of one. */
    uint64_t share = orion_window_share(board);
    bool ahead = atomic_load_explicit(&board->valve.in_use, memory_order_relaxed) ||
                 atomic_load_explicit(&board->policy->hp_clients, memory_order_relaxed) == 0;
    uint64_t enough = ahead ? share : share / CHUNKS_A_WINDOW;
    if (timed && chunks->sampling) end_sample(lane);
    else if (chunks->open_ns >= (enough > CHUNK_LEAST_NS ? enough : CHUNK_LEAST_NS)) close_chunk(process, lane);
    orion_ledger_give(board);
}

/* -- Ends ------------------------------------------------------------------------------------------------------------ */

void orion_window_reap(struct orion_process *process, struct orion_board *board)
{
    if (atomic_load(&process->untouchable) > 0 || !orion_ledger_take(board)) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (atomic_load(&process->untouchable) == 0) look(process, board, orion_now());
    orion_capture_unrelax(&relaxed);
    orion_ledger_give(board);
}

void orion_window_drained(struct orion_process *process, struct orion_lane *lane)
{
    if (!orion_ledger_take(lane->board)) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    reap_lane(process, lane);
    orion_capture_unrelax(&relaxed);
    bool empty = atomic_load(&lane->drained) == atomic_load(&lane->begun);
    if (empty && !lane->chunks.sampling) {
        if (lane->chunks.open_ns > 0)
            orion_account_gpu_time(lane->board, lane->chunks.open_ns, orion_now() - lane->chunks.open_since_ns);
        drop_lane(lane);
    }
    orion_ledger_give(lane->board);
}

void orion_window_forget(struct orion_lane *lane, bool context_lives)
{
    /* Not the launch path, and events that outlive their context must not be met again: wait for the ledger, boundedly. */
    unsigned tries = 0;
    while (!orion_ledger_take(lane->board)) {
        if (++tries == FORGET_TRIES) return;
        orion_sleep_precisely(ORION_MILLISECOND);
    }
    drop_lane(lane);
    for (uint32_t i = 0; i < ORION_CHUNKS; i++) {
        struct orion_chunk *chunk = &lane->chunks.ring[i];
        CUevent *events[] = {&chunk->end, &chunk->timed_start, &chunk->timed_end};
        for (unsigned j = 0; j < 3; j++) {
            if (*events[j] != NULL && context_lives) orion_driver.cuEventDestroy_v2(*events[j]);
            *events[j] = NULL;
        }
    }
    lane->chunks.sampling = false;
    orion_partition_forget(lane, context_lives);
    orion_ledger_give(lane->board);
}
