/* The window: how much expected be work this process may have in flight on a GPU.
 *
 * The hook cannot cancel work in flight, so an arriving hp has to wait for this work. The hook counts the work in
 * expected time, not in launches: four kernels of 1.8 ms delay hp far more than four of 5 us. chunks.h finds out what
 * has completed.
 *
 * Rejected: waiting by cuEventSynchronize with blocking sync (seen: 500 us late in a virtual machine). A sleep until
 * the expected end, followed by a check, is late by only some microseconds. */
#ifndef ORION_WINDOW_H
#define ORION_WINDOW_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

/* Returns this client's share of the window, which the agent writes into the grant. */
uint64_t orion_window_share(const struct orion_gpu *gpu);

/* How long work waits at most for a window without held work: twice as long as all work of a client in flight can take. */
uint64_t orion_window_patience(const struct orion_gpu *gpu);

/* Returns how much of that share may be past the valve (valve.h), that is, where no stop can hold it any more. An
 * arriving hp must wait for this work. The amount is smaller if hp's busy periods are short, because the same wait is a
 * larger part of a short period. */
uint64_t orion_window_narrowed(const struct orion_gpu *gpu);

/* Adds `expected_ns` to the work in flight if the sum is at most `limit_ns`, or if nothing is in flight, or if it goes behind one
 * long kernel that it need not wait for. Returns false
 * if the work does not fit. The call has then waited for some time, and the caller must check hp again before the next
 * try. */
bool orion_window_enter(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                        uint64_t limit_ns);
/* How often a launch of this thread has waited for work that must depend on that launch. */
uint32_t orion_window_stuck(void);
void orion_window_leave(struct orion_gpu *gpu, uint64_t expected_ns); /* the launch was not made after all */

/* Called before and after a launch for which orion_window_enter has returned true. orion_window_launching returns
 * whether the launch is timed; at most one launch of a stream is timed at once. launched_ns: a time shortly before the launch.
 * flags: those of orion_work. failed: the driver refused the launch, so it takes no time, and its sample is worth nothing. */
bool orion_window_launching(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t identity);
void orion_window_launched(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                           uint64_t launched_ns, uint32_t flags);
void orion_window_failed(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t expected_ns,
                         uint32_t flags);

void orion_window_reap(struct orion_process *process, struct orion_gpu *gpu); /* retires completed work */
/* Called when the hook knows that all work of the stream record is complete. */
void orion_window_drained(struct orion_process *process, struct orion_stream_record *stream_record);

/* The cost of work of unknown duration: longer than any window, so that such work runs alone. */
#define ORION_WINDOW_ALONE (UINT64_C(1) << 40)

#endif
