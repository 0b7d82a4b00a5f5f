#include "be/pinned_page.h"

#include <sys/mman.h>

#include "generated/driver.h"
#include "streams/capture.h"

#define BYTES 4096u

bool orion_pinned_page_make(struct orion_pinned_page *page)
{
    if (page->words != NULL) return true;
    /* MAP_SHARED: after a fork, the first write to a private page would give this process a copy, and the GPU would
     * keep the original. */
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    madvise(memory, BYTES, MADV_DONTFORK);
    page->words = memory;
    return true;
}

static CUresult pin(struct orion_pinned_page *page)
{
    void *memory = (void *)(uintptr_t)page->words;
    /* Another thread may begin a capture at any time. */
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult result = orion_driver.cuMemHostRegister_v2(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        result = orion_driver.cuMemHostGetDevicePointer_v2(&page->address, memory, 0);
    orion_capture_unrelax(&relaxed);
    return result;
}

/* Pins the page again after any context has ended, because that context may have held the registration. */
bool orion_pinned_page_pin(struct orion_process *process, struct orion_pinned_page *page)
{
    uint32_t epoch = orion_pinned_page_epoch(process);
    if (orion_pinned_page_is_pinned(process, page)) return true;
    if (orion_driver.cuMemHostRegister_v2 == NULL || orion_driver.cuStreamWaitValue32_v2 == NULL || !orion_pinned_page_make(page))
        return false;
    if (pin(page) != CUDA_SUCCESS) return false;
    atomic_store_explicit(&page->context_epoch, epoch, memory_order_release);
    return true;
}

bool orion_pinned_page_ready(struct orion_process *process, struct orion_pinned_page *page, _Atomic uint32_t *lock,
                             _Atomic uint32_t *refused)
{
    if (atomic_load_explicit(refused, memory_order_relaxed) || orion_driver.cuStreamWriteValue32_v2 == NULL) return false;
    if (__builtin_expect(orion_pinned_page_is_pinned(process, page), 1)) return true;
    /* Memory must not be pinned while some stream is being captured. */
    if (atomic_load(&process->captures) > 0 || atomic_exchange_explicit(lock, 1, memory_order_acquire)) return false;
    bool ready = orion_pinned_page_pin(process, page);
    if (!ready) atomic_store(refused, 1);
    atomic_store_explicit(lock, 0, memory_order_release);
    return ready;
}
