#include "system/lock.h"

#include "system/system.h"

#define LOOK_AGAIN_NS (10 * ORION_MILLISECOND)

bool orion_lock_try(_Atomic uint32_t *lock)
{
    uint32_t none = 0;
    return atomic_compare_exchange_strong(lock, &none, 1);
}

void orion_lock(_Atomic uint32_t *lock)
{
    if (orion_lock_try(lock)) return;
    while (atomic_exchange(lock, 2) != 0) orion_futex_wait(lock, 2, LOOK_AGAIN_NS, false);
}

void orion_unlock(_Atomic uint32_t *lock)
{
    if (atomic_exchange(lock, 0) == 2) orion_futex_wake_all(lock, false);
}
