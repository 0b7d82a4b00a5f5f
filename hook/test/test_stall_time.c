/* be does not give up on an hp that begins to work again: the time since a waiter saw it last does not count. Here the waiter sees hp
 * linger, but not idle, as the watcher may, which looks from time to time. */
#include "check.h"
#include "fake_driver.h"
#include "played_hp.h"

#include "be/gate.h"
#include "process/policy.h"
#include "system/system.h"
#include "until.h"

#define STALL_NS (100 * ORION_MILLISECOND)
#define LOOK_NS (50 * ORION_MICROSECOND)

static struct orion_gpu *gpu;

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
    hp_joins(gpu);
    set_hp(gpu, ORION_LINGER);
    orion_gate_sleep(orion_process_started(), gpu, LOOK_NS);
    set_hp(gpu, ORION_IDLE);
    CHECK(!orion_gate_closed(gpu));
    orion_sleep_precisely(STALL_NS + STALL_NS / 10);
    set_hp(gpu, ORION_BUSY);
    CHECK(looks_until_given_up() >= STALL_NS);
    CHECK(atomic_load(&gpu->record->given_up) == 1);
    puts("stall_time: ok");
    return 0;
}
