/* What the hook learns of identities converges, is dropped on request, survives hostile numbers of identities and
 * threads, and decides when to sample. Measurements replace estimates. Kernels on fewer SMs reveal their class. */
#include "check.h"

#include <pthread.h>

#include "learning/durations.h"
#include "learning/identity.h"

static struct orion_durations durations;
static const struct orion_durations empty;

static uint64_t kernel(uint64_t i) { return orion_identity_shape(orion_mix(i), 0, 1, 1, 1, 32, 1, 1, 0); }

static uint64_t expected_of(uint64_t identity)
{
    bool sample;
    return orion_duration_expect(&durations, identity, &sample);
}

static void converges(void)
{
    bool sample;
    uint64_t identity = kernel(0);
    CHECK(orion_duration_expect(&durations, identity, &sample) == 0 && sample);
    for (int i = 0; i < 50; i++) /* some samples include slices of other contexts */
        orion_duration_learn(&durations, identity, i % 5 == 0 ? 2000000 : 100000, ORION_SAMPLE_CLEAN);
    uint64_t expected = orion_duration_expect(&durations, identity, &sample);
    CHECK(expected >= 90000 && expected <= 300000);
    unsigned sampled = 0;
    for (int i = 0; i < 1280; i++) orion_duration_expect(&durations, identity, &sample), sampled += sample;
    CHECK(sampled >= 10 && sampled <= 18); /* samples at powers of two, then one launch in 128 */
    for (int i = 0; i < 3; i++)            /* other code with the same name */
        orion_duration_learn(&durations, identity, 2000000, ORION_SAMPLE_CLEAN);
    CHECK(expected_of(identity) > 1900000);
    orion_duration_forget(&durations, identity);
    CHECK(orion_duration_expect(&durations, identity, &sample) == 0 && sample);
}

/* The thread lost its CPU for 12 ms before one of the first launches, so its sample is that much longer. */
static void one_long_sample_changes_little(void)
{
    uint64_t identity = kernel(9 << 20);
    for (unsigned i = 0; i < 4; i++) orion_duration_learn(&durations, identity, 200000, ORION_SAMPLE_CLEAN);
    orion_duration_learn(&durations, identity, 12200000, ORION_SAMPLE_CLEAN);
    CHECK(expected_of(identity) < 1000000);
    orion_duration_learn(&durations, identity, 300000, ORION_SAMPLE_CLEAN);
    uint64_t before = expected_of(identity);
    orion_duration_learn(&durations, identity, 2 * before, ORION_SAMPLE_CLEAN);
    CHECK(expected_of(identity) >= before + before / 5); /* no surprise */
}

/* A kernel takes most of a slice and runs beside three other contexts. Four of five samples include slices of these
 * contexts. */
static void time_sliced_the_shortest_samples_count(void)
{
    uint64_t identity = kernel(3 << 20);
    for (unsigned i = 0; i < 500; i++)
        orion_duration_learn(&durations, identity, i % 5 == 1 ? 1600000 : 1600000 + (1 + i % 3) * 2000000,
                             ORION_SAMPLE_TIME_SLICED);
    CHECK(expected_of(identity) >= 1600000 && expected_of(identity) < 1760000);
}

static void is_bounded(void)
{
    for (uint64_t i = 1; i < 10 * ORION_DURATIONS; i++) orion_duration_learn(&durations, kernel(i), 1000 * i, ORION_SAMPLE_CLEAN);
    CHECK(atomic_load(&durations.known) <= ORION_DURATIONS);
    CHECK(expected_of(kernel(10 * ORION_DURATIONS - 1)) > 0);
}

/* The table keeps entries in use, however many other kernels were launched once. */
static void the_least_recently_used_makes_room(void)
{
    uint64_t old[64], kept = 0;
    for (uint64_t i = 0; i < 64; i++) {
        old[i] = kernel((1 << 20) + i);
        orion_duration_learn(&durations, old[i], 5000, ORION_SAMPLE_CLEAN);
        for (int j = 0; j < 10000; j++) expected_of(old[i]);
    }
    for (uint64_t i = 0; i < 4 * ORION_DURATIONS; i++) {
        orion_duration_learn(&durations, kernel((2 << 20) + i), 7000, ORION_SAMPLE_CLEAN);
        if (i % 16 == 0) /* half of the old kernels are still launched */
            for (int j = 0; j < 32; j++) expected_of(old[j]);
    }
    for (int i = 0; i < 32; i++) kept += expected_of(old[i]) != 0;
    CHECK(kept >= 31);
    for (int i = 32; i < 64; i++) kept += expected_of(old[i]) != 0;
    CHECK(kept <= 40);
}

static void estimate_gives_way(void)
{
    bool sample;
    uint64_t identity = kernel(3 << 20);
    durations = empty;
    struct orion_duration *entry = orion_duration_claim_for_estimate(&durations, identity);
    CHECK(entry != NULL);
    atomic_store(&entry->expected_100ns, 10); /* one microsecond */
    orion_facts_set_flags(entry, ORION_FACTS_ESTIMATE);
    CHECK(orion_duration_expect(&durations, identity, &sample) == 20000 && sample); /* at least, until a measurement */
    orion_duration_learn(&durations, identity, 900000, ORION_SAMPLE_CLEAN);
    CHECK(expected_of(identity) == 900100);
    CHECK(!(orion_facts_flags(atomic_load(&entry->facts)) & ORION_FACTS_ESTIMATE));
    /* Estimates do not evict measurements. */
    for (uint64_t i = 0; i < 8 * ORION_DURATIONS; i++)
        orion_duration_learn(&durations, kernel((4 << 20) + i), 1000, ORION_SAMPLE_CLEAN);
    for (uint64_t i = 0; i < 2000; i++) CHECK(orion_duration_claim_for_estimate(&durations, kernel((5 << 20) + i)) == NULL);
}

static void a_bound_lowers_and_never_raises(void)
{
    uint64_t identity = kernel(8 << 20);
    durations = empty;
    orion_duration_bound(&durations, identity, 300000); /* unknown: an estimate */
    CHECK(expected_of(identity) == 300100);
    orion_duration_learn(&durations, identity, 900000, ORION_SAMPLE_CLEAN);
    orion_duration_bound(&durations, identity, 2000000);
    CHECK(expected_of(identity) == 900100);
    orion_duration_bound(&durations, identity, 300000);
    CHECK(expected_of(identity) == 300100);
}

/* An estimate of another program's kernel with the same name and grid is less than half of the true time. Time-sliced
 * measurements replace this estimate. */
static void estimate_does_not_stay_where_work_goes_time_sliced(void)
{
    uint64_t identity = kernel(7 << 20);
    durations = empty;
    struct orion_duration *entry = orion_duration_claim_for_estimate(&durations, identity);
    CHECK(entry != NULL);
    atomic_store(&entry->expected_100ns, 850);
    for (unsigned i = 0; i < 16; i++)
        orion_duration_learn(&durations, identity, i % 3 == 1 ? 195000 : 195000 + (1 + i % 3) * 2000000, ORION_SAMPLE_TIME_SLICED);
    CHECK(expected_of(identity) >= 195000 && expected_of(identity) < 400000);
}

/* Each thread has its own identities and some shared ones. A value that a thread reads was
 * written for that identity, or is unknown. */
static void *hammer(void *argument)
{
    uint64_t own = (uint64_t)(uintptr_t)argument << 32;
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t identity = kernel(i % 3 ? own + i % 5000 : i % 64), expected = expected_of(identity);
        struct orion_kernel_facts facts;
        CHECK(expected <= 60000);
        orion_kernel_facts(&durations, identity, &facts);
        if (i % 7 == 0) orion_duration_learn(&durations, identity, 50000, ORION_SAMPLE_CLEAN);
        if (i % 1001 == 0) orion_duration_forget(&durations, identity);
    }
    return NULL;
}

static void threads_do_no_harm(void)
{
    pthread_t threads[4];
    durations = empty;
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(atomic_load(&durations.known) <= ORION_DURATIONS);
}

static void identities_say_what_they_are(void)
{
    CHECK(orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 20) == orion_identity_bytes(ORION_WORK_COPY_IN, (1 << 20) + 100));
    CHECK(orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 20) != orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 21));
    CHECK(orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 20) != orion_identity_bytes(ORION_WORK_COPY_OUT, 1 << 20));
    CHECK(orion_identity_bytes(ORION_WORK_MEMSET, 0) != ORION_IDENTITY_NONE);
    uint64_t name = orion_hash_name("gemm"), plain = orion_identity_shape(name, 0, 1, 2, 3, 4, 5, 6, 7);
    CHECK(name != orion_hash_name("gemv") && plain != orion_identity_shape(name, 0, 2, 1, 3, 4, 5, 6, 7));
    CHECK(!orion_identity_is_local(plain));
    CHECK(orion_identity_is_local(orion_identity_shape(name, ORION_IDENTITY_LOCAL, 1, 2, 3, 4, 5, 6, 7)));
    uint64_t mark = orion_mix(99) & ~ORION_IDENTITY_BITS;
    CHECK((orion_identity_shape(name, mark, 1, 2, 3, 4, 5, 6, 7) ^ mark) == plain);
}

int main(void)
{
    converges();
    one_long_sample_changes_little();
    time_sliced_the_shortest_samples_count();
    is_bounded();
    the_least_recently_used_makes_room();
    estimate_gives_way();
    a_bound_lowers_and_never_raises();
    estimate_does_not_stay_where_work_goes_time_sliced();
    threads_do_no_harm();
    identities_say_what_they_are();
    puts("durations: ok");
    return 0;
}
