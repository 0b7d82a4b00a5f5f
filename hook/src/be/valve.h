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

#include "pinned_page.h"

struct orion_board;
struct orion_lane;
struct orion_process;

struct orion_valve {
    struct orion_pinned_page page; /* guarded by the ledger; its first word: 0: open, else closed */
    _Atomic uint32_t refused;    /* this device or driver has no such wait */
    _Atomic uint32_t closings;   /* closed is another odd number each time */
    _Atomic uint32_t epoch;      /* grows with each closing: a lane that has not waited since must */
    _Atomic uint32_t watched;    /* 0: no watcher yet; 1: late; 2: on time; 3: starting */
    _Atomic uint32_t parked, bell;
    _Atomic uint32_t in_use;     /* some work in flight stands behind the valve */
};

/* How far a client may run ahead of the GPU, in shares of the window. */
#define ORION_RUN_AHEAD 32u

/* Whether the next launch of the lane can be put behind the valve; sets the valve up at first use. */
bool orion_valve_ready(struct orion_process *process, struct orion_lane *lane);

/* Before a launch: puts a wait into the stream where one is due, and sees that the watcher watches. A collective's (not 0:
 * its number, see collective.h) is another wait, and always due. False: it could not, and the launch has to be gated as if
 * there were no valve. */
bool orion_valve_pass(struct orion_process *process, struct orion_lane *lane, uint64_t expected_ns, uint64_t share_ns,
                      uint32_t collective);

/* Whether a call that waits for this process's work would spin in the driver until hp is idle. */
bool orion_valve_would_block(struct orion_board *board);

/* After orion_forbid_touch, before a context ends: a stream that waits for the valve would never end. Closed again only
 * after orion_allow_touch. */
void orion_valve_open_all(struct orion_process *process);

#endif
