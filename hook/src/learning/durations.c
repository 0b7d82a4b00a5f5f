#include "learning/durations.h"

#include <stddef.h>

#define NEIGHBOURHOOD 8u
#define SAMPLED_AT_FIRST 4u       /* the hook times at least this many launches of a new identity */
#define SAMPLED_LATER 128u        /* then it times launches 2^n, later one in 128: two timed events cost 1 us */
#define DISAGREES 4u              /* a sample longer than this many times the expected duration is a surprise */
#define SURPRISES 3u              /* after this many surprises in a row, the last one becomes the expected duration */
#define ESTIMATE_LEAST_100NS 200u /* least value of an unmeasured estimate, because an estimate may be much too low */
#define VARIES_DOWN 16u           /* where launches vary, a short one lowers the expected duration by this part of the difference */
#define TIME_SLICED_UP 256u       /* a time-sliced sample raises the expected duration by 1/256 of the difference */

/* Leaves out the lowest bits of an identity: they are its kind, see identity.h. */
static struct orion_duration *entry_at(struct orion_durations *durations, uint64_t identity, uint32_t step)
{
    return &durations->entry[((identity >> 8) + step) & (ORION_DURATIONS - 1)];
}

struct orion_duration *orion_duration_find(struct orion_durations *durations, uint64_t identity)
{
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_duration *entry = entry_at(durations, identity, i);
        uint64_t held = atomic_load_explicit(&entry->identity, memory_order_acquire);
        if (held == identity) return entry;
        if (held == 0) return NULL;
    }
    return NULL;
}

/* -- Claiming entries ------------------------------------------------------------------------------------------------ */

/* Whether the first of two entries was used less recently, or as recently and less often. */
static bool is_less_used(const struct orion_duration *one, const struct orion_duration *other, uint32_t clock)
{
    uint32_t age = clock - atomic_load_explicit(&one->used, memory_order_relaxed);
    uint32_t others = clock - atomic_load_explicit(&other->used, memory_order_relaxed);
    if (age != others) return age > others;
    return atomic_load_explicit(&one->launches, memory_order_relaxed) <
           atomic_load_explicit(&other->launches, memory_order_relaxed);
}

static void reset_entry(struct orion_duration *entry, uint64_t identity, uint32_t clock)
{
    atomic_store_explicit(&entry->samples, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->launches, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->expected_100ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->facts, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->surprises, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->reported_100ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->reported_facts, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->name, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->used, clock, memory_order_relaxed);
    atomic_store_explicit(&entry->identity, identity, memory_order_release);
}

/* A thread that still uses the entry for its earlier identity may write one sample of that identity. Later samples
 * correct the duration. */
static struct orion_duration *claim(struct orion_durations *durations, uint64_t identity, bool may_forget_measured)
{
    struct orion_duration *least = NULL;
    uint32_t clock = atomic_load_explicit(&durations->clock, memory_order_relaxed);
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_duration *entry = entry_at(durations, identity, i);
        uint64_t held = 0;
        if (atomic_compare_exchange_strong(&entry->identity, &held, identity)) {
            atomic_store_explicit(&entry->used, atomic_fetch_add(&durations->clock, 1) + 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&durations->known, 1, memory_order_relaxed);
            return entry;
        }
        if (held == identity) return entry;
        if (!may_forget_measured && atomic_load_explicit(&entry->samples, memory_order_relaxed) != 0) continue;
        if (least == NULL || is_less_used(entry, least, clock)) least = entry;
    }
    if (least != NULL) reset_entry(least, identity, atomic_fetch_add(&durations->clock, 1) + 1);
    return least;
}

struct orion_duration *orion_duration_claim(struct orion_durations *durations, uint64_t identity)
{
    return claim(durations, identity, true);
}

struct orion_duration *orion_duration_claim_for_estimate(struct orion_durations *durations, uint64_t identity)
{
    return claim(durations, identity, false);
}

/* -- Facts ----------------------------------------------------------------------------------------------------------- */

static void change_facts(struct orion_duration *entry, uint32_t cleared, uint32_t set)
{
    uint32_t facts = atomic_load_explicit(&entry->facts, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&entry->facts, &facts, (facts & ~cleared) | set, memory_order_relaxed,
                                                  memory_order_relaxed)) {}
}

void orion_facts_set_sms(struct orion_duration *entry, uint32_t sms) { change_facts(entry, 0xffff, sms > 0xffff ? 0xffff : sms); }
void orion_facts_set_class(struct orion_duration *entry, uint32_t kernel_class)
{
    change_facts(entry, 0xff0000, (kernel_class & 0xff) << 16);
}
void orion_facts_set_flags(struct orion_duration *entry, uint32_t flags) { change_facts(entry, 0, flags << 24); }
void orion_facts_clear_flags(struct orion_duration *entry, uint32_t flags) { change_facts(entry, flags << 24, 0); }

bool orion_kernel_facts(struct orion_durations *durations, uint64_t identity, struct orion_kernel_facts *out)
{
    struct orion_duration *entry = orion_duration_find(durations, identity);
    *out = (struct orion_kernel_facts){0};
    if (entry == NULL) return false;
    uint32_t facts = atomic_load_explicit(&entry->facts, memory_order_relaxed), kernel_class = orion_facts_class(facts);
    out->expected_ns = (uint64_t)atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed) * 100;
    out->sms = orion_facts_sms(facts);
    out->kernel_class = kernel_class <= ORION_CLASS_MEMORY ? (enum orion_kernel_class)kernel_class : ORION_CLASS_UNKNOWN;
    out->samples = atomic_load_explicit(&entry->samples, memory_order_relaxed);
    out->may_move = (orion_facts_flags(facts) & ORION_FACTS_MAY_MOVE) != 0;
    out->awaits_program = (orion_facts_flags(facts) & ORION_FACTS_AWAITS_PROGRAM) != 0;
    out->has_pieces = (orion_facts_flags(facts) & ORION_FACTS_HAS_PIECES) != 0;
    uint32_t clock = atomic_load_explicit(&durations->clock, memory_order_relaxed);
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != clock)
        atomic_store_explicit(&entry->used, clock, memory_order_relaxed);
    return (orion_facts_flags(facts) & ORION_FACTS_NOTED) != 0;
}

/* -- Durations ------------------------------------------------------------------------------------------------------- */

uint64_t orion_duration_expect(struct orion_durations *durations, uint64_t identity, bool *sample)
{
    struct orion_duration *entry = orion_duration_find(durations, identity);
    *sample = true;
    if (entry == NULL) return 0;
    uint32_t clock = atomic_load_explicit(&durations->clock, memory_order_relaxed);
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != clock)
        atomic_store_explicit(&entry->used, clock, memory_order_relaxed);
    /* The increment is not atomic. If an update of another thread is lost, only the choice of timed launches
     * changes. */
    uint32_t launches = atomic_load_explicit(&entry->launches, memory_order_relaxed) + 1;
    atomic_store_explicit(&entry->launches, launches ? launches : SAMPLED_LATER, memory_order_relaxed);
    uint32_t samples = atomic_load_explicit(&entry->samples, memory_order_relaxed);
    /* A launch that may await the program is always timed, so that its identity is known while it is in flight (be/in_flight.h). */
    *sample = launches % SAMPLED_LATER == 0 || (launches < SAMPLED_LATER && (launches & (launches - 1)) == 0) ||
              samples < SAMPLED_AT_FIRST ||
              (orion_facts_flags(atomic_load_explicit(&entry->facts, memory_order_relaxed)) & ORION_FACTS_AWAITS_PROGRAM) != 0;
    uint64_t expected = atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed);
    if (__builtin_expect(samples == 0, 0) && expected != 0 && expected < ESTIMATE_LEAST_100NS) expected = ESTIMATE_LEAST_100NS;
    return expected * 100;
}

static void note_change(struct orion_durations *durations, const struct orion_duration *entry, uint64_t expected)
{
    uint64_t reported = atomic_load_explicit(&entry->reported_100ns, memory_order_relaxed);
    uint64_t apart = expected > reported ? expected - reported : reported - expected;
    if (apart * 8 > reported) atomic_fetch_add_explicit(&durations->changes, 1, memory_order_relaxed);
}

static bool varies(const struct orion_duration *entry)
{
    return (orion_facts_flags(atomic_load_explicit(&entry->facts, memory_order_relaxed)) & ORION_FACTS_VARIES) != 0;
}

/* The expected duration falls fast and rises slowly, because samples are more often too long than too short: another
 * context's time slice, a GPU that had to wake up, or a launch gap can lengthen a sample, and so can a thread that loses its
 * CPU before the launch. So a surprise counts for little, also among the first samples. Only after a run of surprises does
 * the expected duration rise at once: the identity then probably stands for other code. */
static uint64_t blended(struct orion_duration *entry, uint64_t expected, uint64_t measured, enum orion_sample sample)
{
    uint32_t samples = atomic_load_explicit(&entry->samples, memory_order_relaxed);
    bool is_surprise = measured > DISAGREES * expected && sample == ORION_SAMPLE_CLEAN;
    uint32_t surprises = is_surprise ? atomic_load_explicit(&entry->surprises, memory_order_relaxed) + 1 : 0;
    bool again = surprises >= SURPRISES;
    atomic_store_explicit(&entry->surprises, again ? 0 : surprises, memory_order_relaxed);
    if (again) return measured;
    if (measured < expected) return expected - (expected - measured + 1) / (varies(entry) ? VARIES_DOWN : 2);
    if (sample == ORION_SAMPLE_TIME_SLICED)
        return expected + (measured - expected) / TIME_SLICED_UP; /* stays near the least sample */
    return expected + (measured - expected) / (samples < 16 && measured <= DISAGREES * expected ? 4 : 16);
}

void orion_duration_learn(struct orion_durations *durations, uint64_t identity, uint64_t measured_ns, enum orion_sample sample)
{
    struct orion_duration *entry = orion_duration_find(durations, identity);
    if (entry == NULL) entry = orion_duration_claim(durations, identity);
    uint64_t measured = measured_ns / 100 + 1;
    if (measured > UINT32_MAX) measured = UINT32_MAX;
    uint64_t expected = atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed);
    uint32_t samples = atomic_load_explicit(&entry->samples, memory_order_relaxed);
    /* The first sample replaces an estimate. If time-sliced samples were blended with an estimate that is too low by
     * half, the expected duration would stay too low. */
    expected = samples == 0 && !varies(entry) ? measured : blended(entry, expected, measured, sample);
    if (samples == 0) orion_facts_clear_flags(entry, ORION_FACTS_ESTIMATE);
    atomic_store_explicit(&entry->expected_100ns, (uint32_t)expected, memory_order_relaxed);
    if (samples < UINT32_MAX) atomic_store_explicit(&entry->samples, samples + 1, memory_order_relaxed);
    note_change(durations, entry, expected);
}

void orion_duration_estimate(struct orion_durations *durations, uint64_t identity, uint64_t estimated_ns)
{
    struct orion_duration *entry = orion_duration_claim_for_estimate(durations, identity);
    uint64_t estimate = estimated_ns / 100 + 1;
    uint32_t unknown = 0;
    if (entry == NULL || atomic_load_explicit(&entry->samples, memory_order_relaxed) != 0) return;
    if (atomic_compare_exchange_strong(&entry->expected_100ns, &unknown, estimate > UINT32_MAX ? UINT32_MAX : (uint32_t)estimate))
        orion_facts_set_flags(entry, ORION_FACTS_ESTIMATE);
}

void orion_duration_bound(struct orion_durations *durations, uint64_t identity, uint64_t most_ns)
{
    struct orion_duration *entry = orion_duration_find(durations, identity);
    uint64_t most = most_ns / 100 + 1;
    uint64_t expected = entry != NULL ? atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed) : 0;
    if (expected == 0) orion_duration_estimate(durations, identity, most_ns);
    if (expected <= most) return;
    atomic_store_explicit(&entry->expected_100ns, (uint32_t)most, memory_order_relaxed);
    note_change(durations, entry, most);
}

void orion_duration_learn_between(struct orion_durations *durations, uint64_t identity, uint64_t least_ns, uint64_t most_ns)
{
    struct orion_duration *entry = orion_duration_find(durations, identity);
    uint64_t expected = entry != NULL ? atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed) : 0;
    uint64_t most = most_ns / 100 + 1 < UINT32_MAX ? most_ns / 100 + 1 : UINT32_MAX,
             least = least_ns / 100 < most ? least_ns / 100 : most;
    bool known = expected != 0, measured = known && atomic_load_explicit(&entry->samples, memory_order_relaxed) != 0;
    if (known && varies(entry)) {
        if (least > expected) expected = least; /* not the most, which has hp's time in it */
        else if (most < expected) expected -= (expected - most) / VARIES_DOWN;
        else return;
        atomic_store_explicit(&entry->expected_100ns, (uint32_t)expected, memory_order_relaxed);
        note_change(durations, entry, expected);
    } else if (known && least > (measured ? expected + expected / 2 : expected)) { /* clean samples differ, too */
        orion_facts_set_flags(entry, ORION_FACTS_VARIES);                          /* if it happens again */
    } else if (!measured) {
        orion_duration_bound(durations, identity, most_ns);
    }
}

/* The entry stays in the table, without samples. If it were removed, searches would end here and miss entries behind
 * it. */
void orion_duration_forget(struct orion_durations *durations, uint64_t identity)
{
    struct orion_duration *entry = orion_duration_find(durations, identity);
    if (entry == NULL) return;
    atomic_store_explicit(&entry->samples, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->expected_100ns, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->facts, 0, memory_order_relaxed);
}
