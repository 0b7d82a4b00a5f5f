#include "be/valve.h"

#include <sys/prctl.h>

#include "be/chunks.h"
#include "be/gate.h"
#include "be/quiet.h"
#include "be/state.h"
#include "be/stop.h"
#include "be/turns.h"
#include "be/valve_word.h"
#include "be/window.h"
#include "be/work.h"
#include "generated/driver.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "process/waits.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/spawn.h"
#include "system/system.h"

#define WATCH_NS (50 * ORION_MICROSECOND)      /* time between two checks of hp while work is in flight */
#define LATE_NS (2 * ORION_MILLISECOND)        /* a check this late shows that the process is short of CPU */
#define TRUSTED_AFTER_NS ORION_SECOND          /* after a second without a late check, be may run ahead again */
#define REAP_NS ORION_MILLISECOND              /* time between two checks for completed work */
#define REAP_IDLE_NS (100 * ORION_MILLISECOND) /* launches may find the watcher awake, and then wake nobody */
#define OVERDUE_PART 8u                        /* an end of hp's busy period is noticed this part of its lateness later */
#define LEAST_CHUNK_PART 2u    /* with turns, or while the valve is closed, a wait ends a chunk of at least this part of a share */
#define PARKED_NS ORION_SECOND /* a launch behind the valve wakes parked threads, so nothing depends on this time */
#define PARKED_TIED_NS (100 * ORION_MILLISECOND) /* time between two reports to the other ranks of a job (ranks.h) */

enum { WATCHED = 1, ON_TIME = 2, STARTING = 3 }; /* values of `watched`; 0: no watcher yet */

/* -- The watcher ----------------------------------------------------------------------------------------------------- */

static bool has_work(const struct orion_gpu *gpu) { return atomic_load(&orion_be(gpu)->in_flight_ns) > 0; }

/* Whether hp and turns must be watched: there is an hp client or a plan, and there is work in flight that the valve can stop, or work that
 * another stop holds. A closed valve may hold work that is not counted, because its thread did not get the ledger. */
static bool is_needed(struct orion_gpu *gpu)
{
    if (orion_valve_word_is_closed(&orion_be(gpu)->valve)) return true;
    return (has_work(gpu) || orion_stops_block(orion_the_process, gpu) != NULL) && orion_stops_exist(gpu);
}

bool orion_valve_may_hold(struct orion_gpu *gpu)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    if (!atomic_load(&valve->in_use)) return false;
    if (has_work(gpu)) return true;
    atomic_store(&valve->in_use, 0);
    if (!has_work(gpu)) return false;
    atomic_store(&valve->in_use, 1); /* a launch may have set it just before this thread cleared it */
    return true;
}

/* While nothing is in flight, only launches, turns and the other ranks of a job need this thread. */
static void park(struct orion_process *process, struct orion_gpu *gpu, uint64_t most_ns)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    uint64_t most = orion_stops_claim(process) ? PARKED_TIED_NS : PARKED_NS;
    uint32_t notifier = atomic_load(&valve->notifier);
    atomic_store(&valve->parked, 1);
    orion_valve_may_hold(gpu);
    if (!is_needed(gpu)) orion_futex_wait(&valve->notifier, notifier, most < most_ns ? most : most_ns, false);
    atomic_store(&valve->parked, 0);
}

void orion_valve_wake(struct orion_gpu *gpu)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    if (!atomic_load(&valve->parked)) return;
    atomic_store(&valve->parked, 0);
    atomic_fetch_add(&valve->notifier, 1);
    orion_futex_wake_all(&valve->notifier, false);
}

/* How long to sleep at most while hp is busy. hp's thread wakes sleepers. But a CPU that has slept for milliseconds
 * takes up to 0.2 ms to be woken by another CPU (measured in a virtual machine), and 8 us to be woken by its own timer.
 * So from the time at which hp's busy periods usually end, this thread wakes itself: less often, the later the end is. */
static uint64_t longest_sleep(uint64_t closed_for, uint64_t typical)
{
    uint64_t early = typical - typical / 8;
    uint64_t sleep = closed_for < early ? early - closed_for : (closed_for - early) / OVERDUE_PART;
    if (sleep < WATCH_NS) return WATCH_NS;
    return sleep < ORION_GATE_POLL_NS ? sleep : ORION_GATE_POLL_NS;
}

/* Whether stops stay open for long, because the process parks or exits. */
static bool stays_open(struct orion_process *process)
{
    int32_t exits = atomic_load(&process->exits);
    return exits + atomic_load(&process->kept_open) > 0 && !orion_contexts_end(process, exits);
}

static uint64_t close_while_hp_is_busy(struct orion_process *process, struct orion_gpu *gpu, uint64_t typical)
{
    uint64_t began = orion_now(), now = began;
    orion_turns_closed(gpu, began);
    while (!orion_valve_word_open_if_idle(gpu)) {
        orion_valve_word_close(process, &orion_be(gpu)->valve);
        /* While a capture begins or a context ends, stops stay open, and close soon after. */
        bool settled = !orion_stops_update(process) && (orion_valve_word_is_closed(&orion_be(gpu)->valve) || stays_open(process));
        if (has_work(gpu)) atomic_store_explicit(&gpu->record->waiting_since_ns, began, memory_order_relaxed);
        orion_gate_sleep(process, gpu, settled ? longest_sleep(now - began, typical) : WATCH_NS);
        now = orion_now();
    }
    orion_turns_opened(gpu, now);
    atomic_store_explicit(&gpu->record->waiting_since_ns, 0, memory_order_relaxed);
    if (has_work(gpu)) orion_waits_note(gpu, now - began);
    return now - began < typical ? typical - (typical - (now - began)) / 2 : typical + (now - began - typical) / 8;
}

/* This thread makes no driver call and blocks only in its own sleeps. A call of the program may hold the driver's locks
 * while it waits for the GPU behind the closed valve. The watcher can open the valve even then. */
static void *watch(void *argument)
{
    struct orion_gpu *gpu = argument;
    struct orion_valve *valve = &orion_be(gpu)->valve;
    uint64_t on_time_since = 0, typical = 0;
    prctl(PR_SET_NAME, "orion-valve", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    atomic_store(&valve->watched, ON_TIME); /* trusted at first: no check has been late yet */
    for (;;) {
        if (!orion_valve_word_open_if_idle(gpu)) typical = close_while_hp_is_busy(orion_the_process, gpu, typical);
        orion_stops_update(orion_the_process);
        while (!is_needed(gpu)) {
            uint64_t most_ns = orion_turns_idle(gpu);
            park(orion_the_process, gpu, most_ns);
            if (orion_stops_claim(orion_the_process)) break;
        }
        uint64_t before = orion_now();
        orion_sleep_precisely(WATCH_NS);
        uint64_t now = orion_now();
        if (on_time_since == 0 || now - before > LATE_NS) {
            if (on_time_since != 0) atomic_store(&valve->watched, WATCHED);
            on_time_since = now;
        } else if (now - on_time_since > TRUSTED_AFTER_NS) {
            atomic_store(&valve->watched, ON_TIME);
        }
    }
    return NULL;
}

/* Retires completed work, for programs that launch without ever waiting. This is a separate thread because it calls the
 * driver. While hp is busy, the valve holds the work, so this thread checks less often. */
static void *reap(void *argument)
{
    struct orion_gpu *gpu = argument;
    prctl(PR_SET_NAME, "orion-reap", 0, 0, 0);
    for (;;) {
        uint32_t notifier = atomic_load(&orion_be(gpu)->valve.notifier);
        if (!has_work(gpu)) {
            orion_futex_wait(&orion_be(gpu)->valve.notifier, notifier, REAP_IDLE_NS, false);
            continue;
        }
        orion_sleep_precisely(orion_gate_closed(gpu) ? ORION_GATE_POLL_NS : REAP_NS);
        if (has_work(gpu)) orion_window_reap(orion_the_process, gpu);
    }
    return NULL;
}

/* Starts the thread that retires work, and the watcher. Launches do not use the valve before its watcher runs. */
static void start_threads(struct orion_gpu *gpu)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&orion_be(gpu)->valve.watched, &none, STARTING)) return;
    if (orion_thread_spawn(reap, gpu) != 0 || orion_thread_spawn(watch, gpu) != 0) atomic_store(&orion_be(gpu)->valve.refused, 1);
}

/* -- For launching threads ------------------------------------------------------------------------------------------- */

static inline bool can_stop(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    const struct orion_gpu *gpu = stream_record->gpu;
    if (atomic_load_explicit(&orion_be(gpu)->valve.refused, memory_order_relaxed)) return false;
    if (orion_stream_record_is_shared(process, stream_record) || !orion_stops_exist(gpu)) return false;
    return atomic_load(&process->untouchable) == 0;
}

bool orion_valve_is_late(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    const struct orion_valve *valve = &orion_be(stream_record->gpu)->valve;
    return atomic_load_explicit(&valve->watched, memory_order_relaxed) == WATCHED && can_stop(process, stream_record) &&
           orion_pinned_page_is_pinned(process, &valve->page);
}

bool orion_valve_ready(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_gpu *gpu = stream_record->gpu;
    struct orion_valve *valve = &orion_be(gpu)->valve;
    uint32_t watched = atomic_load_explicit(&valve->watched, memory_order_relaxed);
    if (watched == STARTING || !can_stop(process, stream_record)) return false;
    /* Work may go behind work that awaits the program. Behind a late valve hp has to wait for less of it than behind none. */
    if (watched == WATCHED && !atomic_load_explicit(&orion_be(gpu)->awaits_program, memory_order_relaxed)) return false;
    if (__builtin_expect(watched != 0 && orion_pinned_page_is_pinned(process, &valve->page), 1)) return true;
    /* Memory must not be pinned while some stream is being captured. */
    if (atomic_load(&process->captures) > 0 || !orion_ledger_try_lock(gpu)) return false;
    bool ready = orion_pinned_page_pin(process, stream_record, &valve->page, &valve->refused);
    if (ready) start_threads(gpu);
    orion_ledger_unlock(gpu);
    return ready && atomic_load(&valve->watched) == ON_TIME;
}

bool orion_valve_is_watched(const struct orion_gpu *gpu)
{
    uint32_t watched = atomic_load_explicit(&orion_be(gpu)->valve.watched, memory_order_relaxed);
    return watched == WATCHED || watched == ON_TIME;
}

static bool put_wait(struct orion_stream_record *stream_record)
{
    struct orion_valve *valve = &orion_be(stream_record->gpu)->valve;
    struct orion_be_stream_record *mine = orion_be_stream_record(stream_record);
    uint32_t epoch = atomic_load(&valve->epoch);
    CUresult result =
        orion_pinned_page_put(orion_driver.cuStreamWaitValue32_v2, stream_record, valve->page.address, 0, CU_STREAM_WAIT_VALUE_EQ);
    if (result != CUDA_SUCCESS) {
        orion_pinned_page_failed(&valve->page, result, &valve->refused);
        return false;
    }
    orion_turns_note_piece(stream_record->gpu, mine->past_valve_ns);
    atomic_store_explicit(&mine->waited_epoch, epoch + 1, memory_order_relaxed);
    mine->past_valve_ns = 0;
    return true;
}

static bool arm(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work, bool due)
{
    (void)process, (void)work;
    return !due || put_wait(stream_record);
}

static uint64_t least_chunk(const struct orion_gpu *gpu, bool exact)
{
    uint64_t share = orion_window_share(gpu);
    return exact ? share / LEAST_CHUNK_PART : ORION_CHUNK_SHARES * share;
}

bool orion_valve_pass(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                      const struct orion_stop *stop, uint64_t expected_ns, uint64_t share_ns)
{
    struct orion_gpu *gpu = stream_record->gpu;
    struct orion_valve *valve = &orion_be(gpu)->valve;
    struct orion_be_stream_record *mine = orion_be_stream_record(stream_record);
    if (orion_gate_closed(gpu)) orion_valve_word_close(process, valve);
    /* A call that loads code counts itself and then looks at in_use; the launch in the other order, so one of them sees the other
     * (but for the moment in which orion_valve_may_hold has cleared it). */
    if (!atomic_load(&valve->in_use)) atomic_store(&valve->in_use, 1);
    if (orion_quiet_is_wanted(gpu)) return false;
    if (!orion_ledger_try_lock(gpu)) {
        atomic_store_explicit(&mine->waited_epoch, 0,
                              memory_order_relaxed); /* if it goes all the same, the next one needs a wait */
        orion_valve_wake(gpu);
        return false;
    }
    /* The GPU's streams divide the share among them. */
    uint64_t stream_records = orion_be(gpu)->stream_records_at_work > 1 ? orion_be(gpu)->stream_records_at_work : 1;
    bool due = mine->past_valve_ns + expected_ns > share_ns / stream_records ||
               atomic_load_explicit(&mine->waited_epoch, memory_order_relaxed) != atomic_load(&valve->epoch) + 1;
    bool waits = due || stop != &orion_valve_stop; /* every other stop has a wait for each launch */
    bool exact = waits && (stop != &orion_valve_stop || orion_valve_word_is_closed(valve) || orion_plan_exists(gpu));
    if (waits) orion_chunks_before_wait(process, stream_record, least_chunk(gpu, exact));
    bool armed = stop->arm(process, stream_record, work, due);
    if (waits) orion_chunks_behind_wait(stream_record, exact);
    mine->past_valve_ns += expected_ns; /* put_wait sets it to 0 first: nothing is behind a new wait yet */
    orion_ledger_unlock(gpu);
    orion_valve_wake(gpu);
    return armed;
}

bool orion_valve_runs_ahead(const struct orion_gpu *gpu)
{
    return atomic_load(&orion_be(gpu)->valve.in_use) && has_work(gpu) && !orion_policy_overlaps(gpu);
}

/* -- The valve as a stop: on the CPU it is the gate ------------------------------------------------------------------ */

static void wait(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                 uint64_t expected_ns)
{
    (void)work, (void)expected_ns;
    orion_gate_wait(process, stream_record->gpu);
}

static void open_all(struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        if (orion_be(gpu)->valve.page.words != NULL) orion_valve_word_open(&orion_be(gpu)->valve);
}

const struct orion_stop orion_valve_stop = {.wait = wait, .arm = arm, .open = open_all};
