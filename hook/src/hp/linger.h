/* The linger: how long a drained hp still counts as busy, learnt from its own gaps.
 *
 * A loop that synchronises after every token has a short gap a token; a be launch let through in it would delay the
 * next token. Lingering through every gap would waste the long ones. With the distribution of gaps known, the cost of
 * a linger L is   sum over gaps <= L of the gap   +   sum over longer gaps of (L + price),   the ski-rental problem,
 * where the price of an interrupted gap is the ceiling: a gap shorter than the ceiling is worth waiting through when
 * gaps like it are common. The shortest L is taken that no longer one clearly undercuts: random arrivals have gaps of all
 * lengths, for which every L costs about the same. From there on it goes to the end of the mode that it has reached: the
 * slowest gaps behind a queue are few, and each would cost hp a switch of contexts in the middle of the queue. Old gaps
 * fade by half every ORION_LINGER_FADE gaps. */
#ifndef ORION_LINGER_H
#define ORION_LINGER_H

#include <stdatomic.h>
#include <stdint.h>

#define ORION_LINGER_BUCKETS 20u
#define ORION_LINGER_FADE 128u /* enough gaps that two in a hundred are told from chance; a multiple of 8 */

struct orion_linger {
    _Atomic uint32_t learning;                 /* taken while a gap is noted; another one at that moment is not */
    uint32_t seen;                             /* gaps since the last fading */
    uint32_t known;                            /* gaps ever, saturating */
    uint32_t weight[ORION_LINGER_BUCKETS + 1]; /* gaps by length; the last: longer than every edge */
    _Atomic uint64_t chosen_ns;                /* 0: nothing learnt yet */
};

/* Notes a gap between drained and the next launch. */
void orion_linger_learn(struct orion_linger *linger, uint64_t gap_ns, uint64_t floor_ns, uint64_t ceiling_ns);

/* The linger to use now, between floor and ceiling. */
uint64_t orion_linger_now(const struct orion_linger *linger, uint64_t floor_ns, uint64_t ceiling_ns);

#endif
