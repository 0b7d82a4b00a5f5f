/* Learnt durations converge, forget on request, survive hostile amounts of identities and say when to sample. */
#include "check.h"

#include "durations.h"
#include "identity.h"

static struct orion_durations durations;

static void converges(void)
{
    bool sample;
    uint64_t identity = orion_identity_graph(&durations);
    CHECK(orion_duration_expect(&durations, identity, &sample) == 0 && sample);
    for (int i = 0; i < 50; i++) orion_duration_learn(&durations, identity, i % 5 == 0 ? 2000000 : 100000); /* some slices lost */
    uint64_t expected = orion_duration_expect(&durations, identity, &sample);
    CHECK(expected >= 90000 && expected <= 300000);
    unsigned sampled = 0;
    for (int i = 0; i < 1280; i++) orion_duration_expect(&durations, identity, &sample), sampled += sample;
    CHECK(sampled >= 10 && sampled <= 18); /* at powers of two, then one in 128 */
    orion_duration_forget(&durations, identity);
    CHECK(orion_duration_expect(&durations, identity, &sample) == 0 && sample);
}

static void is_bounded(void)
{
    bool sample;
    for (uint64_t i = 1; i < 10 * ORION_DURATIONS; i++)
        orion_duration_learn(&durations, orion_identity_kernel((void *)(uintptr_t)(i * 64), 1, 1, 1, 32, 1, 1, 0), 1000 * i);
    CHECK(atomic_load(&durations.known) <= ORION_DURATIONS);
    uint64_t last = orion_identity_kernel((void *)(uintptr_t)((10 * ORION_DURATIONS - 1) * 64), 1, 1, 1, 32, 1, 1, 0);
    CHECK(orion_duration_expect(&durations, last, &sample) > 0);
}

static void sizes_share_an_identity(void)
{
    CHECK(orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 20) == orion_identity_bytes(ORION_WORK_COPY_IN, (1 << 20) + 100));
    CHECK(orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 20) != orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 21));
    CHECK(orion_identity_bytes(ORION_WORK_COPY_IN, 1 << 20) != orion_identity_bytes(ORION_WORK_COPY_OUT, 1 << 20));
    CHECK(orion_identity_bytes(ORION_WORK_MEMSET, 0) != ORION_IDENTITY_NONE);
}

int main(void)
{
    converges();
    is_bounded();
    sizes_share_an_identity();
    puts("durations: ok");
    return 0;
}
