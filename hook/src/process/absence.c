#include "process/absence.h"

#include "process/parking_wish.h"
#include "process/process.h"
#include "system/system.h"

#define LOOK_NS (50 * ORION_MICROSECOND)

/* A call adds itself and then reads the errands; the parker sets its errand and then reads the number of calls. All four are sequentially
 * consistent, so at least one of the two sees the other. `parks` is 0 also while a parker that the program has ended is being replaced. */
enum orion_presence orion_present_try(struct orion_process *process)
{
    if (__builtin_expect(process == NULL, 0)) return ORION_UNCOUNTED;
    if (__builtin_expect(atomic_load_explicit(&process->parks, memory_order_relaxed) == 0, 1) && !orion_has_errands(process))
        return ORION_UNCOUNTED;
    atomic_fetch_add(&process->present, 1);
    if (__builtin_expect((atomic_load(&process->errands) & ORION_ERRAND_ABSENT) == 0, 1)) return ORION_COUNTED;
    atomic_fetch_sub(&process->present, 1);
    return ORION_ABSENT;
}

void orion_present_end(struct orion_process *process, enum orion_presence presence)
{
    if (presence == ORION_COUNTED) atomic_fetch_sub(&process->present, 1);
}

bool orion_absence_begin(struct orion_process *process, uint64_t until)
{
    atomic_fetch_or(&process->errands, ORION_ERRAND_ABSENT);
    while (atomic_load(&process->present) != 0) {
        if (orion_now() >= until) {
            orion_absence_end(process);
            return false;
        }
        orion_sleep_precisely(LOOK_NS);
    }
    return true;
}

void orion_absence_end(struct orion_process *process)
{
    if (atomic_fetch_and(&process->errands, ~(uint32_t)ORION_ERRAND_ABSENT) & ORION_ERRAND_ABSENT)
        orion_futex_wake_all(&process->errands, false);
}

atomic_bool orion_has_gone;

bool orion_absence_holds(void)
{
    struct orion_process *process = orion_the_process;
    return process != NULL && (atomic_load(&process->errands) & ORION_ERRAND_ABSENT);
}

/* The parker begins the absence and then asks whether the process exits; this is the other way round. Both are sequentially consistent, so
 * at least one of the two sees the other. */
void orion_absence_exits(struct orion_process *process)
{
    if ((atomic_load(&process->errands) & ORION_ERRAND_ABSENT) && orion_parking_is_wished(process))
        atomic_store(&orion_has_gone, true);
}
