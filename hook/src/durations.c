#include "durations.h"

#include <stddef.h>

#define NEIGHBOURHOOD 8u
#define SAMPLED_AT_FIRST 4u   /* launches of a new identity that are all timed */
#define SAMPLED_LATER 128u    /* then at powers of two, then one in so many: two timed events cost a microsecond */

static struct orion_duration *find(struct orion_durations *durations, uint64_t identity)
{
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_duration *entry = &durations->entry[(identity + i) & (ORION_DURATIONS - 1)];
        uint64_t held = atomic_load_explicit(&entry->identity, memory_order_acquire);
        if (held == identity) return entry;
        if (held == 0) return NULL;
    }
    return NULL;
}

uint64_t orion_duration_expect(struct orion_durations *durations, uint64_t identity, bool *sample)
{
    struct orion_duration *entry = find(durations, identity);
    *sample = true;
    if (entry == NULL) return 0;
    /* Lost updates between threads only shift which launch is timed. */
    uint32_t launches = atomic_load_explicit(&entry->launches, memory_order_relaxed) + 1;
    atomic_store_explicit(&entry->launches, launches ? launches : SAMPLED_LATER, memory_order_relaxed);
    *sample = launches % SAMPLED_LATER == 0 || (launches < SAMPLED_LATER && (launches & (launches - 1)) == 0) ||
              atomic_load_explicit(&entry->samples, memory_order_relaxed) < SAMPLED_AT_FIRST;
    return (uint64_t)atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed) * 100;
}

/* A free entry of the neighbourhood, else its least used one. */
static struct orion_duration *claim(struct orion_durations *durations, uint64_t identity)
{
    struct orion_duration *least = NULL;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_duration *entry = &durations->entry[(identity + i) & (ORION_DURATIONS - 1)];
        uint64_t held = 0;
        if (atomic_compare_exchange_strong(&entry->identity, &held, identity)) {
            atomic_fetch_add_explicit(&durations->known, 1, memory_order_relaxed);
            return entry;
        }
        if (held == identity) return entry;
        if (least == NULL || atomic_load_explicit(&entry->launches, memory_order_relaxed) <
                                 atomic_load_explicit(&least->launches, memory_order_relaxed))
            least = entry;
    }
    atomic_store_explicit(&least->samples, 0, memory_order_relaxed);
    atomic_store_explicit(&least->launches, 0, memory_order_relaxed);
    atomic_store_explicit(&least->expected_100ns, 0, memory_order_relaxed);
    atomic_store_explicit(&least->identity, identity, memory_order_release);
    return least;
}

/* Down fast, up slowly: what inflates a sample (another context's time slice, a GPU that had to be woken, a launch gap)
 * is more common than what deflates it. */
void orion_duration_learn(struct orion_durations *durations, uint64_t identity, uint64_t measured_ns)
{
    struct orion_duration *entry = find(durations, identity);
    if (entry == NULL) entry = claim(durations, identity);
    uint64_t measured = measured_ns / 100 + 1;
    if (measured > UINT32_MAX) measured = UINT32_MAX;
    uint64_t expected = atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed);
    uint32_t samples = atomic_load_explicit(&entry->samples, memory_order_relaxed);
    if (samples == 0 || expected == 0) expected = measured;
    else if (measured < expected) expected -= (expected - measured + 1) / 2;
    else expected += (measured - expected) / (samples < 16 ? 4 : 16);
    atomic_store_explicit(&entry->expected_100ns, (uint32_t)expected, memory_order_relaxed);
    if (samples < UINT32_MAX) atomic_store_explicit(&entry->samples, samples + 1, memory_order_relaxed);
}

/* The entry stays as an unsampled one: taking it out would break the search of its neighbours. */
void orion_duration_forget(struct orion_durations *durations, uint64_t identity)
{
    struct orion_duration *entry = find(durations, identity);
    if (entry == NULL) return;
    atomic_store_explicit(&entry->samples, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->expected_100ns, 0, memory_order_relaxed);
}
