#include "hp/linger.h"

#define MICROSECOND UINT64_C(1000)
#define CHEAPER_PARTS 4u /* a longer linger must cost less than four fifths of a shorter one */
#define CHEAPER_PARTS_OF 5u
#define PAYING_FACTOR 2u /* required multiple of the rate at which waiting pays, because counts are noisy */
#define GAPS_TO_TRUST 8u /* fewer gaps are no evidence */

/* Upper edges of the buckets, in microseconds: half octaves from 12 us to 8 ms. */
static const uint32_t edge_us[ORION_LINGER_BUCKETS] = {12,  16,  24,  32,   48,   64,   96,   128,  192,  256,
                                                       384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192};

static unsigned bucket_of(uint64_t gap_ns)
{
    unsigned bucket = 0;
    while (bucket < ORION_LINGER_BUCKETS && gap_ns >= edge_us[bucket] * MICROSECOND) bucket++;
    return bucket;
}

/* Computes the cost of each linger, as a sum of costs of all gaps. A gap that ends within the linger costs its own
 * length. A longer gap costs the linger plus the ceiling; the ceiling is the price of hp's return to a GPU that be has
 * used. */
static void weigh(const struct orion_linger *linger, uint64_t floor_ns, uint64_t ceiling_ns,
                  uint64_t cost[ORION_LINGER_BUCKETS + 1])
{
    uint64_t longer = 0, covered_ns = 0;
    for (unsigned i = 0; i <= ORION_LINGER_BUCKETS; i++) longer += linger->weight[i];
    cost[0] = longer * (floor_ns + ceiling_ns);
    for (unsigned i = 0; i < ORION_LINGER_BUCKETS; i++) {
        uint64_t linger_ns = edge_us[i] * MICROSECOND;
        longer -= linger->weight[i];
        covered_ns += linger->weight[i] * (linger_ns + (i > 0 ? edge_us[i - 1] * MICROSECOND : 0)) / 2; /* on average */
        cost[i + 1] = linger_ns > ceiling_ns ? UINT64_MAX : covered_ns + longer * (linger_ns + ceiling_ns);
    }
}

/* The shortest linger L such that no linger above L is clearly cheaper. Random (memoryless) arrivals have gaps of all
 * lengths, and every linger costs about the same; a longer linger would take time from be for no reason. Many hp
 * clients have both a mode of short gaps, between queued requests, and a tail of random gaps. The chosen linger covers
 * the mode and not the tail. */
static uint64_t cheapest(const struct orion_linger *linger, uint64_t floor_ns, uint64_t ceiling_ns)
{
    uint64_t cost[ORION_LINGER_BUCKETS + 1], least = UINT64_MAX;
    weigh(linger, floor_ns, ceiling_ns, cost);
    for (unsigned i = 0; i <= ORION_LINGER_BUCKETS; i++)
        if (cost[i] < least) least = cost[i];
    unsigned chosen = 0;
    while (cost[chosen] / CHEAPER_PARTS_OF * CHEAPER_PARTS > least) chosen++;
    uint64_t best = chosen == 0 ? 0 : edge_us[chosen - 1] * MICROSECOND;
    return best < floor_ns ? floor_ns : best;
}

/* Extends the linger to the end of the mode in which it lies, because the mode's last gaps are too few to change the
 * total cost. A longer wait pays while gaps of this age end at a rate of more than one per ceiling. The ceiling is the
 * price of an interrupted gap. A bucket without gaps ends the mode; so does the last gap. */
static uint64_t extend_to_mode_end(const struct orion_linger *linger, uint64_t linger_ns, uint64_t ceiling_ns)
{
    uint64_t lasting = linger->weight[ORION_LINGER_BUCKETS], beyond[ORION_LINGER_BUCKETS];
    for (unsigned i = ORION_LINGER_BUCKETS; i-- > 0;) beyond[i] = lasting += linger->weight[i];
    for (unsigned i = 0; i < ORION_LINGER_BUCKETS; i++) {
        uint64_t edge_ns = edge_us[i] * MICROSECOND, wide_ns = edge_ns - (i > 0 ? edge_us[i - 1] * MICROSECOND : 0);
        if (edge_ns <= linger_ns) continue;
        if (edge_ns > ceiling_ns || linger->weight[i] * ceiling_ns <= PAYING_FACTOR * beyond[i] * wide_ns) break;
        linger_ns = edge_ns;
    }
    return linger_ns;
}

static uint64_t choose(const struct orion_linger *linger, uint64_t floor_ns, uint64_t ceiling_ns)
{
    uint64_t best = extend_to_mode_end(linger, cheapest(linger, floor_ns, ceiling_ns), ceiling_ns);
    /* Adds a quarter, because the gaps that the linger should cover may be a little longer than the bucket's edge. */
    if (best > floor_ns) best += best / 4;
    return best > ceiling_ns ? ceiling_ns : best;
}

void orion_linger_learn(struct orion_linger *linger, uint64_t gap_ns, uint64_t floor_ns, uint64_t ceiling_ns)
{
    if (atomic_exchange_explicit(&linger->learning, 1, memory_order_acquire)) return;
    linger->weight[bucket_of(gap_ns)] += 16;
    if (linger->known < UINT32_MAX) linger->known++;
    if (++linger->seen >= ORION_LINGER_FADE) {
        linger->seen = 0;
        for (unsigned i = 0; i <= ORION_LINGER_BUCKETS; i++) linger->weight[i] /= 2;
    }
    if (linger->known >= GAPS_TO_TRUST && linger->seen % 8 == 0)
        atomic_store_explicit(&linger->chosen_ns, choose(linger, floor_ns, ceiling_ns), memory_order_relaxed);
    atomic_store_explicit(&linger->learning, 0, memory_order_release);
}

uint64_t orion_linger_now(const struct orion_linger *linger, uint64_t floor_ns, uint64_t ceiling_ns)
{
    uint64_t chosen = atomic_load_explicit(&linger->chosen_ns, memory_order_relaxed);
    if (chosen == 0) chosen = 200 * MICROSECOND; /* a token loop's gap, used before anything is learnt */
    return chosen < floor_ns ? floor_ns : chosen > ceiling_ns ? ceiling_ns : chosen;
}
