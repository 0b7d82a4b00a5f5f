/* The window: how much expected be work this process may have in flight on a GPU.
 *
 * Work in flight cannot be taken back, so it is what an arriving hp has to wait for; it is counted in expected
 * microseconds, not in launches (four 1.8 ms kernels and four 5 us kernels are not the same promise). What has completed
 * is told by chunks.h. Refused: cuEventSynchronize with blocking sync to wait (seen: 500 us late in a virtual machine;
 * sleeping until the expected end and then looking is late by some microseconds). */
#ifndef ORION_WINDOW_H
#define ORION_WINDOW_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

/* This client's share of the window, as the agent granted it. */
uint64_t orion_window_share(const struct orion_gpu *gpu);

/* What of that share may be past the valve, where an arriving hp finds it: less where hp's busy periods are short, since
 * the same wait is a larger part of them. */
uint64_t orion_window_narrowed(const struct orion_gpu *gpu);

/* Takes `expected_ns` of `limit_ns` of work in flight, alone if it is longer than that. False: it does not fit; some time
 * was spent waiting and hp is to be looked at again before the next try. */
bool orion_window_enter(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                        uint64_t limit_ns);
void orion_window_leave(struct orion_gpu *gpu, uint64_t expected_ns); /* not launched after all */

/* Around a launch that has entered. Whether it is timed from here on: one of a stream at a time is. */
bool orion_window_launching(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t identity);
void orion_window_launched(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                           bool timed);

void orion_window_reap(struct orion_process *process, struct orion_gpu *gpu); /* takes what has completed off */
void orion_window_drained(struct orion_process *process,
                          struct orion_stream_record *stream_record);                    /* the stream record was proven empty */
void orion_window_forget(struct orion_stream_record *stream_record, bool context_lives); /* its stream or its context ends */

/* What an unknown piece of work is taken for: longer than any window, so that it goes alone. */
#define ORION_WINDOW_ALONE (UINT64_C(1) << 40)

#endif
