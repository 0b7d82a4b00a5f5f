/* The absence of a process: while it has left the GPU's memory (parking/), it must not call the driver. The driver stops most calls until
 * the process is back. Some it does not stop, and they end the process by SIGSEGV, because they read memory that is gone (driver 580; also
 * without Orion): queries, synchronisations, elapsed times, memory of pools, the end of a module. Others fail: cuMemGetInfo, and what exports
 * memory. measurements/probes/absence.c tries 141 calls. So the hook counts the threads in these calls. The process leaves when none is in
 * one, and none begins until it is back. */
#ifndef ORION_ABSENCE_H
#define ORION_ABSENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_process;

enum orion_presence {
    ORION_ABSENT,    /* the process is leaving or away: make no call */
    ORION_UNCOUNTED, /* it never leaves, so the call costs no write to shared memory */
    ORION_COUNTED
};

/* Before such a call; the result is for orion_present_end, after the call. NULL: the process is not managed. */
enum orion_presence orion_present_try(struct orion_process *process);
void orion_present_end(struct orion_process *process, enum orion_presence presence);

/* From now on no such call begins, and none runs. False: one still ran at `until`, in ns of orion_now; then all may go on. */
bool orion_absence_begin(struct orion_process *process, uint64_t until);
void orion_absence_end(struct orion_process *process);

/* The process exits, and the parker knows. If it is away or leaves, and shall stay away, its exit handlers would wait in the driver for a
 * return that may be hours away. So from now on the wrappers make no call, and return the error that the driver gives behind its own end. */
void orion_absence_exits(struct orion_process *process);

extern atomic_bool orion_has_gone;
bool orion_absence_holds(void); /* the process is away now: the parker may still have turned back */
static inline bool orion_is_gone(void)
{
    return __builtin_expect(atomic_load_explicit(&orion_has_gone, memory_order_relaxed), 0) && orion_absence_holds();
}

#endif
