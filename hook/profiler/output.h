/* The files that a profiled process writes into the profile's folder.
 *
 *   process-PID-TIME.jsonl    one JSON object per line: the process, its devices, its kernels. The profiler replaces
 *                             the whole file, so a reader finds a complete file even after the process was killed
 *   launches-PID-TIME.csv     correlation,start,duration,kernel of each launch, unordered. The profiler appends lines
 *                             up to a limit */
#ifndef ORION_PROFILER_OUTPUT_H
#define ORION_PROFILER_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

struct profiler_output {
    char process[512], replacement[520], launches[512]; /* paths */
    uint64_t launches_left;                             /* launches that may still be recorded */
    uint32_t pending;                                   /* bytes of `text` */
    char text[1 << 16];
};

/* The contents of the process line. */
struct profiler_state {
    uint64_t dropped;    /* records that CUPTI dropped for lack of space */
    const char *failure; /* why nothing is traced; NULL: tracing works */
    bool ended;          /* the process ended itself: the profile is complete */
};

void profiler_output_open(struct profiler_output *output, const char *folder, uint64_t launches);
void profiler_output_launch(struct profiler_output *output, const struct cupti_kernel *record, uint32_t kernel);
void profiler_output_write(struct profiler_output *output, const struct profiler_kernels *kernels,
                           const struct profiler_state *state);

#endif
