/* The valve: a word that the GPU itself waits on, so that a be client can run ahead of the GPU although hp may arrive
 * at any time.
 *
 * Without the valve, the window would have to be small or large. A small window leaves the GPU idle whenever the
 * program prepares its next launches more slowly than the GPU runs them. An arriving hp must wait for all of a large
 * window. With the valve, the program runs many windows ahead, and before every window of work its stream waits for the
 * valve's word (cuStreamWaitValue32). If the valve is closed, the GPU stops at the next wait. Measured
 * (docs/results/overhead.md): an open wait costs 2.4 us of stream time and 1-2 us of CPU; a blocked wait costs the
 * other process nothing; work behind it is done 7-15 us after the word opens.
 *
 * The word belongs to this process, so no other process can leave it closed. A watcher, one thread for each GPU, closes
 * the word within about 50 us of hp's launch. A launching thread may close it earlier. The watcher opens it when hp is
 * idle, and sleeps while the process has nothing in flight. If the watcher is late, because the process is short of
 * CPU, running ahead is disabled for a second. Launches are then gated on the CPU, as on devices that do not support
 * waits in streams. */
#ifndef ORION_VALVE_H
#define ORION_VALVE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/stop.h"
#include "be/pinned_page.h"

struct orion_gpu;
struct orion_stream_record;
struct orion_process;
struct orion_work;

struct orion_valve {
    struct orion_pinned_page page; /* guarded by the ledger; its first word: 0: open, else closed */
    _Atomic uint32_t refused;      /* this device or driver does not support such waits */
    _Atomic uint32_t closings;     /* each closing writes another odd number */
    /* Grows with each closing; a stream record whose last wait is older needs a new one. */
    _Atomic uint32_t epoch;
    _Atomic uint64_t closed_ns, opened_ns; /* when it was last closed and opened */
    _Atomic uint32_t watched;              /* 0: no watcher yet; 1: late; 2: on time; 3: starting */
    _Atomic uint32_t parked, notifier;
    _Atomic uint32_t in_use; /* some work in flight is behind the valve */
};

/* A client may have this many times its share of the window in flight, if this work is behind the valve or the GPU has
 * no hp. */
#define ORION_RUN_AHEAD 32u

/* Whether the stream record's next launch can be put behind the valve. Sets the valve up at first use. */
bool orion_valve_ready(struct orion_process *process, struct orion_stream_record *stream_record);

/* Whether the valve is not ready only because its watcher is late. It is then ready for what goes behind work that awaits the program
 * (in_flight.h). A launch that may not go behind any valve then waits for a second more. */
bool orion_valve_is_late(struct orion_process *process, const struct orion_stream_record *stream_record);

/* Called before a launch: puts the wait of the launch's stop into the stream, and wakes the watcher if it sleeps. The
 * valve puts a wait into the stream before the stream's work since the last wait exceeds its part of share_ns, and once
 * after each closing. share_ns is the client's share of the window; all streams that have work get an equal part of it.
 * Returns false if the launch must be gated on the CPU and fit into the window, because a wait could not be put into the stream, or
 * another thread holds the ledger or loads code (quiet.h). */
bool orion_valve_pass(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                      const struct orion_stop *stop, uint64_t expected_ns, uint64_t share_ns);

/* Wakes the watcher if it sleeps. Called after a launch has closed the valve, put a wait into a stream, or is counted in flight
 * without a wait: a watcher that was late finds out only beside work that it is on time again, and then also sees when the work ends
 * (turns.h). */
void orion_valve_wake(struct orion_gpu *gpu);

/* Whether work in flight is behind the valve. While the valve is closed, a driver call that waits for this work spins
 * on a CPU. */
bool orion_valve_runs_ahead(const struct orion_gpu *gpu);

/* Whether work in flight may wait at the valve, now or later. */
bool orion_valve_may_hold(struct orion_gpu *gpu);

/* Whether a thread watches hp, late or on time. */
bool orion_valve_is_watched(const struct orion_gpu *gpu);

/* Stops be launches while the GPU's hp is busy. Used where contexts are time-sliced. Where contexts run together,
 * be/overlap.h decides. */
extern const struct orion_stop orion_valve_stop;

#endif
