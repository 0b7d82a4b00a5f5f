/* A slot waits outside its turns, as its grant says when they are, and no longer than its plan holds. */
#include "check.h"

#include <pthread.h>

#include "be/gate.h"
#include "be/state.h"
#include "be/turns.h"
#include "fake_driver.h"
#include "process/gpu.h"
#include "process/plan.h"
#include "system/system.h"

#define MS ORION_MILLISECOND
#define MOST (2500 * ORION_MICROSECOND) /* of patience */
#define CHECKS 200u

static struct orion_busy_page pages[ORION_GPU_CLIENTS_MAX];
static struct orion_policy_page policy;
static struct orion_grant_page page;
static struct orion_record_page record;
static struct orion_gpu gpu =
    {.policy = &policy, .grant = &page, .neighbours = pages, .page_step = ORION_PAGE_SIZE, .record = &record, .client = 1};
static struct orion_grant *const grant = &page.copy[0];

static void plan(uint64_t turn_begin, uint64_t turn_end, uint64_t begin, uint64_t end, uint64_t cycle, uint64_t until)
{
    *grant = (struct orion_grant){.turn_begin_ns = turn_begin,
                                  .turn_end_ns = turn_end,
                                  .next_begin_ns = begin,
                                  .next_end_ns = end,
                                  .cycle_ns = cycle,
                                  .plan_until_ns = until};
}

/* In cycles of 10 ms the turn lasts from 2 to 6 ms. A check that crosses a border does not count, nor one in the last
 * microsecond before the end: what is left of a piece that fades may close the valve there. */
static void turns_repeat(uint64_t closes_at)
{
    unsigned inside = 0, outside = 0;
    uint64_t begin = orion_now() / (10 * MS) * (10 * MS);
    plan(0, 0, begin + 2 * MS, begin + 6 * MS, 10 * MS, begin + 100 * ORION_SECOND);
    while (inside < CHECKS || outside < CHECKS) {
        uint64_t began = orion_now();
        bool open = !orion_gate_closed(&gpu);
        uint64_t ended = orion_now(), before = (began - begin) % (10 * MS), after = (ended - begin) % (10 * MS);
        bool is_inside = before >= 2 * MS && before < closes_at;
        bool at_end = after >= closes_at - ORION_MICROSECOND && before < closes_at;
        if (ended - began > MS || at_end || is_inside != (after >= 2 * MS && after < closes_at)) continue;
        CHECK(open == is_inside);
        is_inside ? inside++ : outside++;
    }
}

static void the_turn_under_way_counts(void)
{
    uint64_t now = orion_now(), later = now + 100 * ORION_SECOND;
    plan(now - MS, later, later, later + MS, 10 * MS, later + ORION_SECOND);
    CHECK(!orion_gate_closed(&gpu));
    plan(later, later + MS, later + MS, later + 2 * MS, 10 * MS, later + ORION_SECOND);
    CHECK(orion_gate_closed(&gpu)); /* it has not begun */
    plan(now - MS, now, 0, 0, 10 * MS, later);
    CHECK(orion_gate_closed(&gpu)); /* there is no other one */
    plan(now - MS, now, 0, 0, 10 * MS, now);
    CHECK(!orion_gate_closed(&gpu)); /* the plan is over */
    plan(now - MS, now, 0, 0, 0, 0);
    CHECK(!orion_gate_closed(&gpu)); /* there is no plan */
    plan(UINT64_MAX, 0, UINT64_MAX, 1, UINT64_MAX, UINT64_MAX);
    CHECK(orion_gate_closed(&gpu)); /* no arithmetic overflows, and no value divides by zero */
    plan(0, 0, 0, UINT64_MAX, 1, UINT64_MAX);
    CHECK(!orion_gate_closed(&gpu));
}

/* In the mean they stop half a piece before a turn's end, and in one turn always at the same time. */
static void short_pieces_stop_at_other_times_in_each_turn(void)
{
    const uint64_t piece = 400 * ORION_MICROSECOND, step = 10 * ORION_MICROSECOND;
    uint64_t sum = 0, least = UINT64_MAX, most = 0;
    atomic_store(&record.piece_ns, piece);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t begin = (i + 1) * 20 * MS + 12345 * i, end = begin + 10 * MS, stops = end;
        plan(begin, end, begin + 20 * MS, end + 20 * MS, 20 * MS, UINT64_MAX);
        while (orion_plan_opens_at(&gpu, stops - step) > stops - step) stops -= step;
        for (uint64_t now = begin; now < stops; now += MS) CHECK(orion_plan_opens_at(&gpu, now) == now);
        sum += end - stops;
        if (end - stops < least) least = end - stops;
        if (end - stops > most) most = end - stops;
    }
    CHECK(least >= piece / 4 - step && least < piece / 3 && most > piece * 2 / 3 && most <= piece * 3 / 4 + step);
    CHECK(sum / 1000 > piece * 45 / 100 && sum / 1000 < piece * 55 / 100);
    atomic_store(&record.piece_ns, 0);
}

/* A turn that the next turn follows at once does not end early. */
static void a_lone_slot_never_waits(void)
{
    uint64_t begin = orion_now();
    plan(0, 0, begin, begin + MS, MS, begin + 100 * ORION_SECOND);
    while (orion_now() < begin + 20 * MS) CHECK(!orion_gate_closed(&gpu));
}

static void sleeps_until_the_turn_begins(void)
{
    uint64_t now = orion_now(), opens = now + 500 * ORION_SECOND;
    plan(0, 0, opens, opens + ORION_SECOND, 10 * ORION_SECOND, now + 1000 * ORION_SECOND);
    orion_turns_sleep(&gpu, MS);
    CHECK(orion_now() < opens); /* the caller's bound holds */
    opens = orion_now() + 30 * MS;
    plan(0, 0, opens, opens + 100 * ORION_SECOND, 1000 * ORION_SECOND, now + 1000 * ORION_SECOND);
    while (orion_gate_closed(&gpu)) orion_turns_sleep(&gpu, 500 * ORION_SECOND);
    CHECK(orion_now() >= opens && orion_now() < opens + 100 * ORION_SECOND);
}

static void *give_the_turn(void *unused)
{
    (void)unused;
    orion_sleep_precisely(20 * MS);
    uint64_t now = orion_now();
    page.copy[1] = *grant;
    page.copy[1].turn_begin_ns = now;
    page.copy[1].turn_end_ns = now + 100 * ORION_SECOND;
    atomic_store(&page.current, 1);
    atomic_fetch_add(&page.plan, 1);
    orion_futex_wake_all(&page.plan, true);
    return NULL;
}

static void a_new_plan_wakes(void)
{
    pthread_t agent;
    uint64_t now = orion_now();
    plan(0, 0, 0, 0, 10 * MS, now + 1000 * ORION_SECOND);
    CHECK(pthread_create(&agent, NULL, give_the_turn, NULL) == 0);
    while (orion_gate_closed(&gpu)) orion_turns_sleep(&gpu, 500 * ORION_SECOND);
    CHECK(orion_now() < now + 100 * ORION_SECOND);
    pthread_join(agent, NULL);
    atomic_store(&page.current, 0);
}

/* Its memory would leave with the turn, and come back. */
static void memory_that_moves_makes_a_client_patient(void)
{
    struct orion_be *be = orion_be(&gpu);
    uint64_t began = orion_now();
    atomic_store(&gpu.pages.took_ns, 200 * MS);
    plan(0, 0, began - MS, began + 50 * ORION_SECOND, 100 * ORION_SECOND, began + 200 * ORION_SECOND);
    grant->unified = ORION_UNIFIED_BEYOND;
    atomic_store(&gpu.pages.move, 1);
    orion_turns_idle(&gpu);
    CHECK(atomic_load(&be->handed_back_ns) < began); /* its launches wait for its pages */
    atomic_store(&gpu.pages.turn_ns, grant->next_begin_ns);
    orion_turns_idle(&gpu);
    CHECK(atomic_load(&be->handed_back_ns) >= began + 50 * MS);
    gpu.pages = (struct orion_gpu_pages){0};
}

/* It handed its turn back so long ago, and launches again. */
static uint64_t patience_after(uint64_t away_ns)
{
    struct orion_be *be = orion_be(&gpu);
    uint64_t now = orion_now();
    plan(0, 0, 0, 0, 10 * MS, now + 1000 * ORION_SECOND);
    atomic_store(&be->asked_ns, now - away_ns - 1);
    atomic_store(&be->handed_back_ns, now - away_ns);
    orion_turns_sleep(&gpu, 1);
    return atomic_load(&be->patience_ns);
}

/* A second is a long time even for a test that waits for a core, and no time often is a short one. */
static void a_client_that_stays_away_becomes_less_patient(void)
{
    struct orion_be *be = orion_be(&gpu);
    atomic_store(&be->patience_ns, 0);
    CHECK(patience_after(ORION_SECOND) > 400 * ORION_MICROSECOND); /* once is not enough */
    for (unsigned i = 0; i < 20; i++) patience_after(ORION_SECOND);
    CHECK(patience_after(ORION_SECOND) == 250 * ORION_MICROSECOND);
    for (unsigned i = 0; patience_after(0) < MOST; i++) CHECK(i < 10000);
    for (unsigned i = 0; i < 4; i++) patience_after(20 * MS); /* a pause that no patience would have bridged */
    CHECK(patience_after(20 * MS) <= 500 * ORION_MICROSECOND);
}

/* It hands back if the pause is longer than its patience. */
static uint64_t patience_after_a_pause(uint64_t pause_ns)
{
    uint64_t patience = atomic_load(&orion_be(&gpu)->patience_ns);
    return pause_ns > patience ? patience_after(pause_ns - patience) : patience;
}

static void what_a_pause_teaches_does_not_depend_on_earlier_pauses(void)
{
    struct orion_be *be = orion_be(&gpu);
    for (uint64_t pause = 3 * MS; pause <= 20 * MS; pause += MS)
        for (uint64_t patience = 250 * ORION_MICROSECOND; patience <= MOST; patience *= 2) {
            atomic_store(&be->patience_ns, patience);
            for (unsigned i = 0; i < 10; i++) patience_after_a_pause(pause);
            CHECK(patience_after_a_pause(pause) <= 500 * ORION_MICROSECOND);
        }
}

/* Else it would never hand a turn back again, and so learn nothing. */
static void a_turn_that_ends_meanwhile_makes_less_patient(void)
{
    struct orion_be *be = orion_be(&gpu);
    for (unsigned i = 0; i == 0 || atomic_load(&be->patience_ns) == MOST; i++) {
        uint64_t now = orion_now();
        atomic_store(&be->patience_ns, MOST);
        plan(now - MS, now + 2 * MS, now + 50 * ORION_SECOND, now + 51 * ORION_SECOND, 100 * ORION_SECOND, UINT64_MAX);
        orion_turns_idle(&gpu);
        CHECK(i < 1000);
    }
}

/* Else nobody would learn that it is idle, and its next turns would pass unused. */
static void at_the_end_of_a_turn_the_next_one_is_handed_back(void)
{
    struct orion_be *be = orion_be(&gpu);
    uint64_t now = orion_now();
    atomic_store(&be->patience_ns, 0);
    atomic_store(&be->handed_back_ns, 0);
    plan(now - MS, now + 900 * ORION_MICROSECOND, now + 50 * ORION_SECOND, now + 51 * ORION_SECOND, 100 * ORION_SECOND, UINT64_MAX);
    CHECK(orion_turns_idle(&gpu) == UINT64_MAX && atomic_load(&be->handed_back_ns) > now);
    now = orion_now();
    atomic_store(&be->handed_back_ns, now + 500 * ORION_SECOND); /* what it has just handed back it does not hand back again .. */
    plan(0, 0, now + 50 * ORION_SECOND, now + 51 * ORION_SECOND, 100 * ORION_SECOND, UINT64_MAX);
    uint64_t again = orion_turns_idle(&gpu);
    CHECK(again <= 50 * ORION_SECOND && again > 0); /* .. but it looks when the turn begins, */
    plan(now - MS, now + 50 * ORION_SECOND, now + 100 * ORION_SECOND, now + 150 * ORION_SECOND, 100 * ORION_SECOND, UINT64_MAX);
    again = orion_turns_idle(&gpu);
    CHECK(again <= 100 * ORION_SECOND && again > 0); /* and when the one after it begins */
    plan(0, 0, 0, 0, 10 * MS, UINT64_MAX);
    CHECK(orion_turns_idle(&gpu) == UINT64_MAX);
    atomic_store(&be->handed_back_ns, 0);
}

static void to_ask_again_says_nothing_new(void)
{
    struct orion_be *be = orion_be(&gpu);
    uint64_t patience = patience_after(ORION_SECOND), now = orion_now();
    plan(0, 0, 0, 0, 10 * MS, now + 1000 * ORION_SECOND);
    atomic_store(&be->handed_back_ns, now - ORION_SECOND);
    for (unsigned i = 0; i < 10; i++) {
        atomic_store(&be->asked_ns, now - ORION_SECOND + 1);
        orion_turns_sleep(&gpu, 1);
        CHECK(atomic_load(&be->asked_ns) >= now && atomic_load(&be->patience_ns) == patience);
    }
}

int main(void)
{
    the_turn_under_way_counts();
    short_pieces_stop_at_other_times_in_each_turn();
    turns_repeat(6 * MS);
    orion_turns_note_piece(&gpu, 2 * MS);
    turns_repeat(5 * MS); /* closes half a piece early, so that pieces end when the turn does, on average */
    orion_turns_note_piece(&gpu, 100 * MS);
    turns_repeat(3 * MS); /* but is open for a quarter of the turn */
    a_lone_slot_never_waits();
    for (unsigned i = 0; i < 100; i++) orion_turns_note_piece(&gpu, 0);
    turns_repeat(6 * MS); /* long pieces are forgotten */
    sleeps_until_the_turn_begins();
    a_new_plan_wakes();
    memory_that_moves_makes_a_client_patient();
    a_client_that_stays_away_becomes_less_patient();
    what_a_pause_teaches_does_not_depend_on_earlier_pauses();
    a_turn_that_ends_meanwhile_makes_less_patient();
    at_the_end_of_a_turn_the_next_one_is_handed_back();
    to_ask_again_says_nothing_new();
    puts("turns: ok");
    return 0;
}
