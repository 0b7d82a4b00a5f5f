/* Admission: a be launch waits here until the GPU's policy lets it through. Admission then decides where the launch
 * runs and whether it is timed.
 *
 * orion_admit tries again and again, by the rules of the current policy, until the launch may go. Other files check the
 * conditions: the launch's stop (stop.h), the window (window.h), and the baselines, which are policies that only the
 * library of `orion bench` has (baseline_seam.h). admission.c only calls these checks in the right order. */
#ifndef ORION_ADMISSION_H
#define ORION_ADMISSION_H

#include "process/plan.h"
#include "process/policy.h"

struct orion_stream_record;
struct orion_process;
struct orion_work;

/* Flags of a be launch, in orion_work.flags. In an hp launch, orion_work.flags is an enum orion_busy_change. */
enum {
    ORION_ADMITTED_TIMED = 1u << 8,
    ORION_ADMITTED_PARTITIONED = 1u << 9,
    ORION_ADMITTED_SPINS = 1u << 10,    /* it may wait for other GPUs once it runs, so its time says nothing */
    ORION_ADMITTED_BRANCHES = 1u << 11, /* a graph that the driver may run in several streams */
    ORION_ADMITTED_BESIDE_HP = 1u << 12,
    ORION_ADMITTED_UNHELD = 1u
        << 13, /* behind no wait, and no work in flight that can be held: branches, new kernels, other GPUs */
    ORION_ADMITTED_OTHER_GPUS = 1u << 14, /* a graph with kernels on other GPUs than that of its stream */
    ORION_ADMITTED_UNDER_WAY = 1u << 15   /* other threads' graphs in pieces wait for its end (between_pieces.h) */
};

/* Whether anything can make the GPU's be launches wait: the policy, or turns, which hold under the policy `none`, too. */
static inline bool orion_admits(const struct orion_gpu *gpu)
{
    return orion_policy_admits(orion_gpu_policy(gpu)) || orion_plan_exists(gpu);
}

/* Waits until the launch may be passed to the driver, and sets the work's expected_ns, admitted_ns, flags and elsewhere. The
 * policy may change during the wait. If the new policy lets every launch through, the function returns at once and sets
 * nothing. */
void orion_admit(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work);

#endif
