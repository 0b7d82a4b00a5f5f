/* The table of recorded events has room for the events that exist, however many have ended, each by a call or with its context. */
#include "simulated_process.h"

#include "streams/recordings.h"
#include "system/mix.h"

#define EVENT ((CUevent)0x7000)
#define CONTEXTS 100u
#define EVENTS 100u /* of each context; with those of the others more than the table has room for */

static CUfunction function;
static CUstream stream;

static bool a_wait_for_a_new_event_shows_that_hp_is_idle(void)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
    MUST(cuEventRecord(event, stream));
    MUST(cuEventSynchronize(event));
    bool is_idle = atomic_load(&gpu->busy->state) != ORION_BUSY;
    MUST(cuStreamSynchronize(stream));
    MUST(cuEventDestroy(event));
    return is_idle;
}

static void events_end_with_their_context(CUcontext primary)
{
    unsigned used = 0;
    for (unsigned i = 0; i < CONTEXTS; i++) {
        CUcontext context;
        CUstream other;
        MUST(cuCtxCreate(&context, NULL, 0, 0));
        MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        for (unsigned j = 0; j < EVENTS; j++) {
            CUevent event;
            MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
            MUST(cuEventRecord(event, other));
        }
        MUST(cuCtxDestroy(context));
    }
    MUST(cuCtxSetCurrent(primary));
    for (unsigned i = 0; i < ORION_RECORDINGS; i++) used += atomic_load(&orion_recordings(process)->entry[i].event) > 1;
    CHECK(used == 0);
    CHECK(a_wait_for_a_new_event_shows_that_hp_is_idle());
}

static void only_what_the_call_found_ends(void)
{
    struct orion_recordings *all = orion_recordings(process);
    struct orion_recorded recorded = {.returned = 1, .context = FAKE_CONTEXT, .context_epoch = 6}, seen;
    orion_recordings_set(all, EVENT, &recorded, 0);
    orion_recordings_end_in(all, (CUcontext)0x2000, 7);
    orion_recordings_end_in(all, NULL, 7);
    orion_recordings_end_in(all, FAKE_CONTEXT, 6); /* it began before: the event is of a new context with this handle */
    CHECK(orion_recordings_get(all, EVENT, &seen));
    orion_recordings_end_in(all, FAKE_CONTEXT, 7);
    CHECK(!orion_recordings_get(all, EVENT, &seen));
    orion_recordings_elsewhere(all, EVENT);
    orion_recordings_end_in(all, FAKE_CONTEXT, 8); /* the new event may be of any context */
    orion_recordings_set(all, EVENT, &recorded, 0);
    CHECK(!orion_recordings_get(all, EVENT, &seen));
    orion_recordings_end(all, EVENT);
}

/* Two threads that record a new event at once may both claim an entry. */
static void both_entries_of_an_event_end_with_it(void)
{
    struct orion_recordings *all = orion_recordings(process);
    struct orion_recorded recorded = {.returned = 1}, seen;
    uint64_t home = orion_mix((uint64_t)(uintptr_t)EVENT);
    for (unsigned i = 0; i < 2; i++) {
        struct orion_recording_entry *entry = &all->entry[(home + i) & (ORION_RECORDINGS - 1)];
        atomic_store(&entry->event, (uint64_t)(uintptr_t)EVENT);
        atomic_store(&entry->word, UINT64_C(1) << 48 | 1);
    }
    CHECK(orion_recordings_get(all, EVENT, &seen));
    orion_recordings_end(all, EVENT);
    CHECK(!orion_recordings_get(all, EVENT, &seen));
    orion_recordings_set(all, EVENT, &recorded, 0);
    orion_recordings_end(all, EVENT);
}

int main(void)
{
    CUcontext primary;
    function = begin_hp_process();
    MUST(cuCtxGetCurrent(&primary));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(a_wait_for_a_new_event_shows_that_hp_is_idle());
    both_entries_of_an_event_end_with_it();
    only_what_the_call_found_ends();
    events_end_with_their_context(primary);
    puts("recordings: ok");
    return 0;
}
