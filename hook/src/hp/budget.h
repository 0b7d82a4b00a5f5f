/* The budget of overlap, kept by hp itself: how young a busy period must be for be to run beside it.
 *
 * hp's owner grants a slowdown (orion_policy_budget). hp's process is the one that sees its busy periods, so it is the one
 * that gives leave: at the start of a busy period it writes until when be may overlap, into the page that be reads anyway.
 * Overlap is given to the young part of a period since queueing makes the tail: what delays the first request of a long
 * queue delays all of them, and what is late in it is late already (measured: docs/results/colocation.md).
 *
 * Feedback: some periods are control periods, without overlap. The time that the same amount of work (launches) takes in
 * the others, over that in the control periods, is the slowdown; the age up to which overlap is allowed grows while it is
 * under the budget and shrinks, faster, while it is over. Where the least is too much, as beside kernels of which one costs
 * more than the budget, all periods but one in two dozen, which tries again, are control periods. A period that never ends
 * (training, a saturated server) is cut into slices that count as periods. Refused: comparing periods' lengths, which
 * queueing changes more than overlap does; asking the agent to do it, which sees hp's periods a hundred milliseconds late.
 */
#ifndef ORION_BUDGET_H
#define ORION_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;

struct orion_budget_sum {
    uint64_t busy_ns, work;
    uint32_t periods;
}; /* faded: the last dozen or so periods */

struct orion_budget {
    _Atomic uint32_t turn; /* taken for what follows; who cannot have it at once leaves the period uncounted */
    struct orion_budget_sum control, overlapped;
    bool is_control, open;                   /* the period under way */
    bool too_dear;                           /* even the least overlap exceeds the budget */
    uint64_t busy_ns, work;                  /* of the period under way, its closed parts */
    uint64_t began_ns;                       /* of the period under way, or of its slice */
    uint64_t part_began_ns, part_began_work; /* of the part that is being measured */
    uint64_t overlap_ns, longest_ns;         /* the age up to which overlap is allowed; the longest period of late */
    uint32_t random;
};

/* A busy period begins (after idle), goes on after a short gap, pauses; `work`: launches begun on the GPU so far. */
void orion_budget_opened(struct orion_gpu *gpu, uint64_t now, uint64_t work);
void orion_budget_resumed(struct orion_gpu *gpu, uint64_t now, uint64_t work);
void orion_budget_paused(struct orion_gpu *gpu, uint64_t now, uint64_t work);

/* The hp thread's look at a period that may never end: cuts it into slices. */
void orion_budget_attend(struct orion_gpu *gpu, uint64_t now, uint64_t work);

#endif
