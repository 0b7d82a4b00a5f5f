/* The few things that the hook asks of the kernel: time, futexes, sleeping. Nothing here touches errno. */
#ifndef ORION_SYSTEM_H
#define ORION_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ORION_MICROSECOND UINT64_C(1000)
#define ORION_MILLISECOND UINT64_C(1000000)
#define ORION_SECOND UINT64_C(1000000000)

uint64_t orion_now(void); /* CLOCK_MONOTONIC, nanoseconds: one clock for all processes of the machine */

/* Waits while *word == value, at most timeout_ns. `shared`: the word lies in a page of another process (which may be
 * mapped read-only: waiting needs no write access). Spurious returns are allowed. */
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared);
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared);

/* Sleeps to within some microseconds whatever the thread's timer slack is, which it leaves as it was. */
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
