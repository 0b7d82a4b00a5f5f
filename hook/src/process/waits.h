/* Counts how long launches wait. */
#ifndef ORION_WAITS_H
#define ORION_WAITS_H

#include <stdint.h>

#include "process/gpu.h"

/* One launch has waited for so long: for hp, for a turn, or for the time that its limit leaves. */
void orion_waits_note(struct orion_gpu *gpu, uint64_t waited_ns);

/* Called around such a wait: meanwhile the record says since when the launch waits. The first returns the time. */
uint64_t orion_waits_begin(struct orion_gpu *gpu);
void orion_waits_end(struct orion_gpu *gpu, uint64_t began_ns);

#endif
