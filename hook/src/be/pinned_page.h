/* A page of words that GPUs wait on and write. The page is pinned for all contexts of the process; a forked child does
 * not inherit it. */
#ifndef ORION_PINNED_PAGE_H
#define ORION_PINNED_PAGE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"

struct orion_pinned_page {
    _Atomic uint32_t *words; /* NULL: not made yet */
    CUdeviceptr address;     /* the first word's address on the GPUs */
    /* process->context_epoch + 1 when the page was pinned; 0: never pinned. Stored (release) after the address, for
     * threads that do not hold the lock. */
    _Atomic uint32_t context_epoch;
};

/* The caller of either function holds a lock. orion_pinned_page_pin makes driver calls in the current context. */
bool orion_pinned_page_make(struct orion_pinned_page *page);
bool orion_pinned_page_pin(struct orion_process *process, struct orion_pinned_page *page);

static inline uint32_t orion_pinned_page_epoch(const struct orion_process *process)
{
    return atomic_load(&process->context_epoch) + 1; /* so that it is not 0, which means never pinned */
}

/* Needs no lock. */
static inline bool orion_pinned_page_is_pinned(const struct orion_process *process, const struct orion_pinned_page *page)
{
    return atomic_load_explicit(&page->context_epoch, memory_order_acquire) == orion_pinned_page_epoch(process);
}

/* Whether GPUs can wait on the page and write it. The caller does not hold the lock, which is tried, never waited for.
 * If the page cannot be pinned, *refused becomes 1, and no later call tries again. */
bool orion_pinned_page_ready(struct orion_process *process, struct orion_pinned_page *page, _Atomic uint32_t *lock,
                             _Atomic uint32_t *refused);

#endif
