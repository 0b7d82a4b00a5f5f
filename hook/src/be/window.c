#include "be/window.h"

#include "be/admission.h"
#include "be/chunk_times.h"
#include "be/chunks.h"
#include "be/ends.h"
#include "be/gate.h"
#include "be/in_flight.h"
#include "be/state.h"
#include "be/stop.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define CHUNKS_PER_WINDOW 8u
#define CHUNK_MIN_NS (20 * ORION_MICROSECOND)
#define SHARE_MIN_NS (20 * ORION_MICROSECOND)
#define NEW_WAIT_NS (10 * ORION_MILLISECOND) /* waits that are less than this apart count as one wait */
/* 2.5 % of hp's typical busy period: the threshold of Orion (EuroSys'24). */
#define PART_OF_HP_PERIOD 40u
#define NARROW_MIN_NS (75 * ORION_MICROSECOND) /* a wait at the valve costs 2.4 us: 3.2 % of so much work */
/* After this time without progress, the work in flight must depend on the next launch, so the launch may go. Time for
 * which hp held the work does not count, but does not start the count again: hp may be busy again and again. */
#define STUCK_NS ORION_SECOND
/* So much work goes behind work that awaits the program. nvbandwidth puts 16 copies there, nvbench at most what a driver's queue holds,
 * about 1000 launches. Work of unknown duration may be long, and then an hp that comes later waits for it. */
#define BEHIND_AWAITING_NS ORION_SECOND
#define BEHIND_UNKNOWN_NS (BEHIND_AWAITING_NS / 32)
#define BEHIND_LEAST_NS (BEHIND_AWAITING_NS / 1000)
#define BEHIND_LONG_PART 4u /* by this part of the limit, work goes behind a long kernel that takes all of it */
#define WAKE_BEFORE_NS (30 * ORION_MICROSECOND)
#define IDLE_RISK_NS (100 * ORION_MICROSECOND) /* with less work queued than this, a late wake-up leaves the GPU idle */
#define SLEEP_MIN_NS (20 * ORION_MICROSECOND)
#define SLEEP_MAX_NS ORION_MILLISECOND /* before work that runs alone: the thread checks hp between sleeps */
#define SLEEP_MAX_PART_OF_LIMIT 4u     /* before other work: a quarter of the window, as estimates may be too long */
#define LATE_SLEEP_NS (50 * ORION_MICROSECOND)

uint64_t orion_window_share(const struct orion_gpu *gpu)
{
    uint64_t share = orion_gpu_grant(gpu)->window_share_ns;
    return share < SHARE_MIN_NS ? SHARE_MIN_NS : share;
}

uint64_t orion_window_patience(const struct orion_gpu *gpu) { return 2 * ORION_RUN_AHEAD * orion_window_share(gpu); }

uint64_t orion_window_narrowed(const struct orion_gpu *gpu)
{
    uint64_t share = orion_window_share(gpu), whole = orion_gpu_policy(gpu)->window_ns, tolerable = whole;
    for (uint32_t i = 0, count = orion_gpu_neighbours(gpu); i < count; i++) {
        uint64_t typical = atomic_load_explicit(&orion_gpu_neighbour(gpu, i)->typical_ns, memory_order_relaxed);
        if (typical != 0 && typical / PART_OF_HP_PERIOD < tolerable) tolerable = typical / PART_OF_HP_PERIOD;
    }
    if (tolerable < NARROW_MIN_NS) tolerable = NARROW_MIN_NS;
    if (tolerable >= whole || whole > ORION_SECOND) return share;
    /* The window is divided among clients, so the narrowed window is, too. */
    uint64_t narrowed = share * tolerable / whole;
    return narrowed < SHARE_MIN_NS ? SHARE_MIN_NS : narrowed;
}

void orion_window_leave(struct orion_gpu *gpu, uint64_t expected_ns) { orion_ledger_subtract(gpu, expected_ns); }

/* -- Waiting for the window ------------------------------------------------------------------------------------------ */

/* Sleeps until enough of the work in flight should be complete. Enough is usually half of the window: the other half
 * keeps the GPU busy while this thread wakes up and launches more. If the next launch must run alone, enough is all
 * work in flight. If the GPU might become idle during the sleep, the thread wakes early and then polls without
 * sleeping. */
static void wait_for_room(const struct orion_gpu *gpu, uint64_t expected_ns, uint64_t limit, uint64_t now)
{
    uint64_t held = atomic_load(&orion_be(gpu)->in_flight_ns);
    uint64_t target = expected_ns > limit ? 0 : limit - expected_ns < limit / 2 ? limit - expected_ns : limit / 2;
    bool idle_risk = target < IDLE_RISK_NS;
    /* Work of unknown duration is in flight: it may end at once. */
    uint64_t needed = held > target && held < ORION_WINDOW_ALONE ? held - target : 0;
    uint64_t head = atomic_load_explicit(&orion_be(gpu)->head_ns, memory_order_relaxed);
    uint64_t spent = now > head ? now - head : 0;
    uint64_t early = idle_risk ? WAKE_BEFORE_NS : 0;
    uint64_t most = expected_ns > limit ? SLEEP_MAX_NS : limit / SLEEP_MAX_PART_OF_LIMIT;
    if (most > SLEEP_MAX_NS) most = SLEEP_MAX_NS;
    if (needed > spent + early) {
        uint64_t sleep = needed - spent - early < most ? needed - spent - early : most;
        orion_sleep_precisely(sleep < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep);
    } else if (idle_risk && (needed > spent || spent - needed < WAKE_BEFORE_NS)) {
        for (unsigned i = 0; i < 64; i++) orion_pause();
    } else {
        uint64_t late = spent > needed ? (spent - needed) / 4 : 0;
        orion_sleep_precisely(late < SLEEP_MIN_NS ? SLEEP_MIN_NS : late < LATE_SLEEP_NS ? late : LATE_SLEEP_NS);
    }
}

static _Thread_local uint32_t stuck;

uint32_t orion_window_stuck(void) { return stuck; }

static bool limit_runs_ahead(const struct orion_gpu *gpu, uint64_t limit)
{
    return limit / ORION_RUN_AHEAD >= orion_window_share(gpu);
}

/* Some work may go although a long kernel leaves no room: the kernel may wait until the host has launched it. XLA times kernels
 * so (its delay kernel), and if launches wait for the delay kernel, it gives up after 0.1 s, and XLA measures the hook instead of its
 * kernels. */
static bool fits_behind_long(struct orion_process *process, const struct orion_gpu *gpu, uint64_t expected_ns, uint64_t limit)
{
    uint64_t room = limit / BEHIND_LONG_PART, held = atomic_load(&orion_be(gpu)->in_flight_ns);
    uint64_t longest = orion_in_flight_longest(process, gpu);
    return longest > limit - room && (held > longest ? held - longest : 0) + expected_ns <= room;
}

/* More work may go behind work that seems to await the program. */
static bool fits_behind_awaiting(struct orion_process *process, struct orion_gpu *gpu, uint64_t expected_ns)
{
    uint64_t cost = expected_ns >= ORION_WINDOW_ALONE ? BEHIND_UNKNOWN_NS : expected_ns;
    if (cost < BEHIND_LEAST_NS) cost = BEHIND_LEAST_NS;
    uint64_t begun_ns = orion_in_flight_awaiting(process, gpu);
    if (begun_ns != orion_be(gpu)->awaiting_begun_ns) orion_be(gpu)->awaiting_begun_ns = begun_ns, orion_be(gpu)->behind_ns = 0;
    if (begun_ns == 0 || orion_be(gpu)->behind_ns + cost > BEHIND_AWAITING_NS) return false;
    orion_be(gpu)->behind_ns += cost;
    return true;
}

/* Only where hp need not wait for such work: behind the valve, or without hp. The caller holds the ledger. */
static bool goes_behind(struct orion_process *process, struct orion_gpu *gpu, uint64_t expected_ns, uint64_t limit)
{
    if (!limit_runs_ahead(gpu, limit)) return false;
    if (!fits_behind_long(process, gpu, expected_ns, limit) && !fits_behind_awaiting(process, gpu, expected_ns)) return false;
    atomic_fetch_add(&orion_be(gpu)->in_flight_ns, expected_ns);
    return true;
}

/* Returns whether the work may go after all: the thread that has the ledger may depend on it, as one that a signal handler which
 * launches has interrupted. As for STUCK_NS, the time while hp holds the work does not count. */
static bool wait_for_ledger(struct orion_stream_record *stream_record, uint64_t expected_ns, uint64_t now)
{
    static _Thread_local uint64_t waited_ns, last_ns, begun; /* of the thread's present wait, in the stream's launches */
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t launches = atomic_load(&stream_record->begun);
    if (begun != launches) waited_ns = 0;
    else if (now - last_ns < NEW_WAIT_NS && !orion_gate_closed(gpu)) waited_ns += now - last_ns;
    last_ns = now;
    begun = launches;
    if (waited_ns > STUCK_NS) {
        waited_ns = 0;
        atomic_fetch_add(&orion_be(gpu)->in_flight_ns, expected_ns);
        return true;
    }
    orion_sleep_precisely(SLEEP_MIN_NS);
    return false;
}

/* Returns whether the work may go after all. Handlers at exit, and threads that run meanwhile, still launch and see their work end.
 * Whether a context ends is asked under the ledger: who ends one waits for the ledger. */
static bool wait_once(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                      uint64_t limit)
{
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t now = orion_now();
    if (!orion_ledger_try_lock(gpu)) return wait_for_ledger(stream_record, expected_ns, now);
    struct orion_relaxed relaxed = orion_capture_relax();
    bool asks = !orion_contexts_end(process, atomic_load(&process->exits));
    unsigned retired = asks ? orion_in_flight_retire(process, gpu, now) : 0;
    if (asks && retired == 0) orion_in_flight_close(process, stream_record);
    bool held = orion_stops_hold(process, gpu);
    uint64_t since = now - orion_be(gpu)->waited_ns;
    if (retired == 0 && !held && since < NEW_WAIT_NS) orion_be(gpu)->stuck_ns += since;
    orion_be(gpu)->waited_ns = now;
    if (orion_be(gpu)->stuck_ns > STUCK_NS) {
        orion_be(gpu)->stuck_ns = 0;
        bool behind = asks && (limit_runs_ahead(gpu, limit) || orion_valve_is_late(process, stream_record));
        if (!behind || !orion_in_flight_take_for_awaiting(process, gpu)) {
            orion_in_flight_forget(process, gpu);
            retired = 1;
        }
        if (asks) stuck++; /* else a context takes long to end, and no graph is to blame */
    }
    bool goes = retired == 0 && goes_behind(process, gpu, expected_ns, limit);
    orion_capture_unrelax(&relaxed);
    orion_ledger_unlock(gpu);
    if (retired == 0 && !goes) wait_for_room(gpu, expected_ns, limit, now);
    return goes;
}

bool orion_window_enter(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                        uint64_t limit_ns)
{
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t held = atomic_load(&orion_be(gpu)->in_flight_ns);
    while (held == 0 || held + expected_ns <= limit_ns)
        if (atomic_compare_exchange_weak(&orion_be(gpu)->in_flight_ns, &held, held + expected_ns)) return true;
    uint64_t began = orion_now();
    bool goes = wait_once(process, stream_record, expected_ns, limit_ns);
    atomic_store_explicit(&gpu->record->window_share_ns, orion_window_narrowed(gpu), memory_order_relaxed);
    atomic_fetch_add_explicit(&gpu->record->window_wait_ns, orion_now() - began, memory_order_relaxed);
    return goes;
}

/* -- Around a launch ------------------------------------------------------------------------------------------------- */

bool orion_window_launching(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t identity)
{
    if (orion_stream_record_is_shared(process, stream_record) || !orion_ledger_try_lock(stream_record->gpu)) return false;
    bool timed = orion_chunks_sample(stream_record, identity);
    orion_ledger_unlock(stream_record->gpu);
    return timed;
}

/* While running ahead, a chunk is one share of the window or several; else an eighth of one. */
static void close_long_chunk(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t open_ns = orion_be_stream_record(stream_record)->chunks.open_ns, share = orion_window_share(gpu);
    bool ahead = atomic_load_explicit(&orion_be(gpu)->valve.in_use, memory_order_relaxed) || orion_gpu_hp_clients(gpu) == 0;
    uint64_t enough = !ahead ? share / CHUNKS_PER_WINDOW : orion_plan_exists(gpu) ? share : ORION_CHUNK_SHARES * share;
    if (enough < CHUNK_MIN_NS) enough = CHUNK_MIN_NS;
    /* A baseline's drain needs an event behind every stream record's last launch. */
    if (orion_policy_is_baseline(orion_gpu_policy(gpu))) enough = 0;
    if (open_ns > 0 && open_ns >= enough) orion_chunks_close(process, stream_record);
}

/* While a sample is open, no chunk ends. So a sample must not stay open without the ledger, either. */
static bool lock_after_launch(struct orion_stream_record *stream_record, bool timed)
{
    bool locked = orion_ledger_try_lock(stream_record->gpu);
    if (!locked && timed) atomic_store(&orion_be_stream_record(stream_record)->chunks.sampling, false);
    return locked;
}

void orion_window_launched(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                           uint64_t launched_ns, uint32_t flags)
{
    bool timed = flags & ORION_ADMITTED_TIMED;
    if (!lock_after_launch(stream_record, timed)) {
        atomic_fetch_add(&orion_be_stream_record(stream_record)->chunks.unlisted_ns, expected_ns);
        return;
    }
    orion_chunks_list(process, stream_record, launched_ns);
    orion_chunks_launched(process, stream_record, expected_ns, launched_ns, flags & ORION_ADMITTED_BESIDE_HP);
    bool ended = timed && orion_chunks_sampled(stream_record); /* the end of the sample also ends its chunk */
    if (!ended) close_long_chunk(process, stream_record);
    orion_ledger_unlock(stream_record->gpu);
}

void orion_window_failed(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                         uint32_t flags)
{
    bool timed = flags & ORION_ADMITTED_TIMED;
    orion_ledger_subtract(stream_record->gpu, expected_ns);
    if (!timed || !lock_after_launch(stream_record, timed)) return;
    orion_chunks_not_sampled(stream_record);
    close_long_chunk(process, stream_record); /* other threads may have launched meanwhile */
    orion_ledger_unlock(stream_record->gpu);
}

/* -- Completed work -------------------------------------------------------------------------------------------------- */

void orion_window_reap(struct orion_process *process, struct orion_gpu *gpu)
{
    if (orion_contexts_end(process, 0) || !orion_ledger_try_lock(gpu)) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (!orion_contexts_end(process, 0)) orion_in_flight_retire(process, gpu, orion_now());
    orion_capture_unrelax(&relaxed);
    orion_ledger_unlock(gpu);
}

void orion_window_drained(struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (!orion_ledger_try_lock(stream_record->gpu)) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    orion_chunks_reap(process, stream_record);
    bool empty = orion_stream_record_is_drained(stream_record);
    const struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    if (empty && !chunks->sampling) {
        orion_chunks_expect(stream_record, orion_now());
        orion_chunks_drop(stream_record);
    }
    orion_ends_free(stream_record);
    orion_capture_unrelax(&relaxed);
    orion_ledger_unlock(stream_record->gpu);
}
