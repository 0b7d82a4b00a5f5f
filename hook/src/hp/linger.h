/* The linger: how long a drained hp still counts as busy. It is learnt from hp's own gaps.
 *
 * A loop that synchronises after every token has one short gap per token. A be launch in that gap would delay the next
 * token. A linger that lasts through every gap would keep be from using the long gaps. If the distribution of gaps is
 * known, the cost of a linger L is
 *
 *   (sum over gaps <= L of the gap)  +  (sum over longer gaps of L + price)
 *
 * (the ski-rental problem). The price of an interrupted gap is the ceiling: waiting through a gap shorter than the
 * ceiling pays if such gaps are common. The hook chooses the shortest L such that no longer linger is clearly cheaper,
 * because for random arrivals every L costs about the same. It then extends L to the end of the mode (of common gap
 * lengths) in which L lies. The longest gaps of a mode are few, but each that outlasts the linger costs hp a context
 * switch between queued requests. Weights halve every ORION_LINGER_FADE gaps. */
#ifndef ORION_LINGER_H
#define ORION_LINGER_H

#include <stdatomic.h>
#include <stdint.h>

#define ORION_LINGER_BUCKETS 20u
#define ORION_LINGER_FADE 128u /* among this many gaps, a share of 2 % is not chance; a multiple of 8 */

struct orion_linger {
    _Atomic uint32_t learning;                 /* a lock; a thread that does not get it at once drops its gap */
    uint32_t seen;                             /* gaps since the weights were halved */
    uint32_t known;                            /* all gaps so far, saturating */
    uint32_t weight[ORION_LINGER_BUCKETS + 1]; /* gaps by length; the last bucket: longer than every edge */
    _Atomic uint64_t chosen_ns;                /* 0: nothing learnt yet */
};

/* Learns a gap: the time from drained to the next launch. */
void orion_linger_learn(struct orion_linger *linger, uint64_t gap_ns, uint64_t floor_ns, uint64_t ceiling_ns);

/* The linger to use now: at least the floor, at most the ceiling. */
uint64_t orion_linger_now(const struct orion_linger *linger, uint64_t floor_ns, uint64_t ceiling_ns);

#endif
