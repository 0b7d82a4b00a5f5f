/* The work in flight in all streams of a GPU together: a launch that waits for the window, or the thread that retires work, has to
 * look at every stream, since the work that leaves no room may be in a stream whose thread launches nothing more.
 *
 * The caller holds the ledger (chunks.h) and is in relaxed capture mode. */
#ifndef ORION_IN_FLIGHT_H
#define ORION_IN_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

/* Retires completed chunks. Returns how many. */
unsigned orion_in_flight_retire(struct orion_process *process, struct orion_gpu *gpu, uint64_t now);

/* Counts all work as complete. */
void orion_in_flight_forget(struct orion_process *process, struct orion_gpu *gpu);

/* Programs that measure put a kernel first that spins until they have launched what is behind it (nvbench, nvbandwidth). The first
 * function takes the work that is first in each stream for such; false: there is none, or it was taken for such before. The second one:
 * when such work began that is first in a stream, or a kernel that has taken long as such work before (ORION_FACTS_AWAITS_PROGRAM); 0:
 * there is none. */
bool orion_in_flight_take_for_awaiting(struct orion_process *process, const struct orion_gpu *gpu);
uint64_t orion_in_flight_awaiting(struct orion_process *process, const struct orion_gpu *gpu);

/* Puts an event behind the open chunk of each stream of the GPU that `own`'s thread can use. */
void orion_in_flight_close(struct orion_process *process, struct orion_stream_record *own);

/* The longest work whose end one event shows. */
uint64_t orion_in_flight_longest(struct orion_process *process, const struct orion_gpu *gpu);

#endif
