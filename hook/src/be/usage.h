/* The GPU time of a client: how long at least one of its streams had work on the GPU.
 *
 * Work is reported when it has completed, as a span of time. The spans of several streams overlap and come in any order, so
 * the last ones are kept: a span counts only where no other one has counted. A short gap between two spans counts, too,
 * because the GPU could not have done much else in it. */
#ifndef ORION_USAGE_H
#define ORION_USAGE_H

#include <stdint.h>

#include "system/system.h"

#define ORION_USAGE_GAP_NS (50 * ORION_MICROSECOND) /* shorter gaps count */
#define ORION_USAGE_SPANS 8u

struct orion_usage {
    uint64_t from_ns; /* all time before counts as reported */
    uint32_t count;
    struct orion_span { uint64_t begin_ns, end_ns; } span[ORION_USAGE_SPANS]; /* in order, with gaps that do not count */
};

/* Adds a span of work; returns by how much the GPU time grows. */
uint64_t orion_usage_add(struct orion_usage *usage, uint64_t begin_ns, uint64_t end_ns);

#endif
