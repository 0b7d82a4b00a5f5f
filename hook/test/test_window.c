/* The window is as narrow as hp's shortest busy period requires, and not narrower than its waits are worth. */
#include "check.h"

#include "be/window.h"
#include "fake_driver.h"
#include "process/gpu.h"
#include "system/system.h"

#define US ORION_MICROSECOND

static struct orion_busy_page pages[ORION_PLACES];
static struct orion_policy_page policy;
static struct orion_grant_page grant;
static struct orion_gpu gpu = {.policy = &policy, .grant = &grant, .neighbours = pages};

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

int main(void)
{
    policy.copy[0].window_ns = 400 * US;
    CHECK(narrowed(400 * US, 0, 0) == 400 * US);                      /* no hp */
    CHECK(narrowed(400 * US, 1, 0) == 400 * US);                      /* nothing is known of hp */
    CHECK(narrowed(400 * US, 1, 30 * ORION_MILLISECOND) == 400 * US); /* a fortieth of the period is more */
    CHECK(narrowed(400 * US, 1, 12 * ORION_MILLISECOND) == 300 * US);
    CHECK(narrowed(400 * US, 3, 12 * ORION_MILLISECOND) == 300 * US); /* the shortest of several periods */
    CHECK(narrowed(400 * US, 1, ORION_MILLISECOND) == 75 * US);       /* the minimum */
    CHECK(narrowed(200 * US, 1, 12 * ORION_MILLISECOND) == 150 * US); /* one of two be clients: half of it */
    CHECK(narrowed(40 * US, 1, ORION_MILLISECOND) == 20 * US);        /* one of many */
    CHECK(narrowed(400 * US, 1, UINT64_MAX) == 400 * US);             /* a page with an extreme value */
    policy.copy[0].window_ns = 50 * US;
    CHECK(narrowed(50 * US, 1, ORION_MILLISECOND) == 50 * US); /* never wider than before */
    policy.copy[0].window_ns = UINT64_MAX;
    CHECK(narrowed(UINT64_MAX, 1, ORION_MILLISECOND) == UINT64_MAX); /* no arithmetic overflows */
    puts("window: ok");
    return 0;
}
