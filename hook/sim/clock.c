/* Clocks, and precise sleep that uses little CPU (see clock.h). */
#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "state.h"

#define SPIN_NS 20000u /* a timer is usually at most this late, so the thread spins for this part of the wait */
#define VIRTUAL_CHECK_NS 100000000u

uint64_t sim_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sim_now_ns(void)
{
    return sim_machine->parameters.virtual_clock ? atomic_load(&sim_machine->virtual_ns) : sim_monotonic_ns();
}

void sim_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

static void futex_until(_Atomic uint32_t *word, uint32_t seen, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void sleep_virtual(uint64_t until_ns, _Atomic uint32_t *word, uint32_t seen)
{
    if (until_ns == SIM_NEVER) { /* only another thread can wake us */
        futex_until(word, seen, sim_monotonic_ns() + VIRTUAL_CHECK_NS);
        return;
    }
    uint64_t now = atomic_load(&sim_machine->virtual_ns);
    while (now < until_ns && !atomic_compare_exchange_weak(&sim_machine->virtual_ns, &now, until_ns)) {}
}

void sim_sleep_until(uint64_t until_ns, _Atomic uint32_t *word, uint32_t seen)
{
    if (sim_machine->parameters.virtual_clock) {
        sleep_virtual(until_ns, word, seen);
        return;
    }
    uint64_t now = sim_monotonic_ns();
    if (until_ns > now + 2 * SPIN_NS) {
        static __thread int slack; /* the thread's timer slack, restored after the sleep */
        slack = prctl(PR_GET_TIMERSLACK);
        if (slack > 1000) prctl(PR_SET_TIMERSLACK, 1000);
        futex_until(word, seen, until_ns == SIM_NEVER ? now + 1000000000u : until_ns - SPIN_NS);
        if (slack > 1000) prctl(PR_SET_TIMERSLACK, slack);
    }
    while (until_ns != SIM_NEVER && sim_monotonic_ns() < until_ns && atomic_load_explicit(word, memory_order_relaxed) == seen)
        sim_pause();
}
