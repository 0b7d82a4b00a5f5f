/* The window: how much expected be work this process may have in flight on a GPU.
 *
 * Work in flight cannot be taken back, so an arriving hp has to wait for it. It is counted in expected time, not in
 * launches: four kernels of 1.8 ms delay hp far more than four of 5 us. chunks.h finds out what has completed.
 *
 * Refused: to wait by cuEventSynchronize with blocking sync (seen: 500 us late in a virtual machine). To sleep until
 * the expected end and then look is late by some microseconds only. */
#ifndef ORION_WINDOW_H
#define ORION_WINDOW_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

/* This client's share of the window, from the agent's grant. */
uint64_t orion_window_share(const struct orion_gpu *gpu);

/* The part of that share that may be past the valve, where an arriving hp must wait for it. It is smaller where hp's
 * busy periods are short, because the same wait is a larger part of them. */
uint64_t orion_window_narrowed(const struct orion_gpu *gpu);

/* Adds `expected_ns` to the work in flight if the sum is at most `limit_ns`, or if nothing is in flight. Returns false
 * if it does not fit: this has waited for some time, and the caller must look at hp again before the next try. */
bool orion_window_enter(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                        uint64_t limit_ns);
void orion_window_leave(struct orion_gpu *gpu, uint64_t expected_ns); /* the launch was not made after all */

/* Called around a launch that has entered. orion_window_launching returns whether the launch is timed; at most one
 * launch of a stream is timed at once. */
bool orion_window_launching(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t identity);
void orion_window_launched(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                           bool timed);

void orion_window_reap(struct orion_process *process, struct orion_gpu *gpu); /* retires completed work */
/* The stream record was proven empty. */
void orion_window_drained(struct orion_process *process, struct orion_stream_record *stream_record);
/* The stream record's stream or context ends. */
void orion_window_forget(struct orion_stream_record *stream_record, bool context_lives);

/* The cost of work of unknown duration: longer than any window, so that it runs alone. */
#define ORION_WINDOW_ALONE (UINT64_C(1) << 40)

#endif
