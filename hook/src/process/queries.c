#include "process/queries.h"

#include "process/process.h"
#include "system/system.h"

#define LOOK_NS (50 * ORION_MICROSECOND)
#define WAIT_NS (100 * ORION_MILLISECOND) /* a wake-up may be lost where the parker's thread ended */

/* A query adds itself and then reads `queries_stopped`; who stops the queries writes that and then reads their number. All four are
 * sequentially consistent, so at least one of the two sees the other. */
bool orion_query_try(struct orion_process *process)
{
    atomic_fetch_add(&process->queries, 1);
    if (__builtin_expect(atomic_load(&process->queries_stopped) == 0, 1)) return true;
    atomic_fetch_sub(&process->queries, 1);
    return false;
}

void orion_query_begin(struct orion_process *process)
{
    while (!orion_query_try(process)) orion_futex_wait(&process->queries_stopped, 1, WAIT_NS, false);
}

void orion_query_end(struct orion_process *process) { atomic_fetch_sub(&process->queries, 1); }

bool orion_queries_stop(struct orion_process *process, uint64_t until)
{
    atomic_store(&process->queries_stopped, 1);
    while (atomic_load(&process->queries) != 0) {
        if (orion_now() >= until) {
            orion_queries_continue(process);
            return false;
        }
        orion_sleep_precisely(LOOK_NS);
    }
    return true;
}

void orion_queries_continue(struct orion_process *process)
{
    if (atomic_exchange(&process->queries_stopped, 0)) orion_futex_wake_all(&process->queries_stopped, false);
}
