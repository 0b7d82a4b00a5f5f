/* The overlap budget: hp's slowdown settles below its owner's limit, whatever hp's busy periods look like. */
#include "check.h"

#include <math.h>

#include "core/core.h"
#include "fake_driver.h"
#include "hp/budget.h"
#include "hp/state.h"
#include "process/policy.h"
#include "system/system.h"

#define MS ORION_MILLISECOND

static uint64_t seed = 11;
static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}
static double exponential(double mean) { return -log(1 - uniform()) * mean; }

static void grant(struct orion_gpu *gpu, uint32_t max_slowdown_milli)
{
    struct orion_policy_page *page = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    page->copy[0].kind = ORION_POLICY_ORION;
    page->copy[0].max_slowdown_milli = max_slowdown_milli;
    atomic_store(&page->be_clients, 1);
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
    orion_hp(gpu)->budget = (struct orion_budget){0};
    atomic_store(&gpu->record->slowdown_milli, 0);
}

struct totals { double alone_ns, spent_ns; };
static uint64_t now = 1000 * MS, work;

/* Simulates one busy period. Its work takes hp `alone_ns` without be, and `beside` times as long while be also runs. */
static void period(struct orion_gpu *gpu, double alone_ns, double beside, uint64_t launches, struct totals *totals)
{
    orion_budget_opened(gpu, now, work);
    uint64_t until = atomic_load(&gpu->busy->overlap_until_ns);
    double allowed = until > now ? (double)(until - now) : 0;
    double overlapped = allowed < alone_ns * beside ? allowed : alone_ns * beside; /* time during which be also runs */
    double spent = overlapped + (alone_ns - overlapped / beside);
    now += (uint64_t)spent;
    work += launches;
    orion_budget_paused(gpu, now, work);
    totals->alone_ns += alone_ns;
    totals->spent_ns += spent;
    now += 5 * MS;
}

/* hp's slowdown once the budget has settled: the first 1000 periods do not count. */
static double settled(struct orion_gpu *gpu, uint32_t max_slowdown_milli, double beside, double mean_requests)
{
    struct totals totals = {0, 0};
    grant(gpu, max_slowdown_milli);
    for (int i = 0; i < 4000; i++) {
        if (i == 1000) totals = (struct totals){0, 0};
        uint64_t requests = 1 + (uint64_t)exponential(mean_requests);
        double noise = 0.98 + 0.04 * uniform();
        period(gpu, (double)requests * 31e6 * noise, beside, requests * 32, &totals);
    }
    return totals.spent_ns / totals.alone_ns;
}

static void slowdown_settles_under_the_budget(struct orion_gpu *gpu)
{
    for (uint32_t budget = 1050; budget <= 1300; budget += 50) {
        double slowdown = settled(gpu, budget, 1.45, 1.5);
        CHECK(slowdown < 1 + (budget - 1000) / 1000.0 * 1.10);
        CHECK(slowdown > 1 + (budget - 1000) / 1000.0 * 0.60);
    }
}

static void a_large_budget_lets_everything_overlap(struct orion_gpu *gpu)
{
    double slowdown = settled(gpu, 3000, 1.4, 1.0);
    CHECK(slowdown > 1.30); /* less than 1.4, because nothing overlaps in control periods */
}

static void no_budget_means_no_overlap(struct orion_gpu *gpu) { CHECK(settled(gpu, 1000, 1.4, 1.0) < 1.0001); }

static void an_exceeded_budget_is_met_again_within_a_few_periods(struct orion_gpu *gpu)
{
    struct totals totals = {0, 0};
    grant(gpu, 1200);
    for (int i = 0; i < 500; i++) period(gpu, 31e6, 1.1, 32, &totals); /* be costs little: everything overlaps */
    CHECK(orion_hp(gpu)->budget.overlap_ns > 25 * MS);
    for (int i = 0; i < 12; i++) period(gpu, 31e6, 3.0, 32, &totals); /* now be costs much */
    totals = (struct totals){0, 0};
    for (int i = 0; i < 200; i++) period(gpu, 31e6, 3.0, 32, &totals);
    CHECK(totals.spent_ns / totals.alone_ns < 1.25);
}

/* Until period 1500, one overlapped kernel of be delays hp by 10 ms, much more than the budget. After that, overlap
 * costs nothing. */
static void overlap_is_rare_if_it_always_exceeds_the_budget(struct orion_gpu *gpu)
{
    double alone = 0, spent = 0;
    grant(gpu, 1050);
    for (int i = 0; i < 2000; i++) {
        orion_budget_opened(gpu, now, work);
        uint64_t costs = atomic_load(&gpu->busy->overlap_until_ns) > now && i < 1500 ? 10 * MS : 0;
        now += 31 * MS + costs;
        work += 32;
        orion_budget_paused(gpu, now, work);
        if (i >= 100 && i < 1500) alone += 31, spent += 31 + (double)costs / MS;
        now += 5 * MS;
    }
    CHECK(spent / alone < 1.02);
    CHECK(spent / alone > 1.00);                       /* the hook still tries overlap at times */
    CHECK(orion_hp(gpu)->budget.overlap_ns > 25 * MS); /* the hook has noticed that overlap costs nothing now */
}

static void the_cost_of_sharing_is_subtracted_from_the_budget(struct orion_gpu *gpu)
{
    struct orion_policy_page *page = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    page->copy[0].sharing_cost_milli = 1073;
    CHECK(settled(gpu, 1073, 1.4, 1.0) < 1.0001);
    CHECK(settled(gpu, 1200, 1.4, 1.0) < 1.14);
    page->copy[0].sharing_cost_milli = 0;
}

static void an_endless_period_is_cut_into_slices(struct orion_gpu *gpu)
{
    grant(gpu, 1150);
    orion_budget_opened(gpu, now, work);
    atomic_store(&gpu->busy->busy_since_ns, now);
    double alone = 0, spent = 0;
    for (int i = 0; i < 200000; i++) { /* steps of 2 ms; without be, hp makes one launch every 100 us */
        bool beside = now < atomic_load(&gpu->busy->overlap_until_ns);
        now += 2 * MS;
        work += beside ? 14 : 20;
        if (i > 50000) alone += beside ? 1.4 : 2, spent += 2;
        orion_budget_poll(gpu, now, work);
    }
    CHECK(spent / alone < 1.17);
    CHECK(spent / alone > 1.08);
}

/* A trainer waits for the GPU after every step, and launches the next step within the linger. So its busy period never
 * ends, but consists of parts that are each shorter than a slice. */
static void an_endless_period_of_short_parts_is_cut_into_slices(struct orion_gpu *gpu)
{
    grant(gpu, 1150);
    orion_budget_opened(gpu, now, work);
    atomic_store(&gpu->busy->busy_since_ns, now);
    double alone = 0, spent = 0;
    for (int i = 0; i < 40000; i++) { /* a step of 50 ms, then a gap of 1 ms, which is not busy time */
        for (int j = 0; j < 10; j++) {
            bool beside = now < atomic_load(&gpu->busy->overlap_until_ns);
            now += 5 * MS;
            work += beside ? 14 : 20;
            if (i > 10000) alone += beside ? 3.5 : 5, spent += 5;
            orion_budget_poll(gpu, now, work);
        }
        orion_budget_paused(gpu, now, work);
        now += MS;
        orion_budget_resumed(gpu, now, work);
    }
    CHECK(spent / alone < 1.17);
    CHECK(spent / alone > 1.08);
}

/* hp's periods have always been long, and this one does not end. hp launches a kernel every `launch_ns`. Returns when be may
 * run beside hp for 5 ms, in nanoseconds after the grant. */
static uint64_t first_overlap(struct orion_gpu *gpu, uint64_t launch_ns)
{
    grant(gpu, 50000);
    atomic_store(&orion_hp(gpu)->typical_busy_ns, 10 * ORION_SECOND);
    atomic_store(&gpu->busy->overlap_until_ns, 0);
    atomic_store(&gpu->busy->busy_since_ns, now);
    uint64_t granted = now, launched = now;
    while (atomic_load(&gpu->busy->overlap_until_ns) < now + 5 * MS && now < granted + 60 * ORION_SECOND) {
        now += 2 * MS;
        if (now >= launched + launch_ns) work++, launched += launch_ns;
        orion_budget_poll(gpu, now, work);
    }
    return now - granted;
}

static void an_endless_period_is_soon_overlapped(struct orion_gpu *gpu)
{
    CHECK(first_overlap(gpu, 2 * MS) < 4 * ORION_SECOND);
    CHECK(first_overlap(gpu, 30 * MS) < 4 * ORION_SECOND);
    CHECK(first_overlap(gpu, 300 * MS) < 5 * ORION_SECOND);
}

/* be costs hp nothing here, so the slowdown must be 1, although most slices would have no launch. */
static void slices_with_few_launches_measure_right(struct orion_gpu *gpu)
{
    first_overlap(gpu, 700 * MS);
    for (int i = 0; i < 1000000; i++) {
        now += 2 * MS;
        if (i % 350 == 0) work++;
        orion_budget_poll(gpu, now, work);
    }
    CHECK(atomic_load(&gpu->record->slowdown_milli) > 990);
    CHECK(atomic_load(&gpu->record->slowdown_milli) < 1010);
}

/* A server with one launch per request, such as a graph launch: its busy periods count, too. */
static void periods_of_one_launch_count(struct orion_gpu *gpu)
{
    const struct orion_stream_name stream = {(CUstream)0x5000, false};
    uint64_t before = atomic_load(&gpu->record->control_periods);
    grant(gpu, 1200);
    for (unsigned i = 0; i < 200; i++) {
        struct orion_work launched = {.stream = stream, .identity = 1};
        struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = stream};
        orion_work_begin(&launched);
        orion_work_end(&launched, CUDA_SUCCESS);
        orion_proof_begin(&proof);
        orion_proof_end(&proof, CUDA_SUCCESS);
        atomic_store(&gpu->busy->state, ORION_IDLE); /* the linger has ended */
    }
    CHECK(atomic_load(&gpu->record->control_periods) > before + 4);
    CHECK(atomic_load(&gpu->record->slowdown_milli) > 0);
}

int main(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_HP);
    no_budget_means_no_overlap(gpu);
    slowdown_settles_under_the_budget(gpu);
    a_large_budget_lets_everything_overlap(gpu);
    an_exceeded_budget_is_met_again_within_a_few_periods(gpu);
    overlap_is_rare_if_it_always_exceeds_the_budget(gpu);
    the_cost_of_sharing_is_subtracted_from_the_budget(gpu);
    an_endless_period_is_cut_into_slices(gpu);
    an_endless_period_of_short_parts_is_cut_into_slices(gpu);
    an_endless_period_is_soon_overlapped(gpu);
    slices_with_few_launches_measure_right(gpu);
    periods_of_one_launch_count(gpu);
    return 0;
}
