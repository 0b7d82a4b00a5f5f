/* The valve: a word that the GPU itself waits on, so that a be client can run ahead while hp is busy or may become so.
 *
 * Gating launches on the CPU alone has to choose: a small window leaves the GPU idle whenever the program prepares its
 * next launches more slowly than the GPU runs them, a large one is what an arriving hp waits for. With the valve the program runs many windows ahead, and a
 * wait on the valve's word (cuStreamWaitValue32) stands in the stream before every window of work: closed, the GPU
 * stops at the next one. Measured (docs/results/overhead.md): an open wait costs 2.4 us of a stream's time and 1-2 us of
 * CPU, a blocked one costs the other process nothing, and work behind it is done 7-15 us after the word opens.
 *
 * The word is this process's own, so nobody else can leave it closed. A watcher, one thread for each GPU, closes it
 * within about 50 us of hp's launch (or a launching thread does, whichever looks first) and opens it when hp is idle; it
 * sleeps while the process has nothing in flight. A watcher that is late, because the process is short of CPU, turns
 * running ahead off for a second: then launches are gated on the CPU, as they are where the device has no such wait. */
#ifndef ORION_VALVE_H
#define ORION_VALVE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/stop.h"
#include "process/pinned_page.h"

struct orion_gpu;
struct orion_stream_record;
struct orion_process;
struct orion_work;

struct orion_valve {
    struct orion_pinned_page page; /* guarded by the ledger; its first word: 0: open, else closed */
    _Atomic uint32_t refused;      /* this device or driver has no such wait */
    _Atomic uint32_t closings;     /* closed is another odd number each time */
    _Atomic uint32_t epoch;        /* grows with each closing: a stream record that has not waited since must */
    _Atomic uint32_t watched;      /* 0: no watcher yet; 1: late; 2: on time; 3: starting */
    _Atomic uint32_t parked, notifier;
    _Atomic uint32_t in_use; /* some work in flight stands behind the valve */
};

/* How far a client may run ahead of the GPU, in shares of the window. */
#define ORION_RUN_AHEAD 32u

/* Whether the next launch of the stream record can be put behind the valve; sets the valve up at first use. */
bool orion_valve_ready(struct orion_process *process, struct orion_stream_record *stream_record);

/* Before a launch: arms its stop in the stream, and sees that the watcher watches. The valve's own wait is due once for each
 * share of work. False: it could not, and the launch has to be gated as if there were no valve. */
bool orion_valve_pass(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                      const struct orion_stop *stop, uint64_t expected_ns, uint64_t share_ns);

/* Whether work in flight stands behind the valve: a call that waits for it while something is stopped would spin. */
bool orion_valve_runs_ahead(const struct orion_gpu *gpu);

extern const struct orion_stop orion_valve_stop; /* of a GPU's hp, where contexts take turns */

#endif
