/* What the hook needs from the kernel: time, futexes, sleeping. Nothing here changes errno. */
#ifndef ORION_SYSTEM_H
#define ORION_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ORION_MICROSECOND UINT64_C(1000)
#define ORION_MILLISECOND UINT64_C(1000000)
#define ORION_SECOND UINT64_C(1000000000)

uint64_t orion_now(void); /* CLOCK_MONOTONIC, nanoseconds: one clock for all processes of the machine */

/* Waits while *word == value, at most timeout_ns. `shared`: the word is in a page that processes share. The page may be
 * mapped read-only, because waiting needs no write access. May return early without a wake. */
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared);
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared);

/* Sleeps with an error of some microseconds, whatever the thread's timer slack is. Leaves the timer slack unchanged. */
void orion_sleep_precisely(uint64_t nanoseconds);

static inline void orion_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
