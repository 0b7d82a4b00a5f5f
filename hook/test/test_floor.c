/* The floor: be runs in its part of each cycle beside an hp client that is never idle, no matter when that client's
 * busy period began. Beside other hp clients be has no floor. */
#include "check.h"

#include <linux/futex.h>

#include "be/gate.h"
#include "fake_driver.h"
#include "process/gpu.h"
#include "system/system.h"

#define CYCLE_NS (ORION_FLOOR_CYCLE_MS * ORION_MILLISECOND)
#define FLOORLESS_NS (160 * ORION_MILLISECOND) /* the part of a cycle before the floor, with a share of 0.2 */
#define CHECKS_PER_PART 100u

static struct orion_busy_page pages[ORION_GPU_CLIENTS_MAX];
static struct orion_policy_page policy;
static struct orion_grant_page grant;
static struct orion_gpu gpu = {.policy = &policy, .grant = &grant, .neighbours = pages, .page_step = ORION_PAGE_SIZE};

static void set_hp(uint32_t client_index, uint32_t state, uint64_t busy_since_ns)
{
    atomic_store(&pages[client_index].state, state);
    atomic_store(&pages[client_index].busy_since_ns, busy_since_ns);
    atomic_store(&gpu.hp_generation[client_index], 1);
    if (client_index >= atomic_load(&gpu.hp_count)) atomic_store(&gpu.hp_count, client_index + 1);
    atomic_store(&gpu.hp_client_index[client_index], (uint16_t)client_index);
}

enum when { NEVER, IN_THE_FLOOR, ALWAYS };

/* Checks when the gate is open, in both parts of a cycle. A check that does not start and end in the same part does not
 * count, because this thread lost the CPU meanwhile. */
static void check_open(enum when expected)
{
    unsigned before = 0, within = 0;
    while (before < CHECKS_PER_PART || within < CHECKS_PER_PART) {
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
    set_hp(0, ORION_BUSY, now - 10 * ORION_SECOND);
    check_open(NEVER); /* the default is no floor */
    policy.copy[0].minimum_share_milli = 200;
    check_open(IN_THE_FLOOR);
    set_hp(1, ORION_BUSY, now - 10 * ORION_SECOND - CYCLE_NS / 2);
    check_open(IN_THE_FLOOR); /* two hp clients that are never idle; their busy periods began half a cycle apart */
    set_hp(1, ORION_BUSY, UINT64_MAX);
    check_open(IN_THE_FLOOR); /* client 1 became busy just now, but be has waited for client 0 */
    set_hp(0, ORION_IDLE, now - 10 * ORION_SECOND);
    check_open(NEVER); /* the start of a past busy period of an idle client opens no floor */
    set_hp(0, ORION_BUSY, now - 10 * ORION_SECOND);
    atomic_store(&pages[0].alive, FUTEX_OWNER_DIED);
    check_open(NEVER); /* nor does the busy period of a dead client */
    set_hp(1, ORION_LINGER, now - 10 * ORION_SECOND);
    policy.copy[0].kind = ORION_POLICY_ORION;
    check_open(IN_THE_FLOOR);                  /* a lingering client counts as busy */
    policy.copy[0].minimum_share_milli = 5000; /* an invalid share counts as 1000 */
    check_open(ALWAYS);
    puts("floor: ok");
    return 0;
}
