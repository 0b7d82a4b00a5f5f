#include "be/ranks.h"

#include <string.h>

#include "be/gate.h"
#include "process/process.h"
#include "system/system.h"

#define IN_STEP 8u /* if the begun numbers of two ranks differ by no more than this, the ranks are in step */
#define FRESH 64u  /* if all other ranks have begun numbers that far ahead, a rank's first collective gets their number */

static uint32_t milliseconds(void) { return (uint32_t)(orion_now() / ORION_MILLISECOND); }

static struct orion_job_page *page_of(const struct orion_ranks *ranks)
{
    return atomic_load_explicit(&ranks->page, memory_order_acquire);
}

static struct orion_rank *mine(const struct orion_ranks *ranks, uint32_t index)
{
    return atomic_load_explicit(&ranks->mine[index], memory_order_acquire);
}

/* -- The ranks of the page ------------------------------------------------------------------------------------------- */

struct orion_rank *orion_ranks_next(const struct orion_ranks *ranks, const struct orion_rank *last)
{
    struct orion_job_page *page = page_of(ranks);
    if (page == NULL) return NULL;
    uint32_t count = atomic_load_explicit(&page->ranks, memory_order_relaxed);
    uint32_t i = last == NULL ? 0 : (uint32_t)(last - page->rank) + 1;
    for (; i < count && i < ORION_RANKS_MAX; i++)
        if (atomic_load_explicit(&page->rank[i].tied, memory_order_acquire) == 1) return &page->rank[i];
    return NULL;
}

bool orion_ranks_tied(const struct orion_ranks *ranks)
{
    const struct orion_rank *first = orion_ranks_next(ranks, NULL);
    return first != NULL && orion_ranks_next(ranks, first) != NULL;
}

struct orion_gpu *orion_ranks_gpu(struct orion_process *process, const struct orion_ranks *ranks, const struct orion_rank *rank)
{
    for (uint32_t i = 0; i < orion_process_gpus(process); i++)
        if (mine(ranks, i) == rank) return &process->gpus[i];
    return NULL;
}

/* -- The numbers of their collectives -------------------------------------------------------------------------------- */

uint32_t orion_ranks_launched(const struct orion_ranks *ranks)
{
    uint32_t last = 0;
    bool first = true;
    for (struct orion_rank *rank = NULL; (rank = orion_ranks_next(ranks, rank)) != NULL; first = false) {
        uint32_t number = atomic_load(&rank->launched);
        if (first || orion_ranks_is_behind(last, number)) last = number;
    }
    return last;
}

static bool has_hp(struct orion_process *process, const struct orion_ranks *ranks, const struct orion_rank *rank)
{
    const struct orion_gpu *gpu = orion_ranks_gpu(process, ranks, rank);
    if (gpu == NULL) return atomic_load_explicit(&rank->has_hp, memory_order_relaxed) != 0;
    return orion_gpu_hp_clients(gpu) > 0;
}

static bool some_has_hp(struct orion_process *process, const struct orion_ranks *ranks)
{
    for (struct orion_rank *rank = NULL; (rank = orion_ranks_next(ranks, rank)) != NULL;)
        if (has_hp(process, ranks, rank)) return true;
    return false;
}

uint32_t orion_ranks_begun(struct orion_process *process, const struct orion_ranks *ranks)
{
    uint32_t least = 0, most = 0;
    bool first = true, all_count = !some_has_hp(process, ranks);
    for (struct orion_rank *rank = NULL; (rank = orion_ranks_next(ranks, rank)) != NULL;) {
        if (!all_count && !has_hp(process, ranks, rank)) continue;
        uint32_t number = atomic_load(&rank->begun);
        if (first || orion_ranks_is_behind(number, least)) least = number;
        if (first || orion_ranks_is_behind(most, number)) most = number;
        first = false;
    }
    return most - least <= IN_STEP ? most : least;
}

uint32_t orion_ranks_number(const struct orion_ranks *ranks, const struct orion_rank *rank, uint32_t own)
{
    uint32_t least = 0;
    bool alone = true;
    for (struct orion_rank *other = NULL; (other = orion_ranks_next(ranks, other)) != NULL;) {
        if (other == rank) continue;
        uint32_t number = atomic_load(&other->begun);
        if (alone || orion_ranks_is_behind(number, least)) least = number;
        alone = false;
    }
    return !alone && orion_ranks_is_behind(own + FRESH, least) ? least - 1 : own;
}

/* -- This process's place -------------------------------------------------------------------------------------------- */

static bool same_job(const struct orion_job_page *one, const struct orion_job_page *other)
{
    return memcmp(one->header.gpu, other->header.gpu, sizeof one->header.gpu) == 0;
}

/* The place that the GPU should have: in the job's page, in the page of this process, or NULL. */
static struct orion_rank *right_place(const struct orion_process *process, const struct orion_ranks *ranks,
                                      const struct orion_gpu *gpu)
{
    struct orion_job_page *page = page_of(ranks), *job = atomic_load(&gpu->job);
    if (page == NULL) return NULL;
    if (!atomic_load(&ranks->shared)) return &page->rank[gpu - process->gpus];
    return job != NULL && same_job(page, job) ? &page->rank[atomic_load(&gpu->rank) % ORION_RANKS_MAX] : NULL;
}

/* A process whose own GPUs are tied stays in its own page, because waits in its streams refer to that page. */
static bool can_share(const struct orion_ranks *ranks, const struct orion_gpu *gpu)
{
    return atomic_load(&gpu->job) != NULL && !atomic_load(&ranks->shared) && !orion_ranks_tied(ranks);
}

bool orion_ranks_moves(const struct orion_process *process, const struct orion_ranks *ranks, const struct orion_gpu *gpu)
{
    struct orion_rank *place = mine(ranks, (uint32_t)(gpu - process->gpus));
    return can_share(ranks, gpu) || place != right_place(process, ranks, gpu);
}

struct orion_rank *orion_ranks_place(struct orion_process *process, struct orion_ranks *ranks, struct orion_gpu *gpu,
                                     struct orion_job_page *own)
{
    if (can_share(ranks, gpu)) {
        for (uint32_t i = 0; i < ORION_GPUS; i++) atomic_store(&ranks->mine[i], NULL);
        atomic_store(&ranks->shared, 1);
        atomic_store(&ranks->page, atomic_load(&gpu->job));
    } else if (page_of(ranks) == NULL) {
        atomic_store(&own->ranks, ORION_GPUS);
        atomic_store(&ranks->page, own);
    }
    struct orion_rank *place = right_place(process, ranks, gpu);
    atomic_store(&ranks->mine[gpu - process->gpus], place);
    return place;
}

/* -- What ranks tell one another ------------------------------------------------------------------------------------- */

static bool holds(uint32_t until_ms, uint32_t now_ms) { return until_ms != 0 && until_ms - now_ms - 1 < ORION_RANK_LEASE_MS; }

/* Renews a lease when half of it is over, so that the peers' copies of the cache line rarely become invalid. */
static void set_lease(_Atomic uint32_t *until_ms, bool wanted, uint32_t now_ms)
{
    uint32_t before = atomic_load_explicit(until_ms, memory_order_relaxed);
    if (!wanted) {
        if (before != 0) atomic_store(until_ms, 0);
    } else if (!holds(before, now_ms + ORION_RANK_LEASE_MS / 2)) {
        uint32_t until = now_ms + ORION_RANK_LEASE_MS;
        atomic_store(until_ms, until != 0 ? until : 1);
    }
}

void orion_ranks_publish(struct orion_process *process, const struct orion_ranks *ranks, bool ends)
{
    if (__builtin_expect(!atomic_load_explicit(&ranks->shared, memory_order_relaxed), 1)) return;
    uint32_t now = milliseconds();
    bool untouchable = atomic_load(&process->untouchable) > 0;
    for (uint32_t i = 0; i < orion_process_gpus(process); i++) {
        struct orion_rank *rank = mine(ranks, i);
        if (rank == NULL) continue;
        const struct orion_gpu *gpu = &process->gpus[i];
        uint32_t has_hp = orion_gpu_hp_clients(gpu) > 0;
        if (atomic_load_explicit(&rank->has_hp, memory_order_relaxed) != has_hp) atomic_store(&rank->has_hp, has_hp);
        set_lease(&rank->closed_until_ms, orion_gate_closed(gpu), now);
        /* Captures make the process untouchable, too, but only a context's end begins this lease. */
        bool ending = ends || atomic_load_explicit(&rank->ending_until_ms, memory_order_relaxed) != 0;
        set_lease(&rank->ending_until_ms, untouchable && ending, now);
    }
}

static bool some_peer_says(struct orion_process *process, const struct orion_ranks *ranks, bool ending)
{
    if (__builtin_expect(!atomic_load_explicit(&ranks->shared, memory_order_relaxed), 1)) return false;
    uint32_t now = milliseconds();
    for (struct orion_rank *rank = NULL; (rank = orion_ranks_next(ranks, rank)) != NULL;)
        if (holds(atomic_load(ending ? &rank->ending_until_ms : &rank->closed_until_ms), now) &&
            orion_ranks_gpu(process, ranks, rank) == NULL)
            return true;
    return false;
}

bool orion_ranks_peer_is_closed(struct orion_process *process, const struct orion_ranks *ranks)
{
    return some_peer_says(process, ranks, false);
}

bool orion_ranks_peer_is_ending(struct orion_process *process, const struct orion_ranks *ranks)
{
    return some_peer_says(process, ranks, true);
}
