/* Streams whose work the driver orders: the legacy default stream, and the blocking streams of its context.
 *
 * A launch into one of them waits in the driver for earlier work of the other, as for an event. While the hook holds that earlier
 * work, the wait keeps be's context on the GPU for whole time slices, and a request of 4.1 ms takes 6.9 ms (H200,
 * docs/results/programs.md). So once a program launches into both at a time, its launches on that GPU are held on the CPU until it has
 * not done so for a while, and nothing is in a stream behind the valve.
 *
 * Rejected: words, as for events (event_words.h). The driver puts its own wait into the stream before every operation of the hook
 * there (measured: 6.9 ms with words, too). */
#ifndef ORION_DRIVER_ORDER_H
#define ORION_DRIVER_ORDER_H

#include <stdbool.h>

struct orion_process;
struct orion_stream_record;

/* Called once before each launch of be, and before other operations that wait in the driver in the same way: programs time their
 * blocking streams by events in the legacy stream. Whether a launch should be held on the CPU. */
bool orion_driver_order_matters(struct orion_process *process, struct orion_stream_record *stream_record);

/* Called once a launch of be has begun. */
void orion_driver_order_begun(const struct orion_stream_record *stream_record);

#endif
