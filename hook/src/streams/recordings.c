#include "streams/recordings.h"

#include <stddef.h>

#include "system/mix.h"

#define NEIGHBOURHOOD 16u
#define GIVEN_UP 1u
#define COUNT_BITS 48u
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)
#define ELSEWHERE UINT64_MAX /* a word that no recording in a stream has */

static struct orion_recording_entry *find(struct orion_recordings *recordings, uint64_t event, bool claim)
{
    uint64_t home = orion_mix(event);
    struct orion_recording_entry *free_entry = NULL;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_recording_entry *entry = &recordings->entry[(home + i) & (ORION_RECORDINGS - 1)];
        uint64_t held = atomic_load_explicit(&entry->event, memory_order_acquire);
        if (held == event) return entry;
        if (held <= GIVEN_UP && free_entry == NULL) free_entry = entry;
        if (held == 0) break;
    }
    if (!claim || free_entry == NULL) return NULL;
    uint64_t held = atomic_load_explicit(&free_entry->event, memory_order_relaxed);
    /* Two threads that claim an entry for the same event at the same time may leave two entries. `find` then returns
     * the first one, and the other one proves nothing. Both end with the event. */
    if (held > GIVEN_UP || !atomic_compare_exchange_strong(&free_entry->event, &held, event)) return NULL;
    return free_entry;
}

/* 0: a wait on the event proves nothing. */
static uint64_t word_of(const struct orion_recording_entry *entry)
{
    uint64_t word = entry != NULL ? atomic_load_explicit(&entry->word, memory_order_seq_cst) : 0;
    return word != ELSEWHERE ? word : 0;
}

void orion_recordings_elsewhere(struct orion_recordings *recordings, CUevent event)
{
    if (event == NULL) return; /* the driver refuses it */
    struct orion_recording_entry *entry = find(recordings, (uint64_t)(uintptr_t)event, true);
    if (entry != NULL) atomic_store_explicit(&entry->word, ELSEWHERE, memory_order_seq_cst);
}

void orion_recordings_set(struct orion_recordings *recordings, CUevent event, const struct orion_recorded *recorded,
                          uint32_t number)
{
    struct orion_recording_entry *entry = find(recordings, (uint64_t)(uintptr_t)event, true);
    if (entry == NULL || atomic_load(&entry->word) == ELSEWHERE) return;
    uint64_t word = ((uint64_t)(recorded->stream_record + 1) << COUNT_BITS) | (recorded->returned & COUNT_MASK);
    atomic_store_explicit(&entry->behind, number != 0 ? (uint64_t)recorded->stream_record << 32 | number : 0, memory_order_relaxed);
    atomic_store_explicit(&entry->waits, recorded->waits, memory_order_relaxed);
    atomic_store_explicit(&entry->context_epoch, recorded->context_epoch, memory_order_relaxed);
    atomic_store_explicit(&entry->context, recorded->context, memory_order_release);
    atomic_store_explicit(&entry->word, word, memory_order_seq_cst);
    /* The event's context ended meanwhile, and the entry may be another event's. */
    if (atomic_load(&entry->event) != (uint64_t)(uintptr_t)event) atomic_compare_exchange_strong(&entry->word, &word, 0);
}

bool orion_recordings_get(struct orion_recordings *recordings, CUevent event, struct orion_recorded *recorded)
{
    struct orion_recording_entry *entry = find(recordings, (uint64_t)(uintptr_t)event, false);
    uint64_t word = word_of(entry);
    if (word == 0) return false;
    recorded->stream_record = (uint32_t)(word >> COUNT_BITS) - 1;
    recorded->returned = word & COUNT_MASK;
    recorded->waits = atomic_load_explicit(&entry->waits, memory_order_relaxed);
    return true;
}

bool orion_recordings_behind(struct orion_recordings *recordings, CUevent event, uint32_t *stream_record_index, uint32_t *number)
{
    struct orion_recording_entry *entry = find(recordings, (uint64_t)(uintptr_t)event, false);
    uint64_t word = word_of(entry);
    if (word == 0) return false;
    uint64_t behind = atomic_load_explicit(&entry->behind, memory_order_relaxed);
    *number = (uint32_t)behind;
    *stream_record_index = *number != 0 ? (uint32_t)(behind >> 32) : (uint32_t)(word >> COUNT_BITS) - 1;
    return true;
}

void orion_recordings_forget(struct orion_recordings *recordings, CUevent event)
{
    struct orion_recording_entry *entry = find(recordings, (uint64_t)(uintptr_t)event, false);
    if (word_of(entry) != 0) atomic_store_explicit(&entry->word, 0, memory_order_seq_cst);
}

void orion_recordings_clear(struct orion_recordings *recordings)
{
    for (uint32_t i = 0; i < ORION_RECORDINGS; i++) {
        uint64_t word = atomic_load_explicit(&recordings->entry[i].word, memory_order_relaxed);
        if (word != 0 && word != ELSEWHERE) atomic_compare_exchange_strong(&recordings->entry[i].word, &word, 0);
    }
}

static void give_up(struct orion_recording_entry *entry)
{
    atomic_store_explicit(&entry->context, NULL, memory_order_relaxed);
    atomic_store_explicit(&entry->word, 0, memory_order_seq_cst);
    atomic_store_explicit(&entry->event, GIVEN_UP, memory_order_release);
}

void orion_recordings_end_in(struct orion_recordings *recordings, CUcontext context, uint32_t epoch)
{
    for (uint32_t i = 0; context != NULL && i < ORION_RECORDINGS; i++) {
        struct orion_recording_entry *entry = &recordings->entry[i];
        if (atomic_load_explicit(&entry->context, memory_order_acquire) != context) continue;
        if ((int32_t)(atomic_load_explicit(&entry->context_epoch, memory_order_relaxed) - epoch) < 0) give_up(entry);
    }
}

void orion_recordings_end(struct orion_recordings *recordings, CUevent event)
{
    struct orion_recording_entry *entry;
    if ((uint64_t)(uintptr_t)event <= GIVEN_UP) return; /* no event */
    while ((entry = find(recordings, (uint64_t)(uintptr_t)event, false)) != NULL) give_up(entry);
}
