/* The one hp client beside be's GPU, which the test plays. */
#ifndef ORION_TEST_PLAYED_HP_H
#define ORION_TEST_PLAYED_HP_H

#include "process/gpu.h"
#include "system/system.h"
#include "until.h"

static inline void hp_joins(struct orion_gpu *gpu)
{
    atomic_store(&((struct orion_policy_page *)(uintptr_t)gpu->policy)->hp_clients, 1);
    atomic_store(&gpu->hp_generation[0], 1);
    atomic_store(&gpu->hp_count, 1);
}

/* It does not seem to hang: its heartbeat lies ahead. */
static inline void set_hp(struct orion_gpu *gpu, enum orion_busy_state state)
{
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    atomic_store(&page->heartbeat_ns, orion_now() + DEADLINE_NS);
    atomic_store(&page->state, state);
    orion_futex_wake_all(&page->state, true);
}

#endif
