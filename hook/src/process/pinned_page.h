/* A page of words that GPUs wait on and write: pinned for all contexts of the process, inherited by no child. */
#ifndef ORION_PINNED_PAGE_H
#define ORION_PINNED_PAGE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_process;

struct orion_pinned_page {
    _Atomic uint32_t *words; /* NULL: not made yet */
    CUdeviceptr address;     /* of the first word, for the GPUs */
    uint32_t context_epoch;  /* the process's when the page was pinned, + 1; 0: never */
};

/* Both under a lock of the caller's; the second makes driver calls, in the current context. */
bool orion_pinned_page_make(struct orion_pinned_page *page);
bool orion_pinned_page_pin(struct orion_process *process, struct orion_pinned_page *page);

#endif
