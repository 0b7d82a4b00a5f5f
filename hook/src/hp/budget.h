/* The overlap budget: hp's process limits the age of a busy period up to which be may run beside it.
 *
 * hp's owner grants a slowdown (orion_policy_budget). hp's own process sees its busy periods, so it decides. When a
 * period begins, it writes the end of the overlap into the busy page, which be reads anyway. Overlap is allowed only in
 * the young part of a period, because of queueing: a delay of the first request of a long queue delays all of them.
 * Requests in the later part are late already (measured: docs/results/colocation.md).
 *
 * Feedback: some periods are control periods, without overlap. The slowdown is the time per launch in overlapped
 * periods divided by the time per launch in control periods. The allowed age grows while the slowdown is under the
 * budget, and shrinks faster while it is over. Where even the least overlap costs more than the budget, only one period
 * in two dozen tries overlap again; all others are control periods. A period that never ends (training, a saturated
 * server) is cut into slices, which count as periods.
 *
 * Refused: to compare the lengths of periods, which queueing changes more than overlap does; to let the agent decide,
 * which sees hp's periods 100 ms late. */
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
    /* A lock that is tried, never waited for; a thread that does not get it does not count the period. */
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

/* A busy period begins after idle, resumes after a short gap, or pauses. `work`: launches begun on the GPU so far. */
void orion_budget_opened(struct orion_gpu *gpu, uint64_t now, uint64_t work);
void orion_budget_resumed(struct orion_gpu *gpu, uint64_t now, uint64_t work);
void orion_budget_paused(struct orion_gpu *gpu, uint64_t now, uint64_t work);

/* Called by hp's thread: cuts a period that may never end into slices. */
void orion_budget_poll(struct orion_gpu *gpu, uint64_t now, uint64_t work);

#endif
