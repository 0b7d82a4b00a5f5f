/* be does not give up on an hp that begins to work again: the time since a waiter saw it last does not count. Here the waiter sees hp
 * linger, but not idle, as the watcher may, which looks from time to time. */
#include "check.h"
#include "fake_driver.h"

#include "be/gate.h"
#include "process/policy.h"
#include "system/system.h"
#include "until.h"

#define STALL_NS (100 * ORION_MILLISECOND)
#define LOOK_NS (50 * ORION_MICROSECOND)

static struct orion_gpu *gpu;
static struct orion_busy_page *page;

static void set_hp(enum orion_busy_state state)
{
    atomic_store(&page->heartbeat_ns, orion_now() + 10 * ORION_SECOND);
    atomic_store(&page->state, state);
}

static uint64_t looks_until_given_up(void)
{
    uint64_t began = orion_now();
    while (orion_gate_closed(gpu)) orion_gate_sleep(orion_process_started(), gpu, LOOK_NS);
    return orion_now() - began;
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    struct orion_policy *policy = (struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu);
    policy->kind = ORION_POLICY_GATE;
    policy->stall_ns = STALL_NS;
    atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->hp_clients, 1);
    atomic_store(&gpu->hp_generation[0], 1);
    atomic_store(&gpu->hp_count, 1);
    page = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    set_hp(ORION_LINGER);
    orion_gate_sleep(orion_process_started(), gpu, LOOK_NS);
    set_hp(ORION_IDLE);
    CHECK(!orion_gate_closed(gpu));
    orion_sleep_precisely(STALL_NS + STALL_NS / 10);
    set_hp(ORION_BUSY);
    CHECK(looks_until_given_up() >= STALL_NS);
    CHECK(atomic_load(&gpu->record->given_up) == 1);
    puts("stall_time: ok");
    return 0;
}
