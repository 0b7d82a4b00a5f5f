/* The floor for be applies beside hp clients that are never idle, whatever the start of their busy periods, and beside
 * no others. */
#include "check.h"

#include <linux/futex.h>

#include "be/gate.h"
#include "fake_driver.h"
#include "process/gpu.h"
#include "system/system.h"

#define CYCLE_NS (200 * ORION_MILLISECOND)     /* the value in gate.c */
#define FLOORLESS_NS (160 * ORION_MILLISECOND) /* per cycle, with a share of 0.2 */
#define LOOKS 100u

static struct orion_busy_page pages[ORION_PLACES];
static struct orion_policy_page policy;
static struct orion_grant_page grant;
static struct orion_gpu gpu = {.policy = &policy, .grant = &grant, .neighbours = pages};

static void hp(uint32_t client_index, uint32_t state, uint64_t busy_since_ns)
{
    atomic_store(&pages[client_index].state, state);
    atomic_store(&pages[client_index].busy_since_ns, busy_since_ns);
    atomic_store(&gpu.hp_generation[client_index], 1);
    if (client_index >= atomic_load(&gpu.hp_count)) atomic_store(&gpu.hp_count, client_index + 1);
    atomic_store(&gpu.hp_client_index[client_index], (uint16_t)client_index);
}

enum when { NEVER, IN_THE_FLOOR, ALWAYS };

/* Checks the gate in both parts of a cycle. A check that does not start and end in the same part does not count,
 * because this thread lost the CPU meanwhile. */
static void opens(enum when expected)
{
    unsigned before = 0, within = 0;
    while (before < LOOKS || within < LOOKS) {
        uint64_t began = orion_now();
        bool open = !orion_gate_closed(&gpu);
        uint64_t ended = orion_now();
        bool is_within = began % CYCLE_NS >= FLOORLESS_NS;
        if (began / CYCLE_NS != ended / CYCLE_NS || is_within != (ended % CYCLE_NS >= FLOORLESS_NS)) continue;
        CHECK(open == (expected == ALWAYS || (expected == IN_THE_FLOOR && is_within)));
        is_within ? within++ : before++;
    }
}

int main(void)
{
    uint64_t now = orion_now();
    policy.copy[0].kind = ORION_POLICY_GATE;
    hp(0, ORION_BUSY, now - 10 * ORION_SECOND);
    opens(NEVER); /* off by default */
    policy.copy[0].minimum_share_milli = 200;
    opens(IN_THE_FLOOR);
    hp(1, ORION_BUSY, now - 10 * ORION_SECOND - CYCLE_NS / 2);
    opens(IN_THE_FLOOR); /* two hp clients that are never idle, out of step */
    hp(1, ORION_BUSY, UINT64_MAX);
    opens(IN_THE_FLOOR); /* one of them became busy just now: be has waited for the other */
    hp(0, ORION_IDLE, now - 10 * ORION_SECOND);
    opens(NEVER); /* be does not pay for the past of the idle one */
    hp(0, ORION_BUSY, now - 10 * ORION_SECOND);
    atomic_store(&pages[0].alive, FUTEX_OWNER_DIED);
    opens(NEVER); /* nor for a dead one */
    hp(1, ORION_LINGER, now - 10 * ORION_SECOND);
    policy.copy[0].kind = ORION_POLICY_ORION;
    opens(IN_THE_FLOOR);
    policy.copy[0].minimum_share_milli = 5000; /* whatever the page contains */
    opens(ALWAYS);
    puts("floor: ok");
    return 0;
}
