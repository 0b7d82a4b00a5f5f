/* A page of words that GPUs wait on and write. The page is pinned for all contexts of the process; a forked child does
 * not inherit it. */
#ifndef ORION_PINNED_PAGE_H
#define ORION_PINNED_PAGE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"
#include "streams/stream_records.h"

struct orion_pinned_page {
    _Atomic uint32_t *words; /* NULL: not made yet */
    CUdeviceptr address;     /* the first word's address on the GPUs */
    /* process->context_epoch + 1 when the page was pinned; 0: never pinned. Stored (release) after the address, for
     * threads that do not hold the lock. */
    _Atomic uint32_t context_epoch;
    _Atomic uint64_t retry_ns; /* until then no thread pins the page, because the driver has failed */
};

/* The caller of either function holds a lock. Any thread that uses the stream can pin the page, also one without a current
 * context. False: not now; see orion_pinned_page_failed. */
bool orion_pinned_page_make(struct orion_pinned_page *page);
bool orion_pinned_page_pin(struct orion_process *process, const struct orion_stream_record *stream_record,
                           struct orion_pinned_page *page, _Atomic uint32_t *refused);

static inline uint32_t orion_pinned_page_epoch(const struct orion_process *process)
{
    return atomic_load(&process->context_epoch) + 1; /* so that it is not 0, which means never pinned */
}

/* Needs no lock. */
static inline bool orion_pinned_page_is_pinned(const struct orion_process *process, const struct orion_pinned_page *page)
{
    return atomic_load_explicit(&page->context_epoch, memory_order_acquire) == orion_pinned_page_epoch(process);
}

/* Whether GPUs can wait on the page and write it. The caller does not hold the lock, which is tried, never waited for. */
bool orion_pinned_page_ready(struct orion_process *process, const struct orion_stream_record *stream_record,
                             struct orion_pinned_page *page, _Atomic uint32_t *lock, _Atomic uint32_t *refused);

/* Puts a wait for a word of the page, or a write of one, into the stream. */
typedef CUresult(CUDAAPI orion_word_call)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags);
CUresult orion_pinned_page_put(orion_word_call *call, const struct orion_stream_record *stream_record, CUdeviceptr word,
                               uint32_t value, unsigned flags);

/* The driver has refused a call about the page. If it will always do so, *refused becomes 1. Else, as while memory is short, the
 * page is not ready for a short time. */
void orion_pinned_page_failed(struct orion_pinned_page *page, CUresult result, _Atomic uint32_t *refused);

#endif
