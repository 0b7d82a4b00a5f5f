#include "process/alive.h"

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process/gpu.h"

/* The robust list has one entry, in this thread's memory. The kernel finds the futex at an offset from the entry, so
 * the shared page contains no pointer. This list replaces the C library's list, which this thread does not use. */
static _Thread_local struct {
    struct robust_list_head head;
    struct robust_list entry;
} robust;

void orion_alive_hold(struct orion_gpu *gpu)
{
    robust.head.list.next = &robust.entry;
    robust.entry.next = &robust.head.list;
    robust.head.futex_offset = (long)((intptr_t)&gpu->busy->alive - (intptr_t)&robust.entry);
    robust.head.list_op_pending = NULL;
    syscall(SYS_set_robust_list, &robust.head, sizeof robust.head);
    atomic_store(&gpu->busy->alive, (uint32_t)syscall(SYS_gettid) | FUTEX_WAITERS);
}

bool orion_alive_is_held(const struct orion_gpu *gpu)
{
    return !(atomic_load_explicit(&gpu->busy->alive, memory_order_relaxed) & FUTEX_OWNER_DIED);
}
