/* Counts how long launches wait. */
#ifndef ORION_WAITS_H
#define ORION_WAITS_H

#include <stdint.h>

#include "process/gpu.h"

/* One launch has waited for so long: for hp, for a turn, or for the time that its limit leaves. */
void orion_waits_note(struct orion_gpu *gpu, uint64_t waited_ns);

#endif
