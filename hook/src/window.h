/* The window: how much expected be work this process may have in flight on a GPU.
 *
 * Work in flight cannot be taken back, so it is what an arriving hp has to wait for; it is counted in expected
 * microseconds, not in launches (four 1.8 ms kernels and four 5 us kernels are not the same promise). Launches of a
 * stream are gathered into chunks of about an eighth of the window, an event behind each, because an event a launch
 * costs more than the rest of the hook together. Some launches are wrapped into two timed events to learn how long
 * their identity takes. Refused: cuEventSynchronize with blocking sync to wait (seen: 500 us late in a virtual
 * machine; sleeping until the expected end and then looking is late by some microseconds). */
#ifndef ORION_WINDOW_H
#define ORION_WINDOW_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define ORION_CHUNKS 16u /* chunks of a lane whose end is awaited; more are merged into the open one */

struct orion_board;
struct orion_lane;
struct orion_process;
struct orion_work;

struct orion_chunk {
    CUevent end;                        /* plain, cheap; created at first use and used again and again */
    CUevent timed_start, timed_end;     /* around the one launch that is timed; timed_end is the chunk's end then */
    uint64_t cost_ns;
    uint64_t begun_ns;                  /* when its first launch was handed to the driver */
    uint64_t identity;                  /* of the timed launch; 0: none is */
};

struct orion_chunks {                   /* guarded by the board's ledger */
    uint32_t first, count;              /* ring of chunks awaiting their end */
    uint64_t open_ns, open_since_ns;    /* launches behind the last event: their cost, the first one's time */
    bool sampling;                      /* a timed launch is under way, in the slot behind the last chunk */
    struct orion_chunk ring[ORION_CHUNKS];
};

/* This client's share of the window: the work past the valve that an arriving hp may find. */
uint64_t orion_window_share(const struct orion_board *board);

/* Takes `expected_ns` of `limit_ns` of work in flight, alone if it is longer than that. False: it does not fit; some time
 * was spent waiting and hp is to be looked at again before the next try. */
bool orion_window_enter(struct orion_process *process, struct orion_lane *lane, uint64_t expected_ns, uint64_t limit_ns);
void orion_window_leave(struct orion_board *board, uint64_t expected_ns); /* not launched after all */

/* Around a launch that has entered. */
void orion_window_launching(struct orion_process *process, struct orion_lane *lane, uint64_t identity);
void orion_window_launched(struct orion_process *process, struct orion_lane *lane, uint64_t expected_ns, bool timed);

void orion_window_reap(struct orion_process *process, struct orion_board *board);  /* takes what has completed off */
void orion_window_drained(struct orion_process *process, struct orion_lane *lane); /* the lane was proven empty */
void orion_window_forget(struct orion_lane *lane, bool context_lives); /* its stream or its context ends */

/* What an unknown piece of work is taken for: longer than any window, so that it goes alone. */
#define ORION_WINDOW_ALONE (UINT64_C(1) << 40)

/* The ledger: a board's book-keeping is short, and a thread that cannot have it (a signal handler above the holder) does
 * without. False: not had. */
bool orion_ledger_take(struct orion_board *board);
void orion_ledger_give(struct orion_board *board);

#endif
