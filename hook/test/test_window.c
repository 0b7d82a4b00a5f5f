/* hp's shortest busy period narrows the window, but only down to a minimum: the waits at the valve would cost be more
 * than a narrower window is worth. */
#include "check.h"

#include "be/overlap.h"
#include "be/window.h"
#include "fake_driver.h"
#include "process/gpu.h"
#include "system/system.h"

#define US ORION_MICROSECOND

static struct orion_busy_page pages[ORION_GPU_CLIENTS_MAX];
static struct orion_policy_page policy;
static struct orion_grant_page grant;
static struct orion_gpu gpu = {.policy = &policy, .grant = &grant, .neighbours = pages, .page_step = ORION_PAGE_SIZE};

static uint64_t narrowed(uint64_t share_ns, uint32_t hp_clients, uint64_t typical_ns)
{
    grant.copy[0].window_share_ns = share_ns;
    atomic_store(&gpu.hp_count, hp_clients);
    for (uint32_t i = 0; i < hp_clients; i++) {
        atomic_store(&gpu.hp_client_index[i], (uint16_t)(7 * i));
        atomic_store(&pages[7 * i].typical_ns, i == hp_clients - 1 ? typical_ns : 100 * ORION_MILLISECOND);
    }
    return orion_window_narrowed(&gpu);
}

/* The same for what may be in flight while hp is idle, where contexts run together. It is at most 2 ms. */
static void overlap_limits(void)
{
    const struct {
        uint64_t share_ns, limit_ns;
        uint32_t hp_clients;
        uint64_t typical_ns;
    } cases[] = {
        {400 * US, 2000 * US, 0, 0},
        {400 * US, 1000 * US, 1, 40 * ORION_MILLISECOND},
        {400 * US, 400 * US, 1, 4 * ORION_MILLISECOND},  /* at least the share */
        {200 * US, 500 * US, 1, 40 * ORION_MILLISECOND}, /* one of two be clients */
        {40 * US, 200 * US, 0, 0},                       /* one of ten */
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        narrowed(cases[i].share_ns, cases[i].hp_clients, cases[i].typical_ns);
        CHECK(orion_overlap_limit(&gpu, cases[i].share_ns) == cases[i].limit_ns);
    }
}

int main(void)
{
    policy.copy[0].window_ns = 400 * US;
    CHECK(narrowed(400 * US, 0, 0) == 400 * US);                      /* no hp */
    CHECK(narrowed(400 * US, 1, 0) == 400 * US);                      /* hp's busy period is not known yet */
    CHECK(narrowed(400 * US, 1, 30 * ORION_MILLISECOND) == 400 * US); /* a fortieth of the period is longer than the window */
    CHECK(narrowed(400 * US, 1, 12 * ORION_MILLISECOND) == 300 * US);
    CHECK(narrowed(400 * US, 3, 12 * ORION_MILLISECOND) == 300 * US); /* the shortest period of three hp clients counts */
    CHECK(narrowed(400 * US, 1, ORION_MILLISECOND) == 75 * US);       /* the minimum */
    CHECK(narrowed(200 * US, 1, 12 * ORION_MILLISECOND) == 150 * US); /* this client is one of two be clients: half of 300 us */
    CHECK(narrowed(40 * US, 1, ORION_MILLISECOND) == 20 * US);        /* one of ten be clients: the minimum of a share */
    overlap_limits();
    CHECK(narrowed(400 * US, 1, UINT64_MAX) == 400 * US); /* the largest value that a page can have */
    policy.copy[0].window_ns = 50 * US;
    CHECK(narrowed(50 * US, 1, ORION_MILLISECOND) == 50 * US); /* a window below the minimum does not get wider */
    policy.copy[0].window_ns = UINT64_MAX;
    CHECK(narrowed(UINT64_MAX, 1, ORION_MILLISECOND) == UINT64_MAX); /* no arithmetic overflows */
    CHECK(orion_overlap_limit(&gpu, UINT64_MAX) == UINT64_MAX);
    puts("window: ok");
    return 0;
}
