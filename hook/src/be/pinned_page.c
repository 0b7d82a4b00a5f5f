#include "be/pinned_page.h"

#include <sys/mman.h>

#include "generated/driver.h"
#include "streams/capture.h"
#include "system/lock.h"
#include "system/system.h"

#define BYTES 4096u
#define RETRY_NS (10 * ORION_MILLISECOND)

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

void orion_pinned_page_failed(struct orion_pinned_page *page, CUresult result, _Atomic uint32_t *refused)
{
    if (result == CUDA_ERROR_NOT_SUPPORTED) atomic_store(refused, 1);
    atomic_store(&page->retry_ns, orion_now() + RETRY_NS);
    atomic_store(&page->context_epoch, 0);
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

/* A thread may launch a CUkernel without a current context. An overflow record's context may have ended. */
static CUresult pin_for(const struct orion_process *process, const struct orion_stream_record *stream_record,
                        struct orion_pinned_page *page)
{
    CUcontext current = NULL;
    orion_driver.cuCtxGetCurrent(&current);
    if (current == stream_record->context || orion_stream_record_is_shared(process, stream_record)) return pin(page);
    CUresult result = orion_driver.cuCtxPushCurrent_v2(stream_record->context);
    if (result != CUDA_SUCCESS) return result;
    result = pin(page);
    orion_driver.cuCtxPopCurrent_v2(&current);
    return result;
}

/* Pins the page again after any context has ended, because that context may have held the registration. */
bool orion_pinned_page_pin(struct orion_process *process, const struct orion_stream_record *stream_record,
                           struct orion_pinned_page *page, _Atomic uint32_t *refused)
{
    uint32_t epoch = orion_pinned_page_epoch(process);
    if (orion_pinned_page_is_pinned(process, page)) return true;
    if (orion_now() < atomic_load_explicit(&page->retry_ns, memory_order_relaxed)) return false;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (orion_driver.cuMemHostRegister_v2 != NULL && orion_driver.cuStreamWaitValue32_v2 != NULL)
        result = orion_pinned_page_make(page) ? pin_for(process, stream_record, page) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) atomic_store_explicit(&page->context_epoch, epoch, memory_order_release);
    else orion_pinned_page_failed(page, result, refused);
    return result == CUDA_SUCCESS;
}

bool orion_pinned_page_ready(struct orion_process *process, const struct orion_stream_record *stream_record,
                             struct orion_pinned_page *page, _Atomic uint32_t *lock, _Atomic uint32_t *refused)
{
    if (atomic_load_explicit(refused, memory_order_relaxed) || orion_driver.cuStreamWriteValue32_v2 == NULL) return false;
    if (__builtin_expect(orion_pinned_page_is_pinned(process, page), 1)) return true;
    /* Memory must not be pinned while some stream is being captured. */
    if (atomic_load(&process->captures) > 0 || !orion_lock_try(lock)) return false;
    bool ready = orion_pinned_page_pin(process, stream_record, page, refused);
    orion_unlock(lock);
    return ready;
}

/* The driver may need a context also for a stream's handle, which only then costs a second call. */
CUresult orion_pinned_page_put(orion_word_call *call, const struct orion_stream_record *stream_record, CUdeviceptr word,
                               uint32_t value, unsigned flags)
{
    CUstream stream = orion_stream_record_handle(stream_record);
    CUcontext popped;
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult result = call(stream, word, value, flags);
    if (__builtin_expect(result == CUDA_ERROR_INVALID_CONTEXT, 0) &&
        orion_driver.cuCtxPushCurrent_v2(stream_record->context) == CUDA_SUCCESS) {
        result = call(stream, word, value, flags);
        orion_driver.cuCtxPopCurrent_v2(&popped);
    }
    orion_capture_unrelax(&relaxed);
    return result;
}
