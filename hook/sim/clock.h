/* The machine's time, real or virtual, and functions that wait until a time. Times are nanoseconds of CLOCK_MONOTONIC
 * or of the virtual clock. */
#ifndef ORION_SIM_CLOCK_H
#define ORION_SIM_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

/* One iteration of a spin loop. */
static inline void sim_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

uint64_t sim_monotonic_ns(void);

/* The machine's time. */
uint64_t sim_now_ns(void);

/* Sleep until the machine's time is `until_ns`, or until `*word` no longer has the value `seen`. The end is precise to
 * a few microseconds, because the thread spins for the last part of the wait. A sleep advances the virtual clock. */
void sim_sleep_until(uint64_t until_ns, _Atomic uint32_t *word, uint32_t seen);

/* Wake all threads that sleep on `word`. The caller has changed the word. */
void sim_wake(_Atomic uint32_t *word);

#endif
