/* The limits of a device that decide how many blocks of a kernel fit on one SM. The driver reports these limits.
 *
 * Rejected: CUPTI's device record. It lacks the shared memory that the system reserves in each block. */
#ifndef ORION_PROFILER_DEVICES_H
#define ORION_PROFILER_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#define PROFILER_DEVICES 16u
#define PROFILER_LIMITS 9u

struct profiler_limit {
    const char *name;
    int attribute; /* CUdevice_attribute */
};
extern const struct profiler_limit profiler_limits[PROFILER_LIMITS];

struct profiler_device {
    char model[128];
    int limits[PROFILER_LIMITS]; /* in the order of profiler_limits */
};

/* Queries the driver once about a device. `number` is the device's number in this process. Do not call this function
 * from a callback of CUPTI, or under a lock that such a callback takes. */
void profiler_device_ask(uint32_t number);

/* Returns the driver's answer about a device. NULL: there was no query, or the query failed. */
const struct profiler_device *profiler_device(uint32_t number);

#endif
