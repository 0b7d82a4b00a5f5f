#include "be/admission.h"

#include "be/baseline_seam.h"
#include "be/between_pieces.h"
#include "be/driver_order.h"
#include "be/gate.h"
#include "be/overlap.h"
#include "be/partition.h"
#include "be/quiet.h"
#include "be/state.h"
#include "be/stop.h"
#include "be/turns.h"
#include "be/valve.h"
#include "be/window.h"
#include "be/work.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "learning/kernels.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/stream_records.h"

#define MIXED_NS ORION_SECOND /* for so long, all work goes behind the valve once some has waited too long for an empty one */
#define STEP_NS ORION_MILLISECOND
#define SPINNING_NS (100 * ORION_MICROSECOND) /* what counts for work of which the hook cannot know how long it waits */

static inline bool has_room(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                            const struct orion_stop *stop, uint64_t expected, uint64_t limit)
{
    bool ignores_window = stop->ignores_window != NULL && stop->ignores_window(process, stream_record->gpu, work);
    return orion_window_enter(process, stream_record, expected, ignores_window ? UINT64_MAX : limit);
}

/* -- Graphs with kernels on several GPUs ------------------------------------------------------------------------------- */

static bool may_be_held(struct orion_gpu *gpu) { return atomic_load(&gpu->role) == ORION_ROLE_BE && orion_stops_exist(gpu); }

/* A bit for each on which be may be held; 0 also for clients that are threads, whose GPUs are not those of the process. */
static uint32_t other_gpus(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work)
{
    if (work->launch.graph == NULL || gpu->client != 0 || orion_process_gpus(process) < 2) return 0;
    uint32_t others = orion_graph_gpus(orion_graphs(process), work->launch.graph) & ~(1u << (gpu - process->gpus)), found = 0;
    for (; others != 0; others &= others - 1)
        if (may_be_held(&process->gpus[__builtin_ctz(others)])) found |= others & -others;
    return found;
}

/* The valve of a GPU cannot hold what a graph in a stream of another one does there, so the graph begins when be may run on all of
 * them. True: it has waited, so all conditions are to be looked at again. */
static bool wait_for_other_gpus(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work)
{
    bool waited = false;
    if (__builtin_expect(!(work->flags & ORION_ADMITTED_OTHER_GPUS), 1)) return false;
    for (uint32_t others = other_gpus(process, gpu, work); others != 0; others &= others - 1) {
        struct orion_gpu *other = &process->gpus[__builtin_ctz(others)];
        for (; orion_gate_closed(other); waited = true) {
            if (orion_policy_overlaps(other)) orion_gate_sleep(process, other, ORION_GATE_POLL_NS);
            else orion_gate_wait(process, other);
        }
    }
    return waited;
}

/* -- Work that must not be behind a wait ------------------------------------------------------------------------------- */

/* A graph that the driver runs in streams of its own should not be behind a wait: these streams would wait for the held stream, as
 * for an event, and keep the context on the GPU for whole time slices (be/event_words.h; docs/results/programs.md). Nor should
 * the first launch of a kernel: the driver may load its code then, and wait for work that is held (be/quiet.h). Nor should
 * launches into streams that the driver orders with a held one (be/driver_order.h). So these are held on the CPU, and begin when no
 * work in flight can be held.
 *
 * Other threads may always have work in flight, and that work may wait for this launch. So the wait is bounded; then all
 * launches go behind the valve for a while. Launches of another stop than the valve do so in any case. */
static uint32_t kind_of_unheld(struct orion_process *process, struct orion_stream_record *stream_record,
                               const struct orion_work *work, bool is_new)
{
    const struct orion_gpu *gpu = stream_record->gpu;
    bool ordered = orion_driver_order_matters(process, stream_record);
    bool branches = work->launch.graph != NULL && orion_graph_has_branches(orion_graphs(process), work->launch.graph);
    uint32_t others = other_gpus(process, gpu, work) != 0 ? ORION_ADMITTED_OTHER_GPUS : 0;
    if ((!branches && !is_new && !others && !ordered) || work->stop != NULL) return 0;
    if (orion_now() <= atomic_load(&orion_be(gpu)->mixed_ns) + MIXED_NS) return others;
    return ORION_ADMITTED_UNHELD | (branches ? ORION_ADMITTED_BRANCHES : 0) | others;
}

/* Whether this is the first launch of a kernel, where work may be held. To identify it can load its code, so the wait comes first. */
static bool is_new_kernel(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work)
{
    if (work->identity != ORION_IDENTITY_UNREAD || work->launch.graph != NULL) return false;
    if (orion_kernel_is_known(orion_kernels(process), work->launch.function)) return false;
    enum orion_loading loading = orion_kernel_loading(work->launch.function);
    if (loading == ORION_IS_LOADED) return false;
    if (loading == ORION_OF_LIBRARY && orion_quiet_has_loaded(process, stream_record->gpu, work->launch.function)) return false;
    bool waits = orion_quiet_matters(process, stream_record->gpu);
    if (waits) orion_quiet_wait(process, stream_record);
    if (loading == ORION_OF_LIBRARY) orion_quiet_loads(process, stream_record->gpu, work->launch.function);
    return waits;
}

/* -- Where contexts are time-sliced ---------------------------------------------------------------------------------- */

/* What the launch counts with. Work of unknown duration runs alone. If it can run behind the valve, a cost of two shares makes the
 * valve put a wait into the stream before this work and another wait after it. */
static uint64_t cost_of(uint64_t expected, bool ahead, uint64_t share)
{
    return expected != 0 ? expected : ahead ? 2 * share : ORION_WINDOW_ALONE;
}

/* How much work may be in flight with a launch that is held on the CPU. Of a graph with branches two pieces: one that runs, and the next.
 * Of other work that must not be behind a wait the whole share: with less, the GPU is idle while the thread wakes up for each launch
 * (0.75 of be's speed instead of 0.95, docs/results/programs.md). */
static uint64_t held_room(struct orion_gpu *gpu, const struct orion_work *work, uint64_t window)
{
    if (!(work->flags & ORION_ADMITTED_UNHELD)) return window;
    if (orion_valve_may_hold(gpu)) return 0;
    return work->flags & ORION_ADMITTED_BRANCHES ? 2 * (window + window / 4) : orion_window_share(gpu);
}

/* Tries once to let a be launch through where contexts are time-sliced. If the stream can wait for the stop on the GPU,
 * the launch is armed (stop.h). Otherwise the launch goes when its stop allows it and the window has room; this
 * function reads hp's state again after the wait for the window. Sets work->expected_ns if the launch may go. */
static bool enter_time_sliced(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                              uint64_t expected)
{
    struct orion_gpu *gpu = stream_record->gpu;
    const struct orion_stop *stop = work->stop != NULL ? work->stop : &orion_valve_stop;
    uint64_t share = orion_window_share(gpu), past_valve = orion_window_narrowed(gpu);
    bool ahead = orion_valve_ready(process, stream_record) && (stop->ready == NULL || stop->ready(process, stream_record)) &&
                 !(work->flags & (ORION_ADMITTED_UNHELD | ORION_ADMITTED_OTHER_GPUS)) && !orion_quiet_is_wanted(gpu);
    uint64_t cost = cost_of(expected, ahead, share);
    if (!ahead && orion_stop_may_go(stop, process, stream_record, work, expected) == ORION_GO_NOT_NOW)
        stop->wait(process, stream_record, work, expected);
    if (wait_for_other_gpus(process, gpu, work)) return false;
    bool is_free = !orion_stops_exist(gpu) && !(work->flags & ORION_ADMITTED_OTHER_GPUS);
    uint64_t limit = ahead || is_free ? ORION_RUN_AHEAD * share : held_room(gpu, work, past_valve);
    if (!has_room(process, stream_record, work, stop, cost, limit)) {
        if (ahead && orion_gate_closed(gpu)) orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
        return false;
    }
    if (ahead && !orion_valve_pass(process, stream_record, work, stop, cost, past_valve)) {
        orion_window_leave(gpu, cost);
        ahead = false;
        cost = cost_of(expected, ahead, share);
        if (!has_room(process, stream_record, work, stop, cost, held_room(gpu, work, past_valve))) return false;
    }
    if (!ahead && orion_stop_may_go(stop, process, stream_record, work, expected) == ORION_GO_NOT_NOW) {
        orion_window_leave(gpu, cost);
        orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
        return false;
    }
    if (!ahead && orion_stops_exist(gpu)) orion_valve_wake(gpu);
    if (!ahead && stop->went_unarmed != NULL) stop->went_unarmed(process, stream_record, work);
    if ((work->flags & ORION_ADMITTED_BRANCHES) && expected != 0) orion_turns_note_piece(gpu, expected);
    work->expected_ns = cost;
    return true;
}

/* -- Where contexts run together ------------------------------------------------------------------------------------- */

/* Tries once to let a be launch through where hp has granted a budget and contexts run together. Arms nothing. */
static bool enter_overlapping(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                              uint64_t expected)
{
    struct orion_gpu *gpu = stream_record->gpu;
    const struct orion_stop *stop = work->stop != NULL ? work->stop : &orion_overlap_stop;
    uint64_t share = orion_window_share(gpu), cost = expected != 0 ? expected : ORION_WINDOW_ALONE;
    if (wait_for_other_gpus(process, gpu, work)) return false;
    enum orion_go go = orion_stop_may_go(stop, process, stream_record, work, expected);
    if (go == ORION_GO_NOT_NOW) {
        stop->wait(process, stream_record, work, expected);
        return false;
    }
    uint64_t limit = go == ORION_GO_BESIDE_HP ? share : orion_overlap_limit(gpu, share);
    if (!has_room(process, stream_record, work, stop, cost, limit)) return false;
    if (go == ORION_GO_FREELY)
        go = orion_stop_may_go(stop, process, stream_record, work, expected); /* hp may have become busy meanwhile */
    if (go == ORION_GO_NOT_NOW) {
        orion_window_leave(gpu, cost);
        return false;
    }
    if (stop->went_unarmed != NULL) stop->went_unarmed(process, stream_record, work);
    if (orion_plan_exists(gpu)) { /* nothing is behind the valve, but its watcher sees when the work ends (turns.h) */
        orion_valve_ready(process, stream_record);
        orion_valve_wake(gpu);
    }
    work->expected_ns = cost;
    if (go == ORION_GO_FREELY) return true;
    work->flags |= ORION_ADMITTED_BESIDE_HP;
    if (orion_overlap_may_move(process, work)) work->flags |= ORION_ADMITTED_PARTITIONED;
    atomic_fetch_add_explicit(&gpu->record->overlapped_launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&gpu->record->overlapped_ns, expected, memory_order_relaxed);
    return true;
}

static bool enter(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                  uint64_t expected)
{
    if (orion_policy_is_baseline(orion_gpu_policy(stream_record->gpu))) {
        bool entered = orion_baseline_enter(process, stream_record, work, expected);
        if (entered && work->stop != NULL && work->stop->went_unarmed != NULL)
            work->stop->went_unarmed(process, stream_record, work);
        return entered;
    }
    return orion_policy_overlaps(stream_record->gpu) ? enter_overlapping(process, stream_record, work, expected)
                                                     : enter_time_sliced(process, stream_record, work, expected);
}

/* The same for work that should not be behind a wait: it goes behind the valve once it has waited for longer than all work in
 * flight can take. *counted: how long. A try takes longer than a step of the window's wait only while hp is busy. */
static bool enter_in_time(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                          uint64_t expected, uint64_t *counted)
{
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t before = orion_now();
    if (enter(process, stream_record, work, expected)) return true;
    uint64_t now = orion_now();
    *counted += now - before < STEP_NS ? now - before : STEP_NS;
    if (*counted < orion_window_patience(gpu)) return false;
    atomic_store(&orion_be(gpu)->mixed_ns, now);
    work->flags &= ~(ORION_ADMITTED_UNHELD | ORION_ADMITTED_BRANCHES);
    return false;
}

/* Moves an admitted kernel to fewer SMs, if it must leave SMs to hp and the hook can move it. False: it may not go, because it may be
 * beside hp only on fewer SMs, and the hook cannot move it just now. */
static bool choose_sms(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                       uint64_t expected)
{
    struct orion_gpu *gpu = stream_record->gpu;
    bool beside_hp = work->flags & ORION_ADMITTED_PARTITIONED;
    work->flags &= ~ORION_ADMITTED_PARTITIONED;
    if (!beside_hp && !orion_overlap_leaves_sms(process, gpu, work, expected)) return true;
    work->elsewhere = orion_partition_fork(process, stream_record);
    if (work->elsewhere.stream == NULL) return !beside_hp || expected <= orion_window_share(gpu);
    work->flags |= ORION_ADMITTED_PARTITIONED;
    atomic_fetch_add_explicit(&gpu->record->partitioned_launches, 1, memory_order_relaxed);
    return true;
}

static void take_back(struct orion_gpu *gpu, struct orion_work *work, uint64_t expected)
{
    orion_window_leave(gpu, work->expected_ns);
    work->expected_ns = 0;
    work->flags &= ~ORION_ADMITTED_BESIDE_HP;
    atomic_fetch_sub_explicit(&gpu->record->overlapped_launches, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&gpu->record->overlapped_ns, expected, memory_order_relaxed);
}

static bool enter_and_choose(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                             uint64_t expected, uint64_t *counted)
{
    if (work->flags & ORION_ADMITTED_UNHELD ? !enter_in_time(process, stream_record, work, expected, counted)
                                            : !enter(process, stream_record, work, expected))
        return false;
    if (choose_sms(process, stream_record, work, expected)) return true;
    take_back(stream_record->gpu, work, expected);
    return false;
}

void orion_admit(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work)
{
    struct orion_gpu *gpu = stream_record->gpu;
    bool sample, waited = false;
    uint64_t counted = 0;
    if (orion_between_pieces_wait(process, stream_record)) work->flags |= ORION_ADMITTED_UNDER_WAY;
    bool is_new = is_new_kernel(process, stream_record, work);
    orion_work_identify(process, work);
    uint64_t expected = orion_duration_expect(orion_durations(process), work->identity, &sample);
    /* orion_kernel_note may find, by the kernel's name, a measurement of another process or a row of a profile. */
    if (sample && orion_kernel_note(process, work->identity, &work->launch))
        expected = orion_duration_expect(orion_durations(process), work->identity, &sample);
    work->stop = orion_stops_claim(process) ? orion_stop_of(process, stream_record, work) : NULL;
    work->flags |= kind_of_unheld(process, stream_record, work, is_new);
    if ((work->flags & ORION_ADMITTED_SPINS) && work->stop != NULL) { /* without a stop, its time is all that bounds it */
        expected = SPINNING_NS;
        sample = false;
    }
    while (!enter_and_choose(process, stream_record, work, expected, &counted)) {
        if (!orion_admits(gpu)) return; /* the policy changed during the wait */
        if (!waited) atomic_fetch_add_explicit(&gpu->record->window_waits, 1, memory_order_relaxed);
        waited = true;
    }
    work->admitted_ns = orion_now();
    if (!sample || (work->flags & ORION_ADMITTED_PARTITIONED)) return;
    if (orion_window_launching(process, stream_record, work->identity)) work->flags |= ORION_ADMITTED_TIMED;
}
