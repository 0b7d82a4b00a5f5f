#include "memory/pager.h"

#include <sys/prctl.h>

#include "generated/driver.h"
#include "memory/account.h"
#include "process/gpu.h"
#include "process/plan.h"
#include "streams/capture.h"
#include "system/spawn.h"
#include "system/system.h"

#define POLL_NS (250 * ORION_MILLISECOND)
#define LOOK_NS (200 * ORION_MICROSECOND) /* how often it looks whether a step has ended */
#define STEP_BYTES (UINT64_C(1) << 30)
#define PIECES 64u
#define ENTRIES 1024u /* so many of a table are looked at under one lock */
#define EARLY_NS ORION_MILLISECOND
#define SLOW_BYTES_PER_NS 12u /* a link of 12 GB/s */
#define TOOK_FADE 16u
#define MOSTLY_THERE 4u

/* -- What is to come ------------------------------------------------------------------------------------------------- */

struct piece {
    CUdeviceptr at;
    size_t bytes;
};
struct step {
    uint32_t entry; /* where the next step begins: an entry of the tables, and what of it has been taken */
    uint64_t taken;
    uint32_t count;
    uint64_t bytes;
    struct piece piece[PIECES];
};

static void take_from(struct step *step, const struct orion_allocation *entry)
{
    uint64_t left = entry->bytes > step->taken ? entry->bytes - step->taken : 0;
    uint64_t part = left < STEP_BYTES - step->bytes ? left : STEP_BYTES - step->bytes;
    if (part != 0) step->piece[step->count++] = (struct piece){entry->key + step->taken, (size_t)part};
    step->bytes += part;
    step->taken += part;
    if (part < left) return;
    step->entry++;
    step->taken = 0;
}

static uint32_t entries_of(struct orion_memory *memory)
{
    orion_account_lock(memory);
    uint32_t entries = memory->tables * ORION_ALLOCATIONS;
    orion_account_unlock(memory);
    return entries;
}

static uint64_t movable_of(struct orion_memory *memory, CUdevice device)
{
    orion_account_lock(memory);
    uint64_t bytes = memory->movable[device];
    orion_account_unlock(memory);
    return bytes;
}

/* Finds the memory of the next step. False: there is no more. Memory that the program frees meanwhile does no harm: the driver
 * refuses to move it. */
static bool next_step(struct orion_memory *memory, CUdevice device, struct step *step)
{
    step->count = 0;
    step->bytes = 0;
    uint32_t end = entries_of(memory);
    while (step->entry < end && step->bytes < STEP_BYTES && step->count < PIECES) {
        uint32_t until = step->entry + ENTRIES;
        orion_account_lock(memory);
        while (step->entry < end && step->entry < until && step->bytes < STEP_BYTES && step->count < PIECES) {
            const struct orion_allocation *entry =
                &memory->allocation[step->entry / ORION_ALLOCATIONS][step->entry % ORION_ALLOCATIONS];
            bool moves = entry->key != 0 && entry->kind == ORION_MEMORY_UNIFIED && (CUdevice)entry->device == device;
            if (moves) take_from(step, entry);
            else step->entry++, step->taken = 0;
        }
        orion_account_unlock(memory);
    }
    return step->count != 0;
}

/* -- Moving ---------------------------------------------------------------------------------------------------------- */

static uint32_t epoch_of(const struct orion_process *process) { return atomic_load(&process->context_epoch) + 1; }

/* Whether the noted context surely exists; called between orion_touch and orion_touched. */
static bool is_valid(const struct orion_process *process, const struct orion_pager *pager)
{
    return atomic_load(&pager->epoch) == epoch_of(process);
}

static bool make_stream(struct orion_pager *pager)
{
    if (pager->stream != NULL && pager->stream_epoch == atomic_load(&pager->epoch)) return true;
    pager->stream = NULL;
    if (orion_driver.cuStreamCreate(&pager->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return false;
    pager->stream_epoch = atomic_load(&pager->epoch);
    return true;
}

static bool begin_step(struct orion_process *process, struct orion_pager *pager, CUdevice device, const struct step *step)
{
    const CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUcontext popped;
    if (!orion_touch(process)) return false;
    bool begun = is_valid(process, pager) && orion_driver.cuCtxPushCurrent_v2(atomic_load(&pager->context)) == CUDA_SUCCESS;
    if (begun) {
        begun = make_stream(pager);
        for (uint32_t i = 0; i < step->count && begun; i++)
            orion_driver.cuMemPrefetchAsync_v2(step->piece[i].at, step->piece[i].bytes, there, 0, pager->stream);
        orion_driver.cuCtxPopCurrent_v2(&popped);
    }
    orion_touched(process);
    return begun;
}

/* Waits until the step has ended. */
static bool await_step(struct orion_process *process, const struct orion_pager *pager)
{
    for (;;) {
        CUresult result = CUDA_ERROR_NOT_READY;
        if (orion_touch(process)) {
            result = is_valid(process, pager) ? orion_driver.cuStreamQuery(pager->stream) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
            orion_touched(process);
        }
        if (result != CUDA_ERROR_NOT_READY) return result == CUDA_SUCCESS;
        orion_sleep_precisely(LOOK_NS);
    }
}

/* -- When ------------------------------------------------------------------------------------------------------------ */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* When the pages for a turn are to be fetched, or when to look again; *turn: that turn. */
static uint64_t due_at(const struct orion_gpu *gpu, const struct orion_pager *pager, uint64_t now, struct orion_turn_time *turn)
{
    const struct orion_grant *grant = orion_gpu_grant(gpu);
    if (now >= grant->plan_until_ns) return ORION_NO_TURN;
    *turn = orion_plan_turn(grant, now);
    if (!orion_pages_move(grant, turn) || turn->begin == atomic_load(&gpu->pages.turn_ns)) return turn->end;
    uint64_t movable = movable_of(orion_memory(orion_the_process), gpu->device), took = atomic_load(&gpu->pages.took_ns);
    if (took == 0) took = movable / SLOW_BYTES_PER_NS;
    uint64_t lead = least(took + took / 8 + EARLY_NS, turn->end - turn->begin);
    if (movable > atomic_load(&pager->fits_twice)) lead = 0; /* they would drive out those of the turn before */
    uint64_t due = turn->begin > lead ? turn->begin - lead : 0;
    /* Not in the turn before: its pages are on the GPU, as far as there is room. */
    return due < pager->end_ns && pager->end_ns < turn->begin ? pager->end_ns : due;
}

/* Whether the pages are still to come; a turn may begin earlier or later than planned, or end. Renews *turn. */
static bool is_due(const struct orion_gpu *gpu, const struct orion_pager *pager, struct orion_turn_time *turn)
{
    struct orion_turn_time now_planned;
    uint64_t now = orion_now();
    if (due_at(gpu, pager, now, &now_planned) > now) return false;
    *turn = now_planned;
    return true;
}

/* Where most pages were there already, the time says nothing about the next turn. */
static void note_took(struct orion_gpu *gpu, uint64_t took_ns)
{
    uint64_t before = atomic_load(&gpu->pages.took_ns);
    if (took_ns < before / MOSTLY_THERE) took_ns = before - before / TOOK_FADE;
    atomic_store(&gpu->pages.took_ns, took_ns);
}

/* Brings the pages for the turn. Launches of the turn wait for them (process/plan.h), unless the driver refuses. */
static void bring(struct orion_process *process, struct orion_gpu *gpu, struct orion_pager *pager, struct orion_turn_time turn)
{
    struct step step = {0};
    uint64_t began = orion_now();
    bool came = true;
    while (came && next_step(orion_memory(process), gpu->device, &step)) {
        if (!is_due(gpu, pager, &turn)) {
            if (orion_now() >= turn.end) note_took(gpu, least(2 * atomic_load(&gpu->pages.took_ns), turn.end - turn.begin));
            return;
        }
        came = begin_step(process, pager, gpu->device, &step) && await_step(process, pager);
    }
    if (came) note_took(gpu, orion_now() - began);
    pager->end_ns = turn.end;
    atomic_store(&gpu->pages.came_ns, came ? orion_now() : UINT64_MAX);
    atomic_store(&gpu->pages.turn_ns, turn.begin);
}

static void *page(void *argument)
{
    struct orion_gpu *gpu = argument;
    struct orion_process *process = orion_the_process;
    struct orion_pager *pager = &orion_pagers(process)->of[gpu->device];
    prctl(PR_SET_NAME, "orion-pages", 0, 0, 0);
    atomic_store(&gpu->pages.move, 1);
    for (;;) {
        struct orion_turn_time turn;
        uint32_t plan = atomic_load_explicit(&gpu->grant->plan, memory_order_acquire); /* before the plan: see orion_plan_sleep */
        uint64_t now = orion_now(), due = due_at(gpu, pager, now, &turn);
        if (due <= now) bring(process, gpu, pager, turn);
        else orion_futex_wait(&gpu->grant->plan, plan, due - now < POLL_NS ? due - now : POLL_NS, true);
    }
    return NULL;
}

/* How much memory a slot may have that fits beside as much of another one, and beside contexts. */
static uint64_t fits_twice(void)
{
    size_t free_bytes, total;
    if (orion_driver.cuMemGetInfo_v2 == NULL || orion_driver.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS) return 0;
    return total / 16 * 7;
}

void orion_pager_start(struct orion_process *process, CUdevice device)
{
    struct orion_gpu *gpu = orion_account_client(process, device, false);
    struct orion_pager *pager = &orion_pagers(process)->of[device];
    CUcontext context;
    if (gpu == NULL || orion_driver.cuMemPrefetchAsync_v2 == NULL || orion_driver.cuStreamQuery == NULL) return;
    if (orion_driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL &&
        atomic_load(&pager->epoch) != epoch_of(process)) {
        atomic_store(&pager->fits_twice, fits_twice());
        atomic_store(&pager->context, context);
        atomic_store(&pager->epoch, epoch_of(process));
    }
    orion_thread_spawn_once(&pager->runs, page, gpu);
}
