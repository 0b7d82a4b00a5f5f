/* hp at its limit launches when its grant says so, and be need not wait for it meanwhile. */
#include "check.h"

#include <pthread.h>

#include "fake_driver.h"
#include "hp/busy.h"
#include "hp/ceiling.h"
#include "process/gpu.h"
#include "process/plan.h"
#include "system/system.h"

#define MS ORION_MILLISECOND

static struct orion_grant_page page;
static struct orion_record_page record;
static struct orion_busy_page busy;
static struct orion_policy_page policy;
static struct orion_gpu gpu = {.policy = &policy, .grant = &page, .busy = &busy, .record = &record};

static void plan(uint64_t begin, uint64_t end, uint64_t until)
{
    page.copy[0] = (struct orion_grant){.next_begin_ns = begin, .next_end_ns = end, .cycle_ns = 20 * MS, .plan_until_ns = until};
    atomic_store(&page.plan, 1);
}

static void without_a_limit_nothing_waits(void)
{
    CHECK(!orion_plan_may_exist(&gpu));
    orion_ceiling_wait(&gpu);
    CHECK(atomic_load(&record.gated_launches) == 0);
}

static void a_launch_waits_for_its_time_and_ends_the_linger(void)
{
    uint64_t opens = orion_now() + 30 * MS;
    atomic_store(&busy.state, ORION_LINGER);
    plan(opens, opens + 19 * MS, opens + 100 * ORION_SECOND);
    CHECK(orion_plan_may_exist(&gpu));
    orion_ceiling_wait(&gpu);
    CHECK(orion_now() >= opens);
    CHECK(atomic_load(&busy.state) == ORION_IDLE);
    CHECK(atomic_load(&record.gated_launches) == 1);
    CHECK(atomic_load(&record.gated_ns) > 0);
    CHECK(atomic_load(&record.waiting_since_ns) == 0);
}

static void work_in_flight_stays_busy(void)
{
    uint64_t opens = orion_now() + 5 * MS;
    atomic_store(&busy.state, ORION_BUSY);
    plan(opens, opens + 19 * MS, opens + 100 * ORION_SECOND);
    orion_ceiling_wait(&gpu);
    CHECK(atomic_load(&busy.state) == ORION_BUSY);
}

/* No agent renews the plan. */
static void the_wait_ends_with_the_plan(void)
{
    uint64_t now = orion_now();
    plan(0, 0, now + 20 * MS);
    orion_ceiling_wait(&gpu);
    CHECK(orion_now() >= now + 20 * MS);
}

static void *remove_the_limit(void *unused)
{
    (void)unused;
    orion_sleep_precisely(20 * MS);
    page.copy[1] = (struct orion_grant){0};
    atomic_store(&page.current, 1);
    atomic_fetch_add(&page.plan, 1);
    orion_futex_wake_all(&page.plan, true);
    return NULL;
}

static void a_removed_limit_wakes(void)
{
    pthread_t agent;
    plan(0, 0, orion_now() + 1000 * ORION_SECOND);
    CHECK(pthread_create(&agent, NULL, remove_the_limit, NULL) == 0);
    orion_ceiling_wait(&gpu);
    pthread_join(agent, NULL);
    CHECK(!orion_plan_exists(&gpu));
}

int main(void)
{
    without_a_limit_nothing_waits();
    a_launch_waits_for_its_time_and_ends_the_linger();
    work_in_flight_stays_busy();
    the_wait_ends_with_the_plan();
    a_removed_limit_wakes();
    puts("ceiling: ok");
    return 0;
}
