/* What a process leaves behind: files in a folder, for whoever asked for the profile.
 *
 *   process-PID-TIME.jsonl    one JSON object a line: the process, its devices, its kernels; replaced as a whole, so
 *                             that a reader always finds a complete one, however the process ends
 *   launches-PID-TIME.csv     correlation,start,duration,kernel of each launch, in no order; appended to, bounded */
#ifndef ORION_PROFILER_OUTPUT_H
#define ORION_PROFILER_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

struct profiler_output {
    char process[512], replacement[520], launches[512]; /* paths */
    uint64_t launches_left;           /* that may still be written down */
    uint32_t pending;                 /* bytes of `text` */
    char text[1 << 16];
};

/* What the process's own line says. */
struct profiler_state {
    uint64_t dropped;                 /* records that CUPTI had no room for */
    const char *failure;              /* why nothing is traced, or NULL */
    bool ended;                       /* by itself: nothing is missing */
};

void profiler_output_open(struct profiler_output *output, const char *folder, uint64_t launches);
void profiler_output_launch(struct profiler_output *output, const struct cupti_kernel *record, uint32_t kernel);
void profiler_output_write(struct profiler_output *output, const struct profiler_kernels *kernels,
                           const struct profiler_state *state);

#endif
