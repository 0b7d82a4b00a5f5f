#include "be/collective.h"

#include <string.h>

#include "process.h"
#include "system.h"
#include "thread.h"
#include "be/gate.h"
#include "generated/driver.h"
#include "streams/capture.h"
#include "streams/lanes.h"

#define FAR_AHEAD (1u << 30) /* of all that were launched; half of what a cyclic comparison tells apart */
#define IN_STEP 8u           /* GPUs that have begun numbers so close run the same groups */
#define FRESH 64u            /* a GPU that comes later than that to the others joins at their number */
#define WORDS_APART 16u      /* a cache line for each GPU's word */

/* -- Words and numbers ----------------------------------------------------------------------------------------------- */

static bool is_behind(uint32_t one, uint32_t other) { return (int32_t)(one - other) < 0; }

static _Atomic uint32_t *allowed(struct orion_collectives *all) { return &all->page.words[0]; }
static uint32_t begun_word(uint32_t board) { return (1 + board) * WORDS_APART; }
static uint32_t index_of(const struct orion_process *process, const struct orion_board *board)
{
    return (uint32_t)(board - process->boards);
}

/* The tied boards, by index; 0: none are. */
static uint32_t tied(const struct orion_process *process)
{
    uint32_t boards = atomic_load_explicit(&process->collectives.boards, memory_order_acquire);
    return boards & (boards - 1) ? boards : 0;
}

/* Where nobody is to be spared, nothing is held: a collective spins there at its own cost. */
static bool has_hp(const struct orion_board *board)
{
    return atomic_load_explicit(&board->policy->hp_clients, memory_order_relaxed) > 0;
}

static struct orion_board *closed_board(struct orion_process *process)
{
    for (uint32_t left = tied(process); left != 0; left &= left - 1) {
        struct orion_board *board = &process->boards[__builtin_ctz(left)];
        if (orion_gate_closed(board)) return board;
    }
    return NULL;
}

static uint32_t last_launched(struct orion_process *process)
{
    uint32_t left = tied(process), last = 0;
    for (bool first = true; left != 0; left &= left - 1, first = false) {
        uint32_t number = atomic_load(&process->collectives.launched[__builtin_ctz(left)]);
        if (first || is_behind(last, number)) last = number;
    }
    return last;
}

/* The number up to which collectives have begun somewhere; where the GPUs are out of step, up to which they have
 * everywhere. */
static uint32_t last_begun(struct orion_process *process)
{
    uint32_t least = 0, most = 0;
    bool first = true;
    for (uint32_t left = tied(process); left != 0; left &= left - 1) {
        uint32_t index = (uint32_t)__builtin_ctz(left);
        if (!has_hp(&process->boards[index])) continue;
        uint32_t number = atomic_load(&process->collectives.page.words[begun_word(index)]);
        if (first || is_behind(number, least)) least = number;
        if (first || is_behind(most, number)) most = number;
        first = false;
    }
    return most - least <= IN_STEP ? most : least;
}

/* -- Launches -------------------------------------------------------------------------------------------------------- */

bool orion_collective_is_name(const char *kernel)
{
    if (kernel[0] == '_' && kernel[1] == 'Z') /* a C++ function outside of namespaces: _Z, its length, its name */
        for (kernel += 2; *kernel >= '0' && *kernel <= '9';) kernel++;
    return strncmp(kernel, "nccl", 4) == 0;
}

static bool take_lock(struct orion_collectives *all) { return !atomic_exchange_explicit(&all->lock, 1, memory_order_acquire); }
static void give_lock(struct orion_collectives *all) { atomic_store_explicit(&all->lock, 0, memory_order_release); }

/* The board's first: its words are there before it is tied. */
static bool tie(struct orion_process *process, uint32_t index)
{
    struct orion_collectives *all = &process->collectives;
    if (!take_lock(all)) return false;
    bool made = orion_pinned_page_make(&all->page);
    uint32_t others = atomic_load(&all->boards), last = 0;
    for (uint32_t left = others; left != 0; left &= left - 1) {
        uint32_t number = atomic_load(&all->launched[__builtin_ctz(left)]);
        if (left == others || is_behind(last, number)) last = number;
    }
    if (made && last > FRESH) {
        atomic_store(&all->launched[index], last - 1);
        atomic_store(&all->page.words[begun_word(index)], last - 1);
    }
    if (made && others == 0) atomic_store(allowed(all), FAR_AHEAD);
    if (made) atomic_fetch_or(&all->boards, 1u << index);
    give_lock(all);
    return made;
}

uint32_t orion_collective_begin(struct orion_process *process, struct orion_board *board)
{
    struct orion_collectives *all = &process->collectives;
    uint32_t index = index_of(process, board);
    if (board->client != 0) return 0; /* threads that share a GPU */
    if (!(atomic_load(&all->boards) >> index & 1) && !tie(process, index)) return 0;
    uint32_t number = atomic_fetch_add(&all->launched[index], 1) + 1;
    if (tied(process) && number != 0) return number;
    atomic_store(&all->page.words[begun_word(index)], number);
    return 0;
}

bool orion_collective_follows(struct orion_process *process, const struct orion_board *board, uint32_t number)
{
    for (uint32_t left = tied(process) & ~(1u << index_of(process, board)); left != 0; left &= left - 1)
        if (!is_behind(atomic_load(&process->collectives.launched[__builtin_ctz(left)]), number)) return true;
    return false;
}

/* -- Behind a wait --------------------------------------------------------------------------------------------------- */

bool orion_collective_ready(struct orion_process *process)
{
    struct orion_collectives *all = &process->collectives;
    if (atomic_load_explicit(&all->refused, memory_order_relaxed) || orion_driver.cuStreamWriteValue32_v2 == NULL) return false;
    uint32_t epoch = atomic_load(&process->context_epoch) + 1;
    if (__builtin_expect(atomic_load_explicit(&all->pinned_epoch, memory_order_acquire) == epoch, 1)) return true;
    /* Pinning is no business of a time when some stream is being captured. */
    if (atomic_load(&process->captures) > 0 || !take_lock(all)) return false;
    bool ready = orion_pinned_page_pin(process, &all->page);
    if (ready) atomic_store_explicit(&all->pinned_epoch, all->page.context_epoch, memory_order_release);
    else atomic_store(&all->refused, 1);
    give_lock(all);
    return ready;
}

bool orion_collective_pass(struct orion_process *process, struct orion_lane *lane, uint32_t number)
{
    struct orion_collectives *all = &process->collectives;
    CUstream stream = orion_lane_handle(lane);
    CUdeviceptr begun = all->page.address + sizeof(uint32_t) * begun_word(index_of(process, lane->board));
    orion_collective_attend(process);
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult result = orion_driver.cuStreamWaitValue32_v2(stream, all->page.address, number, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS)
        result = orion_driver.cuStreamWriteValue32_v2(stream, begun, number, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
    orion_capture_unrelax(&relaxed);
    if (result != CUDA_SUCCESS) atomic_store(&all->refused, 1);
    return result == CUDA_SUCCESS;
}

/* -- On the CPU ------------------------------------------------------------------------------------------------------ */

bool orion_collective_held(struct orion_process *process, const struct orion_board *board, uint32_t number)
{
    if (!has_hp(board)) return orion_gate_closed(board);
    return closed_board(process) != NULL && is_behind(last_begun(process), number);
}

void orion_collective_wait(struct orion_process *process, struct orion_board *board, uint32_t number)
{
    if (!orion_collective_held(process, board, number)) return;
    uint64_t began = orion_now();
    orion_thread_revive(board);
    atomic_store_explicit(&board->record->waiting_since_ns, began, memory_order_relaxed);
    while (orion_collective_held(process, board, number)) {
        struct orion_board *closed = has_hp(board) ? closed_board(process) : board;
        if (closed != NULL) orion_gate_sleep(process, closed, ORION_GATE_LOOK_NS);
    }
    atomic_store_explicit(&board->record->waiting_since_ns, 0, memory_order_relaxed);
    orion_gate_note(board, orion_now() - began);
}

void orion_collective_go(struct orion_process *process, const struct orion_board *board, uint32_t number)
{
    atomic_store(&process->collectives.page.words[begun_word(index_of(process, board))], number);
}

/* -- The word -------------------------------------------------------------------------------------------------------- */

void orion_collective_open(struct orion_process *process)
{
    if (tied(process)) atomic_store(allowed(&process->collectives), last_launched(process) + FAR_AHEAD);
}

bool orion_collective_attend(struct orion_process *process)
{
    if (__builtin_expect(!tied(process), 1)) return false;
    _Atomic uint32_t *word = allowed(&process->collectives);
    uint32_t seen = atomic_load(word), launched = last_launched(process);
    if (closed_board(process) == NULL) {
        /* Unless somebody has found hp busy since this look began. */
        if (is_behind(seen, launched + FAR_AHEAD / 2)) atomic_compare_exchange_strong(word, &seen, launched + FAR_AHEAD);
        return false;
    }
    uint32_t begun = last_begun(process);
    /* Not while a context ends: its streams must come to their end. */
    if (seen == begun || atomic_load(&process->untouchable) > 0) return false;
    atomic_store(word, begun);
    if (atomic_load(&process->untouchable) > 0) orion_collective_open(process);
    return true;
}

struct orion_board *orion_collective_stands(struct orion_process *process, const struct orion_board *board)
{
    uint32_t index = index_of(process, board);
    if (__builtin_expect(!(tied(process) >> index & 1), 1) || !has_hp(board)) return NULL;
    struct orion_collectives *all = &process->collectives;
    uint32_t launched = atomic_load(&all->launched[index]), begun = atomic_load(&all->page.words[begun_word(index)]);
    return is_behind(begun, launched) ? closed_board(process) : NULL;
}
