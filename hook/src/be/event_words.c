#include "be/event_words.h"

#include "be/valve.h"
#include "generated/driver.h"
#include "process/process.h"
#include "system/lock.h"

#define IN_FLIGHT_MOST (1u << 30) /* so many writes of a stream are never in flight */

_Static_assert(ORION_STREAM_RECORDS * sizeof(uint32_t) <= 4096, "a pinned page has too few words");

/* What may be held: a be process. Threads that share a GPU are held otherwise. is_ready asks whether anything holds it at all. */
static bool needs_words(const struct orion_process *process, const struct orion_stream_record *stream_record)
{
    const struct orion_gpu *gpu = stream_record->gpu;
    return atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_BE && gpu->client == 0 &&
           (orion_stream_record_has_handle(process, stream_record) || orion_stream_record_is_of_this_thread(stream_record));
}

static bool is_ready(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_event_words *all = orion_event_words(process);
    return !atomic_load_explicit(&all->refused, memory_order_relaxed) && orion_valve_ready(process, stream_record) &&
           orion_pinned_page_ready(process, stream_record, &all->page, &all->lock, &all->refused);
}

/* The caller holds the lock. */
static uint32_t write_next(struct orion_event_words *all, const struct orion_stream_record *stream_record, uint32_t index)
{
    if (atomic_load(&all->ended[index]) && atomic_load(&all->page.words[index]) != all->last[index]) return 0;
    atomic_store(&all->ended[index], 0);
    uint32_t number = all->last[index] + 1 != 0 ? all->last[index] + 1 : 1;
    CUdeviceptr word = all->page.address + index * sizeof(uint32_t);
    CUresult result =
        orion_pinned_page_put(orion_driver.cuStreamWriteValue32_v2, stream_record, word, number, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_SUCCESS) {
        orion_pinned_page_failed(&all->page, result, &all->refused);
        return 0;
    }
    all->last[index] = number;
    return number;
}

uint32_t orion_event_word_write(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_event_words *all = orion_event_words(process);
    if (atomic_load_explicit(&all->crossed, memory_order_relaxed) == 0 || !needs_words(process, stream_record)) return 0;
    if (!is_ready(process, stream_record) || !orion_lock_try(&all->lock)) return 0;
    uint32_t number = write_next(all, stream_record, orion_stream_record_index(process, stream_record));
    orion_unlock(&all->lock);
    return number;
}

void orion_event_word_wait(struct orion_process *process, struct orion_stream_record *stream_record,
                           const struct orion_stream_record *source, uint32_t number)
{
    struct orion_event_words *all = orion_event_words(process);
    /* Writes of a context that ends never arrive, so nothing of another context waits for them. */
    if (source == stream_record || source->context != stream_record->context || !needs_words(process, stream_record)) return;
    if (atomic_load_explicit(&all->crossed, memory_order_relaxed) == 0) atomic_store(&all->crossed, 1);
    if (number == 0 || !is_ready(process, stream_record)) return;
    uint32_t index = orion_stream_record_index(process, source);
    /* Numbers wrap. A number that is far ahead of the word is old: a wait would last until the word has come round to it. */
    uint32_t ahead = number - atomic_load_explicit(&all->page.words[index], memory_order_relaxed);
    if (ahead == 0 || ahead > IN_FLIGHT_MOST) return;
    CUdeviceptr word = all->page.address + index * sizeof(uint32_t);
    CUresult result =
        orion_pinned_page_put(orion_driver.cuStreamWaitValue32_v2, stream_record, word, number, CU_STREAM_WAIT_VALUE_GEQ);
    if (result != CUDA_SUCCESS) orion_pinned_page_failed(&all->page, result, &all->refused);
}

void orion_event_word_end(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    atomic_store(&orion_event_words(process)->ended[orion_stream_record_index(process, stream_record)], 1);
}
