/* The floor for be: beside hp clients that are never idle, whenever their busy periods began, and for no others. */
#include "check.h"

#include <linux/futex.h>

#include "fake_driver.h"
#include "system.h"
#include "agent/board.h"
#include "be/gate.h"

#define CYCLE_NS (200 * ORION_MILLISECOND) /* as in gate.c */

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

/* For how much of a cycle the gate is open, in thousandths; roughly, as this thread may lose the processor. */
static uint64_t open_milli(void)
{
    uint64_t open = 0, last = orion_now(), end = last + CYCLE_NS;
    while (last < end) {
        bool closed = orion_gate_closed(&board);
        uint64_t now = orion_now();
        if (!closed) open += now - last;
        last = now;
    }
    return open * 1000 / (last - (end - CYCLE_NS));
}

static bool is_a_fifth(uint64_t milli) { return milli >= 50 && milli <= 500; }

int main(void)
{
    uint64_t now = orion_now();
    policy.copy[0].kind = ORION_POLICY_GATE;
    hp(0, ORION_BUSY, now - 10 * ORION_SECOND);
    CHECK(open_milli() == 0); /* off by default */
    policy.copy[0].minimum_share_milli = 200;
    CHECK(is_a_fifth(open_milli()));
    hp(1, ORION_BUSY, now - 10 * ORION_SECOND - CYCLE_NS / 2);
    CHECK(is_a_fifth(open_milli())); /* two that are never idle, out of step */
    hp(1, ORION_BUSY, UINT64_MAX);
    CHECK(is_a_fifth(open_milli())); /* one of them has just begun: be has waited for the other one */
    hp(0, ORION_IDLE, now - 10 * ORION_SECOND);
    CHECK(open_milli() == 0); /* and pays nothing for the idle one's past */
    hp(0, ORION_BUSY, now - 10 * ORION_SECOND);
    atomic_store(&pages[0].alive, FUTEX_OWNER_DIED);
    CHECK(open_milli() == 0); /* nor for a dead one */
    hp(1, ORION_LINGER, now - 10 * ORION_SECOND);
    policy.copy[0].kind = ORION_POLICY_ORION;
    CHECK(is_a_fifth(open_milli()));
    policy.copy[0].minimum_share_milli = 5000; /* whatever the page says */
    CHECK(open_milli() == 1000);
    puts("floor: ok");
    return 0;
}
