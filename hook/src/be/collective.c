#include "be/collective.h"

#include "be/gate.h"
#include "be/ranks.h"
#include "be/work.h"
#include "generated/driver.h"
#include "process/notifier.h"
#include "process/process.h"
#include "process/waits.h"
#include "streams/stream_records.h"
#include "system/lock.h"
#include "system/system.h"

/* While every hp is idle, the word is this far above the last launched number. This is half of the largest difference
 * for which the comparison of numbers that wrap around is right. */
#define FAR_AHEAD (1u << 30)

/* -- Words and numbers ----------------------------------------------------------------------------------------------- */

static bool is_behind(uint32_t one, uint32_t other) { return orion_ranks_is_behind(one, other); }

static _Atomic uint32_t *allowed(struct orion_collectives *all)
{
    return &atomic_load_explicit(&all->ranks.page, memory_order_acquire)->allowed;
}
static uint32_t index_of(const struct orion_process *process, const struct orion_gpu *gpu)
{
    return (uint32_t)(gpu - process->gpus);
}
static struct orion_rank *rank_of(const struct orion_process *process, const struct orion_gpu *gpu)
{
    return atomic_load_explicit(&orion_collectives(process)->ranks.mine[index_of(process, gpu)], memory_order_acquire);
}

static bool has_ties(const struct orion_process *process)
{
    return atomic_load_explicit(&orion_collectives(process)->ties, memory_order_acquire) != 0;
}

/* Whether several ranks are tied, and this process has one of them. */
static bool tied(const struct orion_process *process)
{
    return has_ties(process) && orion_ranks_tied(&orion_collectives(process)->ranks);
}

static bool is_tied(const struct orion_process *process, const struct orion_gpu *gpu)
{
    const struct orion_rank *rank = rank_of(process, gpu);
    return rank != NULL && atomic_load_explicit(&rank->tied, memory_order_relaxed) == 1 && tied(process);
}

/* On a GPU without hp the hook stops no collective: a collective that spins there costs only its own job. */
static bool has_hp(const struct orion_gpu *gpu) { return orion_gpu_hp_clients(gpu) > 0; }

static struct orion_gpu *closed_gpu(struct orion_process *process)
{
    const struct orion_ranks *ranks = &orion_collectives(process)->ranks;
    if (!tied(process)) return NULL;
    for (struct orion_rank *rank = NULL; (rank = orion_ranks_next(ranks, rank)) != NULL;) {
        struct orion_gpu *gpu = orion_ranks_gpu(process, ranks, rank);
        if (gpu != NULL && orion_gate_closed(gpu)) return gpu;
    }
    return NULL;
}

static bool is_closed(struct orion_process *process)
{
    return closed_gpu(process) != NULL || orion_ranks_peer_is_closed(process, &orion_collectives(process)->ranks);
}

/* Does not close while a context of any process of the job ends, because the context's streams must finish. */
static bool must_stay_open(struct orion_process *process)
{
    return atomic_load(&process->untouchable) > 0 || orion_ranks_peer_is_ending(process, &orion_collectives(process)->ranks);
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

/* Called at the GPU's first collective, and when its job has got a page. The words are set before the rank is tied. */
static bool tie(struct orion_process *process, struct orion_gpu *gpu)
{
    struct orion_collectives *all = orion_collectives(process);
    if (!orion_lock_try(&all->lock)) return false;
    struct orion_rank *rank = orion_pinned_page_make(&all->own)
                                  ? orion_ranks_place(process, &all->ranks, gpu, (struct orion_job_page *)(uintptr_t)all->own.words)
                                  : NULL;
    if (rank != NULL) {
        _Atomic uint32_t *words = (_Atomic uint32_t *)(uintptr_t)atomic_load(&all->ranks.page);
        if (all->page.words != words) {
            atomic_store(&all->page.context_epoch, 0);
            all->page.address = 0;
            all->page.words = words;
        }
        uint32_t index = index_of(process, gpu);
        uint32_t number = orion_ranks_number(&all->ranks, rank, atomic_load(&all->launched[index]));
        atomic_store(&all->launched[index], number);
        atomic_store(&rank->launched, number);
        atomic_store(&rank->begun, number);
        orion_meetings_begin(process, gpu, rank);
        if (orion_ranks_next(&all->ranks, NULL) == NULL) atomic_store(allowed(all), number + FAR_AHEAD);
        orion_ranks_publish(process, &all->ranks, false);
        atomic_store(&rank->tied, 1);
        atomic_store(&all->ties, 1);
    }
    orion_unlock(&all->lock);
    return rank != NULL;
}

uint32_t orion_collective_begin(struct orion_process *process, struct orion_gpu *gpu)
{
    struct orion_collectives *all = orion_collectives(process);
    if (gpu->client != 0) return 0; /* clients are threads that share the GPU */
    const struct orion_rank *now = rank_of(process, gpu);
    bool right = now != NULL && atomic_load(&now->tied) == 1 && !orion_ranks_moves(process, &all->ranks, gpu);
    bool placed = right || tie(process, gpu);
    uint32_t number = atomic_fetch_add(&all->launched[index_of(process, gpu)], 1) + 1;
    struct orion_rank *rank = rank_of(process, gpu);
    if (!placed || rank == NULL) return 0;
    atomic_store(&rank->launched, number);
    if (number != 0 && is_tied(process, gpu)) return number;
    atomic_store(&rank->begun, number);
    return 0;
}

bool orion_collective_peer_launched(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number)
{
    const struct orion_ranks *ranks = &orion_collectives(process)->ranks;
    if (!tied(process)) return false;
    for (struct orion_rank *rank = NULL; (rank = orion_ranks_next(ranks, rank)) != NULL;)
        if (rank != rank_of(process, gpu) && !is_behind(atomic_load(&rank->launched), number)) return true;
    return false;
}

/* -- Waits in the stream --------------------------------------------------------------------------------------------- */

bool orion_collective_ready(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    struct orion_collectives *all = orion_collectives(process);
    return orion_pinned_page_ready(process, stream_record, &all->page, &all->lock, &all->refused);
}

/* The address of a word of the page. */
static CUdeviceptr on_gpu(const struct orion_collectives *all, const _Atomic uint32_t *word)
{
    return all->page.address + ((uintptr_t)word - (uintptr_t)all->page.words);
}

/* The GPU writes the number once the collective begins. */
static CUresult write_begun(struct orion_collectives *all, struct orion_stream_record *stream_record, const struct orion_rank *rank,
                            uint32_t number)
{
    return orion_pinned_page_put(orion_driver.cuStreamWriteValue32_v2, stream_record, on_gpu(all, &rank->begun), number,
                                 CU_STREAM_WRITE_VALUE_DEFAULT);
}

bool orion_collective_pass(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work)
{
    struct orion_collectives *all = orion_collectives(process);
    const struct orion_rank *rank = rank_of(process, stream_record->gpu);
    if (rank == NULL) return false;
    orion_collective_update(process);
    CUresult result = orion_meeting_arrive(process, stream_record, work, all->page.address);
    if (result == CUDA_SUCCESS)
        result = orion_pinned_page_put(orion_driver.cuStreamWaitValue32_v2, stream_record, on_gpu(all, allowed(all)),
                                       work->collective, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS) result = write_begun(all, stream_record, rank, work->collective);
    if (result != CUDA_SUCCESS) orion_pinned_page_failed(&all->page, result, &all->refused);
    return result == CUDA_SUCCESS;
}

/* -- Waits on the CPU ------------------------------------------------------------------------------------------------ */

bool orion_collective_held(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number)
{
    bool closed = has_hp(gpu) ? is_closed(process) : orion_gate_closed(gpu);
    return closed && is_behind(orion_ranks_begun(process, &orion_collectives(process)->ranks), number);
}

void orion_collective_wait(struct orion_process *process, struct orion_gpu *gpu, uint32_t number)
{
    if (!orion_collective_held(process, gpu, number)) return;
    uint64_t began = orion_waits_begin(gpu);
    orion_thread_revive(gpu);
    while (orion_collective_held(process, gpu, number)) {
        struct orion_gpu *closed = has_hp(gpu) ? closed_gpu(process) : gpu;
        orion_stops_sleep(process, closed != NULL ? closed : gpu, ORION_GATE_POLL_NS);
    }
    orion_waits_end(gpu, began);
}

/* A watcher that is late still ends waits for other ranks, so they are put into the stream here, too. */
void orion_collective_note_unarmed(struct orion_process *process, struct orion_stream_record *stream_record,
                                   const struct orion_work *work)
{
    struct orion_collectives *all = orion_collectives(process);
    struct orion_rank *rank = rank_of(process, stream_record->gpu);
    if (rank == NULL) return;
    bool ready = orion_collective_ready(process, stream_record);
    bool waits = ready && orion_meeting_waits(process, stream_record->gpu, work);
    CUresult result = orion_meeting_arrive(process, stream_record, work, ready ? all->page.address : 0);
    if (result != CUDA_SUCCESS) orion_pinned_page_failed(&all->page, result, &all->refused);
    if (!waits || write_begun(all, stream_record, rank, work->collective) != CUDA_SUCCESS)
        atomic_store(&rank->begun, work->collective);
}

/* -- The word that allows collectives -------------------------------------------------------------------------------- */

/* The last number that a rank has launched. Counts this process's GPUs even while the agent, which has taken this client
 * for one that has left, has cleared the words of its rank. */
static uint32_t last_launched(struct orion_process *process)
{
    const struct orion_collectives *all = orion_collectives(process);
    uint32_t last = orion_ranks_launched(&all->ranks);
    bool none = orion_ranks_next(&all->ranks, NULL) == NULL;
    for (uint32_t i = 0; i < orion_process_gpus(process); i++) {
        uint32_t number = atomic_load(&all->launched[i]);
        if (atomic_load(&all->ranks.mine[i]) == NULL || (!none && !is_behind(last, number))) continue;
        last = number;
        none = false;
    }
    return last;
}

void orion_collective_open(struct orion_process *process)
{
    if (!has_ties(process)) return;
    orion_ranks_publish(process, &orion_collectives(process)->ranks, true);
    atomic_store(allowed(orion_collectives(process)), last_launched(process) + FAR_AHEAD);
    orion_meetings_end(process, false, true);
}

bool orion_collective_update(struct orion_process *process)
{
    if (__builtin_expect(!has_ties(process), 1)) return false;
    orion_ranks_publish(process, &orion_collectives(process)->ranks, false);
    _Atomic uint32_t *word = allowed(orion_collectives(process));
    uint32_t seen = atomic_load(word), launched = last_launched(process);
    bool closed = tied(process) && is_closed(process);
    if (orion_meetings_wait(process)) orion_meetings_end(process, closed, must_stay_open(process));
    /* A rank whose last peer has left is no longer tied, but its streams may wait for the word. */
    if (!closed) {
        /* Opens the word, unless another thread has found hp busy since this check began. */
        if (is_behind(seen, launched + FAR_AHEAD / 2)) atomic_compare_exchange_strong(word, &seen, launched + FAR_AHEAD);
        return false;
    }
    uint32_t begun = orion_ranks_begun(process, &orion_collectives(process)->ranks);
    if (seen == begun || must_stay_open(process)) return false;
    atomic_store(word, begun);
    if (must_stay_open(process)) orion_collective_open(process);
    return true;
}

struct orion_gpu *orion_collective_blocked_by(struct orion_process *process, struct orion_gpu *gpu)
{
    const struct orion_collectives *all = orion_collectives(process);
    if (__builtin_expect(!has_ties(process), 1)) return NULL;
    if (!is_tied(process, gpu) || !has_hp(gpu)) return NULL;
    const struct orion_rank *rank = rank_of(process, gpu);
    if (!is_behind(atomic_load(&rank->begun), atomic_load(&rank->launched))) return NULL;
    struct orion_gpu *closed = closed_gpu(process);
    return closed != NULL ? closed : orion_ranks_peer_is_closed(process, &all->ranks) ? gpu : NULL;
}
