#include "be/collective.h"

#include "be/gate.h"
#include "be/work.h"
#include "generated/driver.h"
#include "learning/graphs.h"
#include "learning/kernels.h"
#include "process/notifier.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/system.h"

/* While every hp is idle, the word is this far above the last launched number. This is half of the largest difference
 * for which the comparison of numbers that wrap around is right. */
#define FAR_AHEAD (1u << 30)
#define IN_STEP 8u      /* if the begun numbers of two GPUs differ by no more than this, the GPUs are in step */
#define FRESH 64u       /* if other GPUs are past this number, a GPU's first collective gets their last number */
#define WORDS_APART 16u /* each GPU's word has a cache line of its own */

/* -- Words and numbers ----------------------------------------------------------------------------------------------- */

static bool is_behind(uint32_t one, uint32_t other) { return (int32_t)(one - other) < 0; }

static _Atomic uint32_t *allowed(struct orion_collectives *all) { return &all->page.words[0]; }
static uint32_t begun_word(uint32_t gpu) { return (1 + gpu) * WORDS_APART; }
static uint32_t index_of(const struct orion_process *process, const struct orion_gpu *gpu)
{
    return (uint32_t)(gpu - process->gpus);
}

/* The tied GPUs, one bit for each index. 0: none are tied. */
static uint32_t tied(const struct orion_process *process)
{
    uint32_t gpus = atomic_load_explicit(&orion_collectives(process)->gpus, memory_order_acquire);
    return gpus & (gpus - 1) ? gpus : 0;
}

/* On a GPU without hp the hook stops no collective: a collective that spins there costs only its own process. */
static bool has_hp(const struct orion_gpu *gpu) { return atomic_load_explicit(&gpu->policy->hp_clients, memory_order_relaxed) > 0; }

static struct orion_gpu *closed_gpu(struct orion_process *process)
{
    for (uint32_t left = tied(process); left != 0; left &= left - 1) {
        struct orion_gpu *gpu = &process->gpus[__builtin_ctz(left)];
        if (orion_gate_closed(gpu)) return gpu;
    }
    return NULL;
}

static uint32_t last_launched(struct orion_process *process)
{
    uint32_t left = tied(process), last = 0;
    for (bool first = true; left != 0; left &= left - 1, first = false) {
        uint32_t number = atomic_load(&orion_collectives(process)->launched[__builtin_ctz(left)]);
        if (first || is_behind(last, number)) last = number;
    }
    return last;
}

/* The last number that some GPU has begun. If the GPUs are out of step: the last number that all of them have begun. */
static uint32_t last_begun(struct orion_process *process)
{
    uint32_t least = 0, most = 0;
    bool first = true;
    for (uint32_t left = tied(process); left != 0; left &= left - 1) {
        uint32_t index = (uint32_t)__builtin_ctz(left);
        if (!has_hp(&process->gpus[index])) continue;
        uint32_t number = atomic_load(&orion_collectives(process)->page.words[begun_word(index)]);
        if (first || is_behind(number, least)) least = number;
        if (first || is_behind(most, number)) most = number;
        first = false;
    }
    return most - least <= IN_STEP ? most : least;
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

static bool try_lock(struct orion_collectives *all) { return !atomic_exchange_explicit(&all->lock, 1, memory_order_acquire); }
static void unlock(struct orion_collectives *all) { atomic_store_explicit(&all->lock, 0, memory_order_release); }

/* Called at the GPU's first collective. The GPU's words are set before the GPU is tied. */
static bool tie(struct orion_process *process, uint32_t index)
{
    struct orion_collectives *all = orion_collectives(process);
    if (!try_lock(all)) return false;
    bool made = orion_pinned_page_make(&all->page);
    uint32_t others = atomic_load(&all->gpus), last = 0;
    for (uint32_t left = others; left != 0; left &= left - 1) {
        uint32_t number = atomic_load(&all->launched[__builtin_ctz(left)]);
        if (left == others || is_behind(last, number)) last = number;
    }
    if (made && last > FRESH) {
        atomic_store(&all->launched[index], last - 1);
        atomic_store(&all->page.words[begun_word(index)], last - 1);
    }
    if (made && others == 0) atomic_store(allowed(all), FAR_AHEAD);
    if (made) atomic_fetch_or(&all->gpus, 1u << index);
    unlock(all);
    return made;
}

uint32_t orion_collective_begin(struct orion_process *process, struct orion_gpu *gpu)
{
    struct orion_collectives *all = orion_collectives(process);
    uint32_t index = index_of(process, gpu);
    if (gpu->client != 0) return 0; /* clients are threads that share the GPU */
    if (!(atomic_load(&all->gpus) >> index & 1) && !tie(process, index)) return 0;
    uint32_t number = atomic_fetch_add(&all->launched[index], 1) + 1;
    if (tied(process) && number != 0) return number;
    atomic_store(&all->page.words[begun_word(index)], number);
    return 0;
}

bool orion_collective_peer_launched(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number)
{
    for (uint32_t left = tied(process) & ~(1u << index_of(process, gpu)); left != 0; left &= left - 1)
        if (!is_behind(atomic_load(&orion_collectives(process)->launched[__builtin_ctz(left)]), number)) return true;
    return false;
}

/* -- Waits in the stream --------------------------------------------------------------------------------------------- */

bool orion_collective_ready(struct orion_process *process)
{
    struct orion_collectives *all = orion_collectives(process);
    if (atomic_load_explicit(&all->refused, memory_order_relaxed) || orion_driver.cuStreamWriteValue32_v2 == NULL) return false;
    uint32_t epoch = atomic_load(&process->context_epoch) + 1;
    if (__builtin_expect(atomic_load_explicit(&all->pinned_epoch, memory_order_acquire) == epoch, 1)) return true;
    /* Memory must not be pinned while some stream is being captured. */
    if (atomic_load(&process->captures) > 0 || !try_lock(all)) return false;
    bool ready = orion_pinned_page_pin(process, &all->page);
    if (ready) atomic_store_explicit(&all->pinned_epoch, all->page.context_epoch, memory_order_release);
    else atomic_store(&all->refused, 1);
    unlock(all);
    return ready;
}

bool orion_collective_pass(struct orion_process *process, struct orion_stream_record *stream_record, uint32_t number)
{
    struct orion_collectives *all = orion_collectives(process);
    CUstream stream = orion_stream_record_handle(stream_record);
    CUdeviceptr begun = all->page.address + sizeof(uint32_t) * begun_word(index_of(process, stream_record->gpu));
    orion_collective_update(process);
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult result = orion_driver.cuStreamWaitValue32_v2(stream, all->page.address, number, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS)
        result = orion_driver.cuStreamWriteValue32_v2(stream, begun, number, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
    orion_capture_unrelax(&relaxed);
    if (result != CUDA_SUCCESS) atomic_store(&all->refused, 1);
    return result == CUDA_SUCCESS;
}

/* -- Waits on the CPU ------------------------------------------------------------------------------------------------ */

bool orion_collective_held(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number)
{
    if (!has_hp(gpu)) return orion_gate_closed(gpu);
    return closed_gpu(process) != NULL && is_behind(last_begun(process), number);
}

void orion_collective_wait(struct orion_process *process, struct orion_gpu *gpu, uint32_t number)
{
    if (!orion_collective_held(process, gpu, number)) return;
    uint64_t began = orion_now();
    orion_thread_revive(gpu);
    atomic_store_explicit(&gpu->record->waiting_since_ns, began, memory_order_relaxed);
    while (orion_collective_held(process, gpu, number)) {
        struct orion_gpu *closed = has_hp(gpu) ? closed_gpu(process) : gpu;
        if (closed != NULL) orion_gate_sleep(process, closed, ORION_GATE_POLL_NS);
    }
    atomic_store_explicit(&gpu->record->waiting_since_ns, 0, memory_order_relaxed);
    orion_gate_note(gpu, orion_now() - began);
}

void orion_collective_note_unarmed(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number)
{
    atomic_store(&orion_collectives(process)->page.words[begun_word(index_of(process, gpu))], number);
}

/* -- The word that allows collectives -------------------------------------------------------------------------------- */

void orion_collective_open(struct orion_process *process)
{
    if (tied(process)) atomic_store(allowed(orion_collectives(process)), last_launched(process) + FAR_AHEAD);
}

bool orion_collective_update(struct orion_process *process)
{
    if (__builtin_expect(!tied(process), 1)) return false;
    _Atomic uint32_t *word = allowed(orion_collectives(process));
    uint32_t seen = atomic_load(word), launched = last_launched(process);
    if (closed_gpu(process) == NULL) {
        /* Opens the word, unless another thread has found hp busy since this check began. */
        if (is_behind(seen, launched + FAR_AHEAD / 2)) atomic_compare_exchange_strong(word, &seen, launched + FAR_AHEAD);
        return false;
    }
    uint32_t begun = last_begun(process);
    /* Does not close while a context ends, because the context's streams must finish. */
    if (seen == begun || atomic_load(&process->untouchable) > 0) return false;
    atomic_store(word, begun);
    if (atomic_load(&process->untouchable) > 0) orion_collective_open(process);
    return true;
}

struct orion_gpu *orion_collective_blocked_by(struct orion_process *process, const struct orion_gpu *gpu)
{
    uint32_t index = index_of(process, gpu);
    if (__builtin_expect(!(tied(process) >> index & 1), 1) || !has_hp(gpu)) return NULL;
    struct orion_collectives *all = orion_collectives(process);
    uint32_t launched = atomic_load(&all->launched[index]), begun = atomic_load(&all->page.words[begun_word(index)]);
    return is_behind(begun, launched) ? closed_gpu(process) : NULL;
}

/* -- Collectives as a stop ------------------------------------------------------------------------------------------- */

static bool is_collective(struct orion_process *process, const struct orion_launch *launch)
{
    if (launch->function != NULL) return orion_kernel_is_collective(orion_kernels(process), launch->function);
    if (launch->graph == NULL || atomic_load_explicit(&orion_kernels(process)->collectives, memory_order_relaxed) == 0)
        return false;
    return orion_graph_is_collective(orion_graphs(process), launch->graph);
}

static bool claims(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work)
{
    work->collective = is_collective(process, &work->launch) ? orion_collective_begin(process, gpu) : 0;
    return work->collective != 0;
}

static enum orion_go may_go(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                            uint64_t expected_ns)
{
    (void)expected_ns; /* a collective never runs beside a busy hp */
    return orion_collective_held(process, stream_record->gpu, work->collective) ? ORION_GO_NOT_NOW : ORION_GO_FREELY;
}

static void wait(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                 uint64_t expected_ns)
{
    (void)expected_ns;
    orion_collective_wait(process, stream_record->gpu, work->collective);
}

/* If another GPU has already launched this collective's peer, this one does not wait for the window. */
static bool ignores_window(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work)
{
    return orion_collective_peer_launched(process, gpu, work->collective);
}

static bool arm(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work, bool due)
{
    (void)due; /* each collective has a wait of its own, whether the valve's is due or not */
    return orion_collective_pass(process, stream_record, work->collective);
}

static void went_unarmed(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work)
{
    orion_collective_note_unarmed(process, gpu, work->collective);
}

const struct orion_stop orion_collective_stop = {
    .claims = claims,
    .may_go = may_go,
    .wait = wait,
    .ignores_window = ignores_window,
    .ready = orion_collective_ready,
    .arm = arm,
    .went_unarmed = went_unarmed,
    .update = orion_collective_update,
    .open = orion_collective_open,
    .blocks = orion_collective_blocked_by,
};
