/* The floor for be: beside hp clients that are never idle, whenever their busy periods began, and for no others. */
#include "check.h"

#include <linux/futex.h>

#include "fake_driver.h"
#include "system.h"
#include "agent/board.h"
#include "be/gate.h"

#define CYCLE_NS (200 * ORION_MILLISECOND) /* as in gate.c */
#define FLOORLESS_NS (160 * ORION_MILLISECOND) /* of a cycle, with a share of 0.2 */
#define LOOKS 100u

static struct orion_busy_page pages[ORION_PLACES];
static struct orion_policy_page policy;
static struct orion_grant_page grant;
static struct orion_board board = {.policy = &policy, .grant = &grant, .neighbours = pages};

static void hp(uint32_t place, uint32_t state, uint64_t busy_since_ns)
{
    atomic_store(&pages[place].state, state);
    atomic_store(&pages[place].busy_since_ns, busy_since_ns);
    atomic_store(&board.hp_generation[place], 1);
    if (place >= atomic_load(&board.hp_count)) atomic_store(&board.hp_count, place + 1);
    atomic_store(&board.hp_place[place], (uint16_t)place);
}

enum when { NEVER, IN_THE_FLOOR, ALWAYS };

/* Looks at the gate in both parts of cycles. A look that did not begin and end in one part, since this thread lost the
 * processor meanwhile, says nothing. */
static void opens(enum when expected)
{
    unsigned before = 0, within = 0;
    while (before < LOOKS || within < LOOKS) {
        uint64_t began = orion_now();
        bool open = !orion_gate_closed(&board);
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
    opens(IN_THE_FLOOR); /* two that are never idle, out of step */
    hp(1, ORION_BUSY, UINT64_MAX);
    opens(IN_THE_FLOOR); /* one of them has just begun: be has waited for the other one */
    hp(0, ORION_IDLE, now - 10 * ORION_SECOND);
    opens(NEVER); /* and pays nothing for the idle one's past */
    hp(0, ORION_BUSY, now - 10 * ORION_SECOND);
    atomic_store(&pages[0].alive, FUTEX_OWNER_DIED);
    opens(NEVER); /* nor for a dead one */
    hp(1, ORION_LINGER, now - 10 * ORION_SECOND);
    policy.copy[0].kind = ORION_POLICY_ORION;
    opens(IN_THE_FLOOR);
    policy.copy[0].minimum_share_milli = 5000; /* whatever the page says */
    opens(ALWAYS);
    puts("floor: ok");
    return 0;
}
