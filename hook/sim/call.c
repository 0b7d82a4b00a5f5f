/* Counts the calls in progress, and stops calls (see call.h). One word has both, so that a call cannot begin between the
 * stop and the count. */
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "call.h"
#include "clock.h"
#include "effect.h"
#include "sim.h"

#define STOPPED UINT32_C(0x80000000)

static _Atomic uint32_t calls; /* number of calls in progress; STOPPED: new calls wait */
static __thread unsigned depth;

static void sleep_on(uint32_t seen, const struct timespec *longest)
{
    syscall(SYS_futex, &calls, FUTEX_WAIT_PRIVATE, seen, longest, NULL, 0);
}

void sim_call_begin(void)
{
    if (depth++ || atomic_load_explicit(&sim_forked, memory_order_relaxed) || sim_in_host_function()) return;
    uint32_t seen = atomic_load(&calls);
    for (;;) {
        if (seen & STOPPED) {
            sleep_on(seen, NULL);
            seen = atomic_load(&calls);
        } else if (atomic_compare_exchange_weak(&calls, &seen, seen + 1)) {
            return;
        }
    }
}

void sim_call_end(const char *unused)
{
    (void)unused;
    if (--depth || atomic_load_explicit(&sim_forked, memory_order_relaxed) || sim_in_host_function()) return;
    if (atomic_fetch_sub(&calls, 1) == STOPPED + 1) sim_wake(&calls);
}

bool sim_calls_stop(uint64_t timeout_ns)
{
    uint64_t until = timeout_ns ? sim_monotonic_ns() + timeout_ns : SIM_NEVER;
    atomic_fetch_or(&calls, STOPPED);
    for (uint32_t seen; (seen = atomic_load(&calls)) != STOPPED;) {
        uint64_t now = sim_monotonic_ns(), left = now < until ? until - now : 0;
        struct timespec longest = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        if (left == 0) {
            sim_calls_continue();
            return false;
        }
        sleep_on(seen, timeout_ns ? &longest : NULL);
    }
    return true;
}

void sim_calls_continue(void)
{
    atomic_fetch_and(&calls, ~STOPPED);
    sim_wake(&calls);
}
