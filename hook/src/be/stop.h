/* A stop is a way to stop be launches while hp is busy; this file is the interface of all stops. To add a stop, add a
 * file, and a row in stop.c.
 *
 * A launch has one stop. By default that is the stop of its GPU's hp (valve.c; overlap.c where contexts run together).
 * Another stop may claim the launch (collective.c). A stop works in one of two places. On the CPU, the launching thread
 * waits. In the stream, the GPU waits until a word in memory has the value "open"; a thread of the hook, the watcher,
 * writes the word (valve.h). A launch is armed if its stream contains such a wait. A partition (partition.h) does not
 * stop launches: they run in it beside a busy hp.
 *
 * Rejected: a list of stops for each launch. No launch has needed two, and the launch path calls each stop several
 * times. */
#ifndef ORION_STOP_H
#define ORION_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "be/gate.h"
#include "learning/kernels.h"
#include "process/plan.h"
#include "streams/stream_records.h"

struct orion_process;
struct orion_work;

enum orion_go { ORION_GO_NOT_NOW = 0, ORION_GO_FREELY, ORION_GO_BESIDE_HP };

struct orion_stop {
    /* Called by launching threads. If a member is NULL, the stop does nothing at that point. */

    /* Whether this stop claims the launch, which otherwise has the stop of its GPU's hp. Called once a launch. */
    bool (*claims)(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work);

    /* Whether the launch may go now without being armed. expected_ns: its time on the whole GPU, 0: unknown. If may_go
     * is NULL, the launch may go while the gate is open. */
    enum orion_go (*may_go)(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                            uint64_t expected_ns);

    /* Waits until the launch may go or the policy's rules have changed. */
    void (*wait)(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                 uint64_t expected_ns);

    /* Whether the launch must go although the window has no room for it, because another GPU waits for this launch. */
    bool (*ignores_window)(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work);

    /* ready returns whether this stop can arm the launch; the valve must be ready, too. arm puts a wait into the
     * launch's stream. `due` says whether the valve would put a wait into the stream before this launch. arm returns
     * false if the launch is not armed and must be stopped on the CPU. The caller of arm holds the ledger,
     * the lock of the GPU's be bookkeeping (chunks.h). */
    bool (*ready)(struct orion_process *process, const struct orion_stream_record *stream_record);
    bool (*arm)(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work, bool due);

    /* Called when a launch goes without being armed. */
    void (*went_unarmed)(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work);

    /* Called by watchers, and when a context ends. */

    /* Stops armed work while hp is busy, and releases it while hp is idle. True: work may have begun meanwhile, so call
     * again soon. */
    bool (*update)(struct orion_process *process);

    /* Releases all armed work. Called after orion_forbid_touch, before a context ends. The stop does not stop work
     * again before orion_allow_touch. */
    void (*open)(struct orion_process *process);

    /* The GPU whose hp keeps launched work of this GPU from running, or NULL. If the GPU belongs to another process of
     * the job, the result is this process's GPU. */
    struct orion_gpu *(*blocks)(struct orion_process *process, struct orion_gpu *gpu);
};

static inline enum orion_go orion_stop_may_go(const struct orion_stop *stop, struct orion_process *process,
                                              struct orion_stream_record *stream_record, const struct orion_work *work,
                                              uint64_t expected_ns)
{
    if (__builtin_expect(stop->may_go != NULL, 0)) return stop->may_go(process, stream_record, work, expected_ns);
    return orion_gate_closed(stream_record->gpu) ? ORION_GO_NOT_NOW : ORION_GO_FREELY;
}

/* Whether anything can stop be launches of the GPU: an hp client, or turns. */
static inline bool orion_stops_exist(const struct orion_gpu *gpu)
{
    return orion_gpu_hp_clients(gpu) > 0 || orion_plan_exists(gpu);
}

/* Whether any stop may claim launches. In a process that has launched no collective this costs one load. */
static inline bool orion_stops_claim(struct orion_process *process)
{
    return atomic_load_explicit(&orion_kernels(process)->collectives, memory_order_relaxed) != 0;
}

/* Returns the stop that claims the launch. NULL: the launch has the stop of its GPU's hp. */
const struct orion_stop *orion_stop_of(struct orion_process *process, struct orion_stream_record *stream_record,
                                       struct orion_work *work);

/* These functions handle all stops except the valves. The valves' own watchers close and open the valves. */
bool orion_stops_update(struct orion_process *process);
struct orion_gpu *orion_stops_block(struct orion_process *process, struct orion_gpu *gpu);

/* Whether the gate of the GPU or another stop holds its work. */
bool orion_stops_hold(struct orion_process *process, struct orion_gpu *gpu);

/* Opens all stops, including the valves. Otherwise a stream that waits for a stop would never complete its work. */
void orion_stops_open(struct orion_process *process);

/* Waits for one step of at most most_ns for the hp that stops work, which may be the hp of a peer's GPU. `gpu` is what
 * orion_stops_block or orion_stops_would_block returned. */
void orion_stops_sleep(struct orion_process *process, struct orion_gpu *gpu, uint64_t most_ns);

/* If hp stops work on the GPU, a driver call that waits for this work spins on a CPU. Returns the GPU whose busy hp
 * stops the work. NULL: no hp stops it, so the call would not spin. */
struct orion_gpu *orion_stops_would_block(struct orion_process *process, struct orion_gpu *gpu);

#endif
