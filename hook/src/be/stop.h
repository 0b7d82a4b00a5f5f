/* What can stop be: one small interface, so that a new way to stop be is a new file and a row in stop.c.
 *
 * A launch has one stop. By default it is the one of its GPU's hp (valve.c; overlap.c where contexts run together); another
 * one may claim the launch (collective.c). A stop works on the CPU, where the launching thread waits, or in the stream,
 * where the GPU waits behind a word that a watcher closes and opens (valve.h). Partitions are no stop: they are where a
 * launch runs that its stop lets go beside a busy hp.
 *
 * Refused: a list of stops for each launch. No launch has needed two, and the launch path asks each of them several times. */
#ifndef ORION_STOP_H
#define ORION_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "be/gate.h"
#include "learning/kernels.h"
#include "streams/stream_records.h"

struct orion_process;
struct orion_work;

enum orion_go { ORION_GO_NOT_NOW = 0, ORION_GO_FREELY, ORION_GO_BESIDE_HP };

struct orion_stop {
    /* -- A launching thread. NULL: never, or nothing to do. */

    /* Whether the launch is this stop's own, though its GPU's hp would be the default; asked once a launch. */
    bool (*claims)(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work);

    /* Whether it may go now, without being armed. expected_ns: on the whole GPU, 0: unknown. NULL: when the gate is open. */
    enum orion_go (*may_go)(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                            uint64_t expected_ns);

    /* Until it may go, or the policy's rules have changed. */
    void (*wait)(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                 uint64_t expected_ns);

    /* Whether the launch must not wait for room in the window: another GPU waits for it. */
    bool (*is_owed)(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work);

    /* Whether it can be armed beside the valve, and arming: a wait in the launch's stream. `due`: the valve's own wait would
     * be. False: it is not armed, and the launch has to be stopped on the CPU. The caller has taken the ledger. */
    bool (*ready)(struct orion_process *process);
    bool (*arm)(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work, bool due);

    /* It goes without being armed. */
    void (*gone)(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work);

    /* -- Watchers, and what ends. */

    /* Closes or opens what it has armed, by hp's state. True: something may have begun meanwhile, so look again soon. */
    bool (*attend)(struct orion_process *process);

    /* Opens everything: after orion_forbid_touch, before a context ends. Closed again only after orion_allow_touch. */
    void (*open)(struct orion_process *process);

    /* The GPU whose hp keeps launched work of this GPU from running; NULL: none does. */
    struct orion_gpu *(*blocks)(struct orion_process *process, const struct orion_gpu *gpu);
};

static inline enum orion_go orion_stop_may_go(const struct orion_stop *stop, struct orion_process *process,
                                              struct orion_stream_record *stream_record, const struct orion_work *work,
                                              uint64_t expected_ns)
{
    if (__builtin_expect(stop->may_go != NULL, 0)) return stop->may_go(process, stream_record, work, expected_ns);
    return orion_gate_closed(stream_record->gpu) ? ORION_GO_NOT_NOW : ORION_GO_FREELY;
}

/* Whether any stop may claim launches: a load for those of a process that has met no collective yet. */
static inline bool orion_stops_claim(struct orion_process *process)
{
    return atomic_load_explicit(&orion_kernels(process)->collectives, memory_order_relaxed) != 0;
}

/* The stop that claims the launch; NULL: its GPU's hp is the stop. */
const struct orion_stop *orion_stop_of(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work);

/* All stops but the valves, which their own watchers close and open. */
bool orion_stops_attend(struct orion_process *process);
struct orion_gpu *orion_stops_block(struct orion_process *process, const struct orion_gpu *gpu);

/* All stops, the valves included. A stream that waits for one would never end. */
void orion_stops_open(struct orion_process *process);

/* The GPU whose hp a call would spin for in the driver that waits for this process's work; NULL: none. */
struct orion_gpu *orion_stops_would_block(struct orion_process *process, struct orion_gpu *gpu);

#endif
