#include "be/valve.h"

#include <sys/prctl.h>

#include "be/chunks.h"
#include "be/gate.h"
#include "be/overlap.h"
#include "be/state.h"
#include "be/stop.h"
#include "be/window.h"
#include "be/work.h"
#include "generated/driver.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/spawn.h"
#include "system/system.h"

#define WATCH_NS (50 * ORION_MICROSECOND) /* between two looks at hp while work is in flight */
#define LATE_NS (2 * ORION_MILLISECOND)   /* a look this late: the process is short of CPU */
#define TRUSTED_AFTER_NS ORION_SECOND     /* on time for so long: running ahead is on again */
#define REAP_NS ORION_MILLISECOND         /* between two looks for what has completed */
#define REST_NS (20 * ORION_MILLISECOND)
#define EXPECTANT_NS (2 * ORION_MILLISECOND) /* hp is a little later than usual */
#define PARKED_NS (100 * ORION_MILLISECOND)

enum { WATCHED = 1, ON_TIME = 2, STARTING = 3 }; /* 0: no watcher yet */

/* -- The word -------------------------------------------------------------------------------------------------------- */

static void set_open(struct orion_valve *valve) { atomic_store(valve->page.words, 0); }

/* Not while a context ends: its streams must come to their end. */
static void set_closed(struct orion_process *process, struct orion_valve *valve)
{
    if (atomic_load(&process->untouchable) > 0) return;
    uint32_t closed = atomic_fetch_add(&valve->closings, 2) | 1; /* never 0, and not what a watcher may have just read */
    uint32_t before = atomic_load(valve->page.words);
    do { /* the epoch first: who finds the valve closed must find that its stream record has not waited since */
        if (before == 0) atomic_fetch_add(&valve->epoch, 1);
    } while (!atomic_compare_exchange_weak(valve->page.words, &before, closed));
    if (atomic_load(&process->untouchable) > 0) set_open(valve); /* a context began to end between the two looks */
}

/* Opens it where hp is idle, unless somebody has found hp busy since this look began. False: hp is busy. What was put behind
 * the valve before a budget was granted goes by hp's leave, as all does from then on. */
static bool open_if_idle(struct orion_gpu *gpu)
{
    _Atomic uint32_t *word = orion_be(gpu)->valve.page.words;
    uint32_t closed = word != NULL ? atomic_load(word) : 0;
    if (orion_gate_closed(gpu) && !orion_overlap_gives_permission(gpu)) return false;
    if (closed != 0) atomic_compare_exchange_strong(word, &closed, 0);
    return true;
}

/* -- The watcher ----------------------------------------------------------------------------------------------------- */

static bool has_work(const struct orion_gpu *gpu) { return atomic_load(&orion_be(gpu)->in_flight_ns) > 0; }

/* Whether hp has to be looked at: there is an hp, and work in flight that the valve can stop, or that another stop holds. */
static bool is_needed(const struct orion_gpu *gpu)
{
    return (has_work(gpu) || orion_stops_block(orion_the_process, gpu) != NULL) &&
           atomic_load_explicit(&gpu->policy->hp_clients, memory_order_relaxed) > 0;
}

static void park(struct orion_gpu *gpu)
{
    struct orion_valve *valve = &orion_be(gpu)->valve;
    uint32_t notifier = atomic_load(&valve->notifier);
    atomic_store(&valve->parked, 1);
    if (!has_work(gpu)) {
        atomic_store(&valve->in_use, 0);
        if (has_work(gpu)) atomic_store(&valve->in_use, 1); /* a launch came between: it may have set it before */
    }
    if (!is_needed(gpu)) orion_futex_wait(&valve->notifier, notifier, PARKED_NS, false);
    atomic_store(&valve->parked, 0);
}

/* How long to sleep at most while hp is busy. hp's thread wakes sleepers, but a processor that has slept for milliseconds
 * takes up to 0.2 ms to be woken by another one (measured in a virtual machine) and 8 us by its own timer; so from when
 * hp's busy periods usually end, this thread wakes itself. */
static uint64_t patience(uint64_t closed_for, uint64_t typical)
{
    uint64_t early = typical - typical / 8;
    if (closed_for < early) return early - closed_for < ORION_GATE_LOOK_NS ? early - closed_for : ORION_GATE_LOOK_NS;
    return closed_for < typical + EXPECTANT_NS ? WATCH_NS : ORION_GATE_LOOK_NS;
}

static uint64_t close_while_hp_is_busy(struct orion_process *process, struct orion_gpu *gpu, uint64_t typical)
{
    uint64_t began = orion_now(), now = began;
    while (!open_if_idle(gpu)) {
        set_closed(process, &orion_be(gpu)->valve);
        bool settled = !orion_stops_attend(process);
        if (has_work(gpu)) atomic_store_explicit(&gpu->record->waiting_since_ns, began, memory_order_relaxed);
        orion_gate_sleep(process, gpu, settled ? patience(now - began, typical) : WATCH_NS);
        now = orion_now();
    }
    atomic_store_explicit(&gpu->record->waiting_since_ns, 0, memory_order_relaxed);
    if (has_work(gpu)) orion_gate_note(gpu, now - began);
    return now - began < typical ? typical - (typical - (now - began)) / 2 : typical + (now - began - typical) / 8;
}

/* Makes no driver call and never blocks on anything but its own sleep: whatever a call of the program's holds while it waits for the GPU behind the
 * closed valve, this thread opens it. */
static void *watch(void *argument)
{
    struct orion_gpu *gpu = argument;
    struct orion_valve *valve = &orion_be(gpu)->valve;
    uint64_t on_time_since = 0, typical = 0;
    prctl(PR_SET_NAME, "orion-valve", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    atomic_store(&valve->watched, ON_TIME); /* trusted at once: nothing says yet that it would be late */
    for (;;) {
        if (!open_if_idle(gpu)) typical = close_while_hp_is_busy(orion_the_process, gpu, typical);
        orion_stops_attend(orion_the_process);
        if (!is_needed(gpu)) park(gpu);
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

/* Takes off what has completed, for programs that launch without ever waiting; a thread of its own since it calls the
 * driver. It sleeps when there is nothing in flight. */
static void *reap(void *argument)
{
    struct orion_gpu *gpu = argument;
    prctl(PR_SET_NAME, "orion-reap", 0, 0, 0);
    for (;;) {
        orion_sleep_precisely(has_work(gpu) ? REAP_NS : REST_NS);
        if (has_work(gpu)) orion_window_reap(orion_the_process, gpu);
    }
    return NULL;
}

/* The valve is not used before its watcher runs. */
static void start_threads(struct orion_gpu *gpu)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&orion_be(gpu)->valve.watched, &none, STARTING)) return;
    if (orion_thread_spawn(reap, gpu) != 0 || orion_thread_spawn(watch, gpu) != 0) atomic_store(&orion_be(gpu)->valve.refused, 1);
}

/* -- For launching threads ------------------------------------------------------------------------------------------- */

bool orion_valve_ready(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_gpu *gpu = stream_record->gpu;
    struct orion_valve *valve = &orion_be(gpu)->valve;
    if (atomic_load_explicit(&valve->refused, memory_order_relaxed) || orion_stream_record_is_shared(process, stream_record))
        return false;
    if (atomic_load_explicit(&gpu->policy->hp_clients, memory_order_relaxed) == 0) return false;
    uint32_t watched = atomic_load_explicit(&valve->watched, memory_order_relaxed);
    if (watched == WATCHED || watched == STARTING || atomic_load(&process->untouchable) > 0) return false;
    if (__builtin_expect(watched == ON_TIME && valve->page.context_epoch == atomic_load(&process->context_epoch) + 1, 1))
        return true;
    /* Pinning is no business of a time when some stream is being captured. */
    if (atomic_load(&process->captures) > 0 || !orion_ledger_take(gpu)) return false;
    bool ready = orion_pinned_page_pin(process, &valve->page);
    if (!ready) atomic_store(&valve->refused, 1);
    else start_threads(gpu);
    orion_ledger_give(gpu);
    return ready && atomic_load(&valve->watched) == ON_TIME;
}

static bool put_wait(struct orion_stream_record *stream_record)
{
    struct orion_valve *valve = &orion_be(stream_record->gpu)->valve;
    struct orion_be_stream_record *mine = orion_be_stream_record(stream_record);
    uint32_t epoch = atomic_load(&valve->epoch);
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult result = orion_driver.cuStreamWaitValue32_v2(orion_stream_record_handle(stream_record), valve->page.address, 0,
                                                          CU_STREAM_WAIT_VALUE_EQ);
    orion_capture_unrelax(&relaxed);
    if (result != CUDA_SUCCESS) atomic_store(&valve->refused, 1);
    mine->waited_epoch = epoch + 1;
    mine->past_valve_ns = 0;
    return result == CUDA_SUCCESS;
}

static bool arm(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work, bool due)
{
    (void)process, (void)work;
    return !due || put_wait(stream_record);
}

bool orion_valve_pass(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                      const struct orion_stop *stop, uint64_t expected_ns, uint64_t share_ns)
{
    struct orion_gpu *gpu = stream_record->gpu;
    struct orion_valve *valve = &orion_be(gpu)->valve;
    struct orion_be_stream_record *mine = orion_be_stream_record(stream_record);
    if (orion_gate_closed(gpu)) set_closed(process, valve);
    if (!orion_ledger_take(gpu)) return false;
    uint64_t stream_records = orion_be(gpu)->stream_records_at_work > 1 ? orion_be(gpu)->stream_records_at_work
                                                                        : 1; /* the share is the GPU's, not a stream's */
    bool due =
        mine->past_valve_ns + expected_ns > share_ns / stream_records || mine->waited_epoch != atomic_load(&valve->epoch) + 1;
    bool stands = stop->arm(process, stream_record, work, due);
    mine->past_valve_ns += expected_ns; /* a new wait has nothing behind it yet */
    orion_ledger_give(gpu);
    atomic_store_explicit(&valve->in_use, 1, memory_order_relaxed);
    if (atomic_load(&valve->parked)) {
        atomic_store(&valve->parked, 0);
        atomic_fetch_add(&valve->notifier, 1);
        orion_futex_wake_all(&valve->notifier, false);
    }
    return stands;
}

bool orion_valve_runs_ahead(const struct orion_gpu *gpu)
{
    return atomic_load(&orion_be(gpu)->valve.in_use) && has_work(gpu) && !orion_policy_overlaps(gpu);
}

/* -- As a stop: on the CPU it is the gate ----------------------------------------------------------------------------- */

static void wait(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                 uint64_t expected_ns)
{
    (void)work, (void)expected_ns;
    orion_gate_wait(process, stream_record->gpu);
}

static void open_all(struct orion_process *process)
{
    for (uint32_t i = 0; i < atomic_load(&process->gpu_count) && i < ORION_GPUS; i++)
        if (orion_be(&process->gpus[i])->valve.page.words != NULL) set_open(&orion_be(&process->gpus[i])->valve);
}

const struct orion_stop orion_valve_stop = {.wait = wait, .arm = arm, .open = open_all};
