/* The overlap budget: hp's process decides how long after the beginning of a busy period be may run beside hp. This
 * time is the allowed age.
 *
 * hp's owner grants a slowdown (orion_policy_budget). hp's own process decides, because it sees its busy periods. When
 * a period begins, the process writes the end of the overlap into the busy page, which be reads anyway. Overlap is
 * allowed only in the young part of a period, because of queueing: a delay of the first request of a long queue delays
 * all of them. Requests in the later part are late already (measured: docs/results/colocation.md).
 *
 * Feedback: some periods are control periods, without overlap: the first few, then random ones. The slowdown is the
 * time per launch in overlapped periods divided by the time per launch in control periods. The allowed age grows while
 * the slowdown is below the budget, and shrinks faster while the slowdown is above the budget. Where even the least
 * overlap costs more than the budget, only one period in two dozen tries overlap again; all others are control periods.
 * A period that may never end (training, a saturated server) is cut into slices once it is two seconds old. Slices count
 * as periods.
 *
 * Rejected: comparing the lengths of periods, because queueing changes them more than overlap does; letting the agent
 * decide, because the agent sees hp's periods 100 ms late. */
#ifndef ORION_BUDGET_H
#define ORION_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;

struct orion_budget_sum {
    uint64_t busy_ns, work;
    uint32_t periods;
}; /* a decaying sum over roughly the last dozen periods */

struct orion_budget {
    /* Threads try this lock and never wait for it. A thread that does not get the lock does not count the period. */
    _Atomic uint32_t lock;
    struct orion_budget_sum control, overlapped;
    bool is_control, open;                   /* of the current period */
    bool too_costly;                         /* even the least overlap exceeds the budget */
    uint64_t busy_ns, work;                  /* of the current period: the sums of its closed parts */
    uint64_t began_ns;                       /* of the current period or slice */
    uint64_t part_began_ns, part_began_work; /* of the part that is being measured */
    /* The age up to which overlap is allowed; the longest recent period (decays). */
    uint64_t overlap_ns, longest_ns;
    uint32_t random;
};

/* Called when a busy period begins after idle time (opened), resumes after a short gap (resumed), or pauses (paused).
 * `work`: number of launches begun on the GPU so far. */
void orion_budget_opened(struct orion_gpu *gpu, uint64_t now, uint64_t work);
void orion_budget_resumed(struct orion_gpu *gpu, uint64_t now, uint64_t work);
void orion_budget_paused(struct orion_gpu *gpu, uint64_t now, uint64_t work);

/* Called by hp's thread: cuts a period that may never end into slices. */
void orion_budget_poll(struct orion_gpu *gpu, uint64_t now, uint64_t work);

#endif
