#include "be/meetings.h"

#include "be/collective.h"
#include "be/state.h"
#include "be/valve.h"
#include "be/work.h"
#include "generated/driver.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define MOST_NS ORION_SECOND                   /* a stream waits no longer for other ranks */
#define MOST_LOOK_NS (200 * ORION_MILLISECOND) /* the time between two looks counts as no more */
#define ENDED_MOST 3u                          /* after this many ended waits in a row in one stream, the rank waits no more */
#define IN_A_ROW 64u                           /* ended waits are in a row if no more arrivals are between them */
#define GOOD_PART 4u                           /* a stream that waits for more than this part of the time may wait for outsiders */
#define IN_VAIN_MOST 6u                        /* each try that shows nothing doubles the time to the next one, so many times */
#define FAR (1u << 20) /* a word that is so far ahead shows that its rank has not come since it was written */

static struct orion_meetings *meetings_of(const struct orion_process *process, const struct orion_gpu *gpu)
{
    return &orion_collectives(process)->meetings[gpu - process->gpus];
}

static struct orion_rank *rank_of(const struct orion_process *process, const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&orion_collectives(process)->ranks.mine[gpu - process->gpus], memory_order_acquire);
}

static struct orion_job_page *page_of(const struct orion_process *process)
{
    return atomic_load_explicit(&orion_collectives(process)->ranks.page, memory_order_acquire);
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

/* The stream's place among those of its GPU that launch collectives. ORION_MEETING_STREAMS: it got none. */
static uint32_t place_of(struct orion_meetings *meetings, struct orion_stream_record *stream_record)
{
    uint32_t *place = &orion_be_stream_record(stream_record)->meeting; /* + 1 */
    if (*place == 0) {
        uint32_t streams = atomic_load(&meetings->streams);
        while (streams < ORION_MEETING_STREAMS && !atomic_compare_exchange_weak(&meetings->streams, &streams, streams + 1)) {}
        *place = streams + 1;
    }
    return *place - 1;
}

void orion_meeting_number(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work)
{
    struct orion_meetings *meetings = meetings_of(process, stream_record->gpu);
    work->arrival = 0;
    if (orion_stream_record_is_shared(process, stream_record)) return;
    work->meeting = place_of(meetings, stream_record);
    if (work->meeting < ORION_MEETING_STREAMS) work->arrival = atomic_fetch_add(&meetings->arrivals[work->meeting], 1) + 1;
}

bool orion_meeting_waits(const struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work)
{
    return work->arrival != 0 && orion_gpu_hp_clients(gpu) > 0 &&
           atomic_load_explicit(&meetings_of(process, gpu)->apart, memory_order_relaxed) == 0 && orion_valve_is_watched(gpu);
}

/* Puts the waits into the stream: one for each other rank that has ever arrived in such a stream. */
static CUresult wait_for_others(struct orion_process *process, struct orion_stream_record *stream_record,
                                const struct orion_work *work, CUdeviceptr page_address)
{
    struct orion_job_page *page = page_of(process);
    const struct orion_rank *own = rank_of(process, stream_record->gpu);
    uint32_t outsiders = atomic_load(&meetings_of(process, stream_record->gpu)->outsiders[work->meeting]);
    CUresult result = CUDA_SUCCESS;
    for (struct orion_rank *rank = NULL; (rank = orion_ranks_next(&orion_collectives(process)->ranks, rank)) != NULL;) {
        _Atomic uint32_t *word = &rank->arrived[work->meeting];
        if (rank == own || atomic_load(word) == 0 || outsiders >> (rank - page->rank) & 1) continue;
        atomic_fetch_or(&meetings_of(process, stream_record->gpu)->met, UINT32_C(1) << (rank - page->rank));
        CUdeviceptr address = page_address + ((uintptr_t)word - (uintptr_t)page);
        result = orion_pinned_page_put(orion_driver.cuStreamWaitValue32_v2, stream_record, address, work->arrival,
                                       CU_STREAM_WAIT_VALUE_GEQ);
        if (result != CUDA_SUCCESS) break;
    }
    return result;
}

CUresult orion_meeting_arrive(struct orion_process *process, struct orion_stream_record *stream_record,
                              const struct orion_work *work, CUdeviceptr page_address)
{
    struct orion_rank *own = rank_of(process, stream_record->gpu);
    if (own == NULL || work->arrival == 0) return CUDA_SUCCESS;
    _Atomic uint32_t *arrived = &own->arrived[work->meeting];
    CUresult result = CUDA_SUCCESS;
    if (page_address != 0) {
        bool waits = orion_meeting_waits(process, stream_record->gpu, work);
        CUdeviceptr word = page_address + ((uintptr_t)arrived - (uintptr_t)page_of(process));
        /* First: a watcher that sees the arrival must see that it waits. */
        if (waits) atomic_store(&meetings_of(process, stream_record->gpu)->waits[work->meeting], work->arrival);
        result = orion_pinned_page_put(orion_driver.cuStreamWriteValue32_v2, stream_record, word, work->arrival,
                                       CU_STREAM_WRITE_VALUE_DEFAULT);
        if (result == CUDA_SUCCESS && waits) result = wait_for_others(process, stream_record, work, page_address);
    }
    if (result != CUDA_SUCCESS || page_address == 0) atomic_store(arrived, work->arrival);
    return result;
}

void orion_meetings_begin(const struct orion_process *process, const struct orion_gpu *gpu, struct orion_rank *rank)
{
    struct orion_meetings *meetings = meetings_of(process, gpu);
    for (uint32_t i = 0; i < ORION_MEETING_STREAMS; i++) atomic_store(&rank->arrived[i], atomic_load(&meetings->arrivals[i]));
}

/* -- Ends of waits --------------------------------------------------------------------------------------------------- */

/* The ranks for which an arrival may wait. */
static uint32_t awaited(const struct orion_meetings *meetings, uint32_t stream, uint32_t arrival)
{
    uint32_t met = atomic_load(&meetings->met), outsiders = atomic_load(&meetings->outsiders[stream]);
    return orion_ranks_is_behind(atomic_load(&meetings->settled[stream]), arrival) ? met & ~outsiders : met;
}

static _Atomic uint32_t *word_of(const struct orion_process *process, uint32_t ranks, uint32_t stream)
{
    return &page_of(process)->rank[__builtin_ctz(ranks) % ORION_RANKS_MAX].arrived[stream];
}

/* The arrival in that stream which waits for another rank; 0: none. */
static uint32_t waiting(const struct orion_process *process, const struct orion_gpu *gpu, uint32_t stream)
{
    const struct orion_meetings *meetings = meetings_of(process, gpu);
    const struct orion_rank *own = rank_of(process, gpu);
    uint32_t arrival = atomic_load(&own->arrived[stream]), last = atomic_load(&meetings->waits[stream]);
    /* Past the last wait; or another rank, further ahead, has written this rank's word, and the stream still waits. */
    if (orion_ranks_is_behind(last, arrival)) arrival = last;
    for (uint32_t ranks = awaited(meetings, stream, arrival); ranks != 0; ranks &= ranks - 1)
        if (orion_ranks_is_behind(atomic_load(word_of(process, ranks, stream)), arrival)) return arrival;
    return 0;
}

static uint32_t streams_of(const struct orion_process *process, const struct orion_gpu *gpu)
{
    const struct orion_meetings *meetings = meetings_of(process, gpu);
    if (atomic_load_explicit(&meetings->met, memory_order_relaxed) == 0 || rank_of(process, gpu) == NULL) return 0;
    uint32_t streams = atomic_load_explicit(&meetings->streams, memory_order_relaxed);
    return streams < ORION_MEETING_STREAMS ? streams : ORION_MEETING_STREAMS;
}

bool orion_meetings_wait(const struct orion_process *process)
{
    ORION_EACH_GPU(gpu, process)
        for (uint32_t stream = 0; stream < streams_of(process, gpu); stream++)
            if (waiting(process, gpu, stream) != 0 || atomic_load(&meetings_of(process, gpu)->tried[stream]) != 0) return true;
    return false;
}

/* Writes the words of the ranks that the stream has waited for; `left`: only of those that have left. A GPU may write a larger
 * number meanwhile. */
static void arrive_for_others(const struct orion_process *process, uint32_t met, uint32_t stream, uint32_t arrival, bool left)
{
    for (; met != 0; met &= met - 1) {
        struct orion_rank *rank = &page_of(process)->rank[__builtin_ctz(met) % ORION_RANKS_MAX];
        uint32_t before = atomic_load(&rank->arrived[stream]);
        if ((left && atomic_load(&rank->tied) == 1) || !orion_ranks_is_behind(before, arrival)) continue;
        atomic_compare_exchange_strong(&rank->arrived[stream], &before, arrival);
    }
}

static void ended_in_vain(struct orion_meetings *meetings, uint32_t stream, uint32_t arrival)
{
    uint32_t *ended = &meetings->seen[stream].ended;
    *ended = arrival - meetings->seen[stream].ended_at <= IN_A_ROW ? *ended + 1 : 1;
    meetings->seen[stream].ended_at = arrival;
    if (*ended >= ENDED_MOST) atomic_store(&meetings->apart, 1);
}

/* -- Outsiders ------------------------------------------------------------------------------------------------------- */

/* Lets an arrival go without the ranks that are late. */
static void try_without(const struct orion_process *process, struct orion_meetings *meetings, uint32_t stream, uint32_t arrival)
{
    uint32_t late = 0;
    for (uint32_t ranks = awaited(meetings, stream, arrival); ranks != 0; ranks &= ranks - 1) {
        _Atomic uint32_t *word = word_of(process, ranks, stream);
        uint32_t before = atomic_load(word);
        if (orion_ranks_is_behind(before, arrival) && atomic_compare_exchange_strong(word, &before, arrival + FAR))
            late |= ranks & -ranks;
    }
    meetings->seen[stream].late = late;
    if (late != 0) atomic_store(&meetings->tried[stream], arrival);
}

/* The stream's wait has taken so much longer. */
static void count_wait(const struct orion_process *process, struct orion_meetings *meetings, uint32_t stream, uint32_t arrival,
                       uint64_t since)
{
    uint64_t *all = &meetings->seen[stream].all_waits_ns, now = orion_now();
    uint64_t enough = MOST_NS << meetings->seen[stream].in_vain;
    if (*all == 0) meetings->seen[stream].since_ns = now;
    *all += since;
    if (*all <= enough || atomic_load(&meetings->tried[stream]) != 0) return;
    if (now - meetings->seen[stream].since_ns < enough * GOOD_PART) try_without(process, meetings, stream, arrival);
    *all = 0;
}

/* A rank is an outsider if a collective has ended without its word having changed: a peer writes it before it begins. Launches that
 * do not see the new outsider have been counted before. */
static void judge(const struct orion_process *process, const struct orion_gpu *gpu, uint32_t stream)
{
    struct orion_meetings *meetings = meetings_of(process, gpu);
    uint32_t tried = atomic_load(&meetings->tried[stream]), own = atomic_load(&rank_of(process, gpu)->arrived[stream]);
    uint32_t *in_vain = &meetings->seen[stream].in_vain, outsiders = 0;
    if (tried == 0 || !orion_ranks_is_behind(tried, own)) return;
    if (orion_ranks_is_behind(atomic_load(&meetings->arrivals[stream]), own)) return; /* another rank has written this */
    for (uint32_t late = meetings->seen[stream].late; late != 0; late &= late - 1)
        if (atomic_load(word_of(process, late, stream)) == tried + FAR) outsiders |= late & -late;
    if (outsiders == 0 && *in_vain < IN_VAIN_MOST) ++*in_vain;
    atomic_fetch_or(&meetings->outsiders[stream], outsiders);
    if (outsiders != 0) atomic_store(&meetings->settled[stream], atomic_load(&meetings->arrivals[stream]));
    atomic_store(&meetings->tried[stream], 0);
}

/* Ends waits for outsiders that are in the stream already. */
static void pass_outsiders(const struct orion_process *process, const struct orion_gpu *gpu, uint32_t stream)
{
    const struct orion_meetings *meetings = meetings_of(process, gpu);
    uint32_t outsiders = atomic_load(&meetings->outsiders[stream]), settled = atomic_load(&meetings->settled[stream]);
    if (orion_ranks_is_behind(settled, atomic_load(&rank_of(process, gpu)->arrived[stream]))) return;
    arrive_for_others(process, outsiders, stream, settled, false);
}

static void look(const struct orion_process *process, const struct orion_gpu *gpu, uint32_t stream, bool held, bool at_once)
{
    struct orion_meetings *meetings = meetings_of(process, gpu);
    uint32_t met = atomic_load(&meetings->met);
    arrive_for_others(process, met, stream, atomic_load(&meetings->waits[stream]), true);
    judge(process, gpu, stream);
    pass_outsiders(process, gpu, stream);
    uint32_t arrival = waiting(process, gpu, stream);
    uint64_t now = orion_now(), *waited = &meetings->seen[stream].waited_ns;
    if (arrival == 0) return;
    if (meetings->seen[stream].arrival != arrival) {
        meetings->seen[stream].arrival = arrival;
        *waited = 0;
    } else if (!held && *waited <= MOST_NS) {
        uint64_t since = now - meetings->seen[stream].looked_ns;
        *waited += since < MOST_LOOK_NS ? since : MOST_LOOK_NS;
        count_wait(process, meetings, stream, arrival, since < MOST_LOOK_NS ? since : MOST_LOOK_NS);
        if (*waited > MOST_NS) ended_in_vain(meetings, stream, arrival);
    }
    meetings->seen[stream].looked_ns = now;
    bool ends = at_once || *waited > MOST_NS || atomic_load(&meetings->apart) != 0; /* more waits may be in the stream */
    if (ends) arrive_for_others(process, met, stream, arrival, false);
}

void orion_meetings_end(struct orion_process *process, bool held, bool at_once)
{
    ORION_EACH_GPU(gpu, process) {
        struct orion_meetings *meetings = meetings_of(process, gpu);
        if (streams_of(process, gpu) == 0 || atomic_exchange_explicit(&meetings->looking, 1, memory_order_acquire)) continue;
        for (uint32_t stream = 0; stream < streams_of(process, gpu); stream++) look(process, gpu, stream, held, at_once);
        atomic_store_explicit(&meetings->looking, 0, memory_order_release);
    }
}
