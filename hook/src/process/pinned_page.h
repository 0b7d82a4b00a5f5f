/* A page of words that GPUs wait on and write. The page is pinned for all contexts of the process; a forked child does
 * not inherit it. */
#ifndef ORION_PINNED_PAGE_H
#define ORION_PINNED_PAGE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_process;

struct orion_pinned_page {
    _Atomic uint32_t *words; /* NULL: not made yet */
    CUdeviceptr address;     /* the first word's address on the GPUs */
    uint32_t context_epoch;  /* process->context_epoch + 1 when the page was pinned; 0: never pinned */
};

/* The caller of either function holds a lock. orion_pinned_page_pin makes driver calls in the current context. */
bool orion_pinned_page_make(struct orion_pinned_page *page);
bool orion_pinned_page_pin(struct orion_process *process, struct orion_pinned_page *page);

#endif
