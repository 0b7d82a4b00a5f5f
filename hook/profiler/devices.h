/* A device's limits, those that decide how many blocks of a kernel one SM holds, as the driver tells them.
 *
 * CUPTI's device record was refused: it lacks the shared memory that the system keeps of each block. */
#ifndef ORION_PROFILER_DEVICES_H
#define ORION_PROFILER_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#define PROFILER_DEVICES 16u
#define PROFILER_LIMITS 9u

struct profiler_limit { const char *name; int attribute; /* CUdevice_attribute */ };
extern const struct profiler_limit profiler_limits[PROFILER_LIMITS];

struct profiler_device {
    char model[128];
    int limits[PROFILER_LIMITS]; /* in the order of profiler_limits */
};

/* Asks the driver about a device, once; the number is the one that the process knows it by. Not from a callback of
 * CUPTI's, nor under a lock that such a callback takes. */
void profiler_device_ask(uint32_t number);

/* What the driver has said; NULL if it was not asked or did not say. */
const struct profiler_device *profiler_device(uint32_t number);

#endif
