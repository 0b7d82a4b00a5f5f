#include "system/system.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t orion_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * ORION_SECOND + (uint64_t)time.tv_nsec;
}

static struct timespec timespec_of(uint64_t nanoseconds)
{
    return (struct timespec){.tv_sec = (time_t)(nanoseconds / ORION_SECOND), .tv_nsec = (long)(nanoseconds % ORION_SECOND)};
}

void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    int kept = errno;
    struct timespec timeout = timespec_of(timeout_ns);
    syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &timeout, NULL, 0);
    errno = kept;
}

void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared)
{
    int kept = errno;
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    errno = kept;
}

void orion_sleep_precisely(uint64_t nanoseconds)
{
    int kept = errno;
    int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    struct timespec time = timespec_of(nanoseconds);
    if (slack > 1) prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    /* The library's function would let a cancelled thread end here. */
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
    if (slack > 1) prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0, 0, 0);
    errno = kept;
}
