/* The linger covers the short gaps of a token loop, but not the long gaps of sparse requests. */
#include "check.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "hp/linger.h"

#define US UINT64_C(1000)
#define FLOOR (50 * US)
#define CEILING (2000 * US)

static uint64_t seed = 7;
static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}
static uint64_t exponential(uint64_t mean) { return (uint64_t)(-log(1 - uniform()) * (double)mean); }

static void token_loop_is_covered(uint64_t gap, uint64_t most)
{
    struct orion_linger linger = {0};
    for (int i = 0; i < 3200; i++)
        orion_linger_learn(&linger, i % 32 == 31 ? exponential(30000 * US) : gap + exponential(gap / 10), FLOOR, CEILING);
    uint64_t chosen = orion_linger_now(&linger, FLOOR, CEILING);
    CHECK(chosen >= gap);
    CHECK(chosen <= most);
}

/* All gaps have the same length. The linger covers this length, and no seen gap justifies a longer linger. */
static void a_loop_without_pauses_is_covered_and_no_more(uint64_t gap, uint64_t most)
{
    struct orion_linger linger = {0};
    for (int i = 0; i < 2000; i++) {
        orion_linger_learn(&linger, gap, FLOOR, CEILING);
        CHECK(i < 8 || orion_linger_now(&linger, FLOOR, CEILING) <= most);
    }
    CHECK(orion_linger_now(&linger, FLOOR, CEILING) >= gap);
}

/* The floor of 1000 us lies inside the bucket from 768 to 1024 us. The gaps of this bucket do not extend the linger
 * from the floor to the bucket's edge. */
static void a_floor_within_a_bucket_stays(void)
{
    struct orion_linger linger = {0};
    uint64_t lingered = 0, floor = 1000 * US;
    for (int i = 0; i < 20000; i++) {
        orion_linger_learn(&linger, exponential(5000 * US), floor, CEILING);
        lingered += orion_linger_now(&linger, floor, CEILING);
    }
    CHECK(lingered < 20000 * (floor + floor / 20));
}

/* The count of gaps has reached its limit, but new gaps still change the linger. */
static void learning_never_ends(void)
{
    struct orion_linger linger = {.known = UINT32_MAX - 4};
    for (int i = 0; i < 1000; i++) orion_linger_learn(&linger, i < 100 ? 20000 * US : 300 * US, FLOOR, CEILING);
    CHECK(orion_linger_now(&linger, FLOOR, CEILING) >= 300 * US);
}

static void sparse_requests_waste_nothing(void)
{
    struct orion_linger linger = {0};
    for (int i = 0; i < 1000; i++) orion_linger_learn(&linger, exponential(8000 * US), FLOOR, CEILING);
    CHECK(orion_linger_now(&linger, FLOOR, CEILING) <= 100 * US);
}

/* Requests arrive at random, so often that waiting through every gap costs about as much as waiting through none. */
static void frequent_requests_waste_little(void)
{
    struct orion_linger linger = {0};
    unsigned lingering = 0;
    for (int i = 0; i < 20000; i++) {
        orion_linger_learn(&linger, exponential(2200 * US), FLOOR, CEILING);
        lingering += orion_linger_now(&linger, FLOOR, CEILING) > 2 * FLOOR;
    }
    CHECK(lingering < 20000 / 20);
}

/* The gaps between queued requests are short (about 22 us). The other gaps are random: waiting through them does
 * not pay. */
static void gaps_behind_a_queue_are_not_waited_through(void)
{
    struct orion_linger linger = {0};
    unsigned lingering = 0;
    uint64_t lingered = 0;
    for (int i = 0; i < 20000; i++) {
        orion_linger_learn(&linger, uniform() < 0.5 ? 12 * US + exponential(10 * US) : exponential(2200 * US), FLOOR, CEILING);
        uint64_t now = orion_linger_now(&linger, FLOOR, CEILING);
        lingering += now > 4 * FLOOR;
        lingered += now;
    }
    CHECK(lingering < 20000 / 20);
    CHECK(lingered < 20000 * 2 * FLOOR);
}

/* The linger also covers slow followers: queued requests that follow with a longer gap than most. They are few, so they
 * hardly change the total cost of a linger. Without the longer linger, each would find the GPU in use by be. Requests
 * are rare here, so the longer linger costs be little. */
static void slow_followers_are_covered(uint64_t least, uint64_t spread, uint64_t random)
{
    struct orion_linger linger = {0};
    unsigned followers = 0, missed = 0, lingering = 0;
    for (int i = 0; i < 20000; i++) {
        bool follows = uniform() < 0.4;
        uint64_t gap = follows ? least + exponential(spread) : exponential(random), now = orion_linger_now(&linger, FLOOR, CEILING);
        followers += follows;
        missed += i >= 100 && follows && gap > now;
        lingering += now > 4 * (least + spread);
        orion_linger_learn(&linger, gap, FLOOR, CEILING);
    }
    CHECK(missed < followers / 50);
    CHECK(lingering < 20000 / 20);
}

static void a_new_habit_is_learnt(void)
{
    struct orion_linger linger = {0};
    for (int i = 0; i < 1000; i++) orion_linger_learn(&linger, 20000 * US, FLOOR, CEILING);
    CHECK(orion_linger_now(&linger, FLOOR, CEILING) == FLOOR);
    for (int i = 0; i < 600; i++) orion_linger_learn(&linger, 300 * US, FLOOR, CEILING);
    CHECK(orion_linger_now(&linger, FLOOR, CEILING) >= 300 * US);
}

static void any_gap_keeps_the_bounds(void)
{
    struct orion_linger linger = {0};
    for (int i = 0; i < 100000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        orion_linger_learn(&linger, seed >> (seed & 63), FLOOR, CEILING);
        uint64_t chosen = orion_linger_now(&linger, FLOOR, CEILING);
        CHECK(chosen >= FLOOR && chosen <= CEILING);
    }
}

int main(void)
{
    token_loop_is_covered(30 * US, 200 * US);
    token_loop_is_covered(100 * US, 400 * US);
    token_loop_is_covered(400 * US, 1000 * US);
    token_loop_is_covered(1200 * US, 2000 * US);
    a_loop_without_pauses_is_covered_and_no_more(30 * US, 200 * US);
    a_loop_without_pauses_is_covered_and_no_more(100 * US, 400 * US);
    a_floor_within_a_bucket_stays();
    learning_never_ends();
    sparse_requests_waste_nothing();
    frequent_requests_waste_little();
    gaps_behind_a_queue_are_not_waited_through();
    slow_followers_are_covered(40 * US, 10 * US, 12500 * US);
    slow_followers_are_covered(30 * US, 15 * US, 12500 * US);
    slow_followers_are_covered(100 * US, 30 * US, 20000 * US);
    a_new_habit_is_learnt();
    any_gap_keeps_the_bounds();
    puts("linger: ok");
    return 0;
}
