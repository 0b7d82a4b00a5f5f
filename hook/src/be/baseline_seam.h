/* The calls into the baselines (baselines/), which only the library of `orion bench` contains. In the released library
 * these calls do nothing. */
#ifndef ORION_BASELINE_SEAM_H
#define ORION_BASELINE_SEAM_H

#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;
struct orion_work;

#ifdef ORION_BASELINES

/* Tries once to let a be launch through. Sets work->expected_ns if it may go. False: this has waited for some time. */
bool orion_baseline_enter(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                          uint64_t expected_ns);

/* Called for any client when a synchronising call has returned. The call ends an iteration if there was work in it. */
void orion_baseline_synchronised(struct orion_process *process, struct orion_gpu *gpu);

#else

static inline bool orion_baseline_enter(struct orion_process *process, struct orion_stream_record *stream_record,
                                        struct orion_work *work, uint64_t expected_ns)
{
    (void)process, (void)stream_record, (void)work, (void)expected_ns;
    return false;
}
static inline void orion_baseline_synchronised(struct orion_process *process, struct orion_gpu *gpu) { (void)process, (void)gpu; }

#endif

#endif
