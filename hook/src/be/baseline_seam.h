/* Where the baselines (baselines/) come in, which only the library of `orion bench` has: in the released one these calls are
 * nothing. */
#ifndef ORION_BASELINE_SEAM_H
#define ORION_BASELINE_SEAM_H

#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;
struct orion_work;

#ifdef ORION_BASELINES

/* One try to let a be launch through; sets work->expected_ns if it may go. False: some time was spent waiting. */
bool orion_baseline_enter(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                          uint64_t expected_ns);

/* Any client: a synchronising call has returned, which ends an iteration if there was work in it. */
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
