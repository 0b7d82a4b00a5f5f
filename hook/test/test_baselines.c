/* Checks the rules of the baseline policies alone, on random launches. */
#include "check.h"

#include <stdlib.h>

#include "baselines/baselines.h"

#define US UINT64_C(1000)
#define ROUNDS 200000

static unsigned seed = 3;
static uint64_t below(unsigned most) { return (uint64_t)rand_r(&seed) % most; }

static struct orion_candidate any_candidate(void)
{
    return (struct orion_candidate){
        .facts = {.expected_ns = below(5) * 100 * US,
                  .sms = (uint32_t)below(5) * 30,
                  .kernel_class = (enum orion_kernel_class)below(3)},
        .is_kernel = below(4) != 0,
    };
}
static uint64_t any_current(void)
{
    return orion_pack_current((uint32_t)below(5) * 30, (uint32_t)below(3), (uint32_t)below(1000), below(5) * 100 * US);
}

static void what_is_packed_is_unpacked(void)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t sms = (uint32_t)below(1 << 16), kernel_class = (uint32_t)below(3), launch = (uint32_t)below(1 << 20);
        uint64_t hundreds = (uint64_t)rand_r(&seed) * 2;
        uint64_t current = orion_pack_current(sms, kernel_class, launch, hundreds * 100);
        CHECK(orion_current_sms(current) == sms && orion_current_class(current) == kernel_class);
        CHECK(orion_current_launch(current) == (launch & 0xff) && orion_current_ns(current) == hundreds * 100);
    }
    CHECK(orion_current_ns(orion_pack_current(1, 1, 1, UINT64_MAX)) == UINT64_C(100) * UINT32_MAX);
}

static void reef_pairs_with_a_launch_that_covers_it(void)
{
    unsigned paired = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct orion_candidate be = any_candidate(), shorter = be, larger = be;
        uint64_t hp = any_current();
        bool pairs = orion_reef_pairs(&be, hp);
        paired += pairs;
        if (pairs) CHECK(be.facts.expected_ns <= orion_current_ns(hp) && be.facts.sms >= orion_current_sms(hp));
        if (be.facts.expected_ns == 0 || orion_current_ns(hp) == 0 || orion_current_sms(hp) == 0) CHECK(!pairs);
        /* The kernels' classes and the number of hp's launch do not matter. A shorter or larger be kernel also fits. */
        uint64_t other = orion_pack_current(orion_current_sms(hp), (uint32_t)below(3), (uint32_t)below(256), orion_current_ns(hp));
        be.facts.kernel_class = (enum orion_kernel_class)below(3);
        CHECK(orion_reef_pairs(&be, other) == pairs);
        shorter.facts.expected_ns = shorter.facts.expected_ns / 2 + (shorter.facts.expected_ns == 1);
        larger.facts.sms++;
        if (pairs) CHECK(orion_reef_pairs(&shorter, hp) && orion_reef_pairs(&larger, hp));
    }
    CHECK(paired > ROUNDS / 10 && paired < ROUNDS / 2);
}

static void orion_2024_pairs_what_is_small_and_of_another_class(void)
{
    unsigned paired = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct orion_policy policy = {.kind = ORION_POLICY_ORION_2024, .orion_2024_sms = (uint32_t)below(4) * 30}, wider = policy;
        struct orion_candidate be = any_candidate();
        uint64_t hp = any_current();
        uint32_t hp_class = orion_current_class(hp), most = policy.orion_2024_sms;
        bool pairs = orion_2024_pairs(&policy, &be, hp);
        paired += pairs;
        if (!be.is_kernel) CHECK(pairs);
        if (be.is_kernel && pairs) {
            CHECK(most == 0 || (be.facts.sms != 0 && be.facts.sms <= most));
            CHECK(hp_class == ORION_CLASS_UNKNOWN || be.facts.kernel_class != hp_class);
        }
        wider.orion_2024_sms = most == 0 ? 0 : most + 30;
        if (pairs) CHECK(orion_2024_pairs(&wider, &be, hp));
        CHECK(!pairs || orion_2024_pairs(&policy, &be, 0)); /* hp's class is unknown, so no class is refused */
    }
    CHECK(paired > ROUNDS / 10 && paired < ROUNDS);
}

/* The iterations of hp and be end in any order. For each iteration that hp ends, be begins at most one. */
static void ticktock_alternates(void)
{
    uint64_t own = 0, hp = 0, turn_own = 0, turn_hp = 0, begun = 1, refused = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t chance = below(3);
        if (chance == 0) hp++;
        if (chance == 1 && own == turn_own) own++; /* be's iteration ends */
        if (chance != 2) continue;
        bool allowed = orion_ticktock_allows(turn_own, turn_hp, own, hp);
        CHECK(allowed || hp == turn_hp);
        if (own == turn_own) CHECK(allowed); /* be may continue an iteration that it has begun */
        refused += !allowed;
        if (allowed && own != turn_own) begun++, turn_own = own, turn_hp = hp;
        CHECK(begun <= hp + 1);
    }
    CHECK(begun > ROUNDS / 20 && refused > 100);
}

/* A burst of launches of known length exceeds its bound by less than the length of its last launch. A launch of unknown
 * length ends its burst. */
static void bursts_are_bounded(void)
{
    for (unsigned round = 0; round < 200; round++) {
        struct orion_policy orion = {.kind = ORION_POLICY_ORION_2024, .orion_2024_duration_ns = below(500) * US};
        struct orion_policy reef = {.kind = ORION_POLICY_REEF, .reef_depth = (uint32_t)below(20)};
        uint64_t burst_ns = 0, last = 0;
        uint32_t launches = 0;
        for (unsigned i = 0; i < 1000; i++) {
            struct orion_candidate be = any_candidate();
            if (orion_burst_is_over(&orion, burst_ns, launches)) {
                CHECK(burst_ns > orion.orion_2024_duration_ns && burst_ns - last <= orion.orion_2024_duration_ns);
                burst_ns = 0;
            }
            burst_ns += last = orion_burst_cost(&orion, &be);
            CHECK(be.is_kernel || last == 0);
            if (be.is_kernel && be.facts.expected_ns == 0) CHECK(orion_burst_is_over(&orion, burst_ns, launches));
            if (orion_burst_is_over(&reef, burst_ns, launches)) {
                CHECK(launches == (reef.reef_depth > 0 ? reef.reef_depth : 1));
                launches = 0;
            }
            launches++;
        }
    }
    struct orion_policy ticktock = {.kind = ORION_POLICY_TICKTOCK};
    CHECK(!orion_burst_is_over(&ticktock, UINT64_MAX, UINT32_MAX));
}

int main(void)
{
    what_is_packed_is_unpacked();
    reef_pairs_with_a_launch_that_covers_it();
    orion_2024_pairs_what_is_small_and_of_another_class();
    ticktock_alternates();
    bursts_are_bounded();
    return 0;
}
