/* Streams whose work the driver orders: the legacy default stream, and the blocking streams of its context.
 *
 * A launch into one of them waits in the driver for earlier work of the other, as for an event. While the hook holds that earlier
 * work, the wait keeps be's context on the GPU for whole time slices, and a request of 4.1 ms takes 6.9 ms (H200,
 * docs/results/programs.md). So once a program launches into both at a time, its launches on that GPU are held on the CPU until it has
 * not done so for a while, and nothing is in a stream behind the valve.
 *
 * Not seen: a stream that waits for a word of memory (cuStreamWaitValue32). Nobody knows who writes it.
 *
 * Rejected: words, as for events (event_words.h). The driver puts its own wait into the stream before every operation of the hook
 * there (measured: 6.9 ms with words, too). */
#ifndef ORION_DRIVER_ORDER_H
#define ORION_DRIVER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#define ORION_AWAITED 4u /* so many streams are known for which one waits; what it awaits beside them is missed */

struct orion_process;
struct orion_stream_record;

/* Called once before each launch of be. Whether it should be held on the CPU. */
bool orion_driver_order_matters(struct orion_process *process, struct orion_stream_record *stream_record);

/* Called once a launch of be has begun. */
void orion_driver_order_begun(const struct orion_stream_record *stream_record);

/* Called before each operation of be that takes no GPU time: an event, a host function, memory of a pool. It waits in the driver as a
 * launch does, and launches wait for it, but nothing holds it. */
void orion_driver_order_operation(struct orion_process *process, struct orion_stream_record *stream_record);

/* Called before such an operation by which the stream waits for the work so far of another one, of whatever order. */
void orion_driver_order_awaits(const struct orion_process *process, struct orion_stream_record *stream_record,
                               const struct orion_stream_record *source);

/* How many waits for other streams have been put into the stream so far. A caller that learns later that these are over calls the second
 * function. If more have come since, all of them count until what they await is known to be complete. */
uint32_t orion_driver_order_waits(const struct orion_stream_record *stream_record);
void orion_driver_order_over(struct orion_stream_record *stream_record, uint32_t waits);

/* Called when the stream ends. */
void orion_driver_order_forget(struct orion_stream_record *stream_record);

#endif
