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

/* Tries once to let a be launch through. Returns true and sets work->expected_ns if the launch may go. Returns false
 * after it has waited for some time; the caller must then try again. */
bool orion_baseline_enter(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work,
                          uint64_t expected_ns);

/* Called for any client when a synchronising call of the program has returned. If the client has begun work since the
 * last iteration, this call ends another iteration. */
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
