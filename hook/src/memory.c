#include "memory.h"

#include <stddef.h>

#include "core.h"
#include "process.h"
#include "system.h"
#include "learning/identity.h"

#define NEIGHBOURHOOD 64u

static void lock(struct orion_memory *memory)
{
    while (atomic_exchange_explicit(&memory->lock, 1, memory_order_acquire)) orion_pause();
}
static void unlock(struct orion_memory *memory) { atomic_store_explicit(&memory->lock, 0, memory_order_release); }

/* One process uses its GPUs under one limit: that of the first board it joined. */
static struct orion_board *first_board(struct orion_process *process)
{
    for (uint32_t i = 0; i < atomic_load(&process->board_count) && i < ORION_BOARDS; i++)
        if (atomic_load(&process->boards[i].role) != ORION_ROLE_NONE) return &process->boards[i];
    return NULL;
}

static uint64_t limit_of(struct orion_board *board) { return board == NULL ? 0 : orion_board_grant(board)->memory_limit_bytes; }

static struct orion_allocation *find(struct orion_memory *memory, uint64_t key, uint64_t wanted)
{
    uint64_t home = orion_mix(key);
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_allocation *allocation = &memory->allocation[(home + i) & (ORION_ALLOCATIONS - 1)];
        if (allocation->key == wanted) return allocation;
    }
    return NULL;
}

static void publish(struct orion_process *process, struct orion_memory *memory)
{
    struct orion_board *board = first_board(process);
    if (board != NULL) atomic_store_explicit(&board->record->memory_bytes, atomic_load(&memory->used), memory_order_relaxed);
}

bool orion_memory_reserve(uint64_t bytes)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return true;
    struct orion_board *board = first_board(process);
    uint64_t limit = limit_of(board);
    uint64_t used = atomic_load(&process->memory.used);
    do {
        if (limit != 0 && (bytes > limit || used > limit - bytes)) {
            atomic_fetch_add_explicit(&board->record->memory_refusals, 1, memory_order_relaxed);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&process->memory.used, &used, used + bytes));
    return true;
}

void orion_memory_reserved(uint64_t bytes, uint64_t key, CUresult result)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_memory *memory = &process->memory;
    struct orion_allocation *allocation = NULL;
    if (result == CUDA_SUCCESS && key != 0) {
        lock(memory);
        allocation = find(memory, key, 0);
        if (allocation != NULL) *allocation = (struct orion_allocation){key, bytes};
        unlock(memory);
    }
    if (allocation == NULL) { /* not allocated, or not remembered and so never given back: count it no longer */
        uint64_t used = atomic_load(&memory->used);
        while (!atomic_compare_exchange_weak(&memory->used, &used, used > bytes ? used - bytes : 0)) {}
    }
    publish(process, memory);
}

void orion_memory_released(uint64_t key, CUresult result)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || result != CUDA_SUCCESS || key == 0) return;
    struct orion_memory *memory = &process->memory;
    lock(memory);
    struct orion_allocation *allocation = find(memory, key, key);
    uint64_t bytes = allocation == NULL ? 0 : allocation->bytes;
    if (allocation != NULL) *allocation = (struct orion_allocation){0, 0};
    unlock(memory);
    uint64_t used = atomic_load(&memory->used);
    while (!atomic_compare_exchange_weak(&memory->used, &used, used > bytes ? used - bytes : 0)) {}
    publish(process, memory);
}

void orion_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    uint64_t limit = limit_of(first_board(process));
    if (limit == 0) return;
    uint64_t used = atomic_load(&process->memory.used), left = used < limit ? limit - used : 0;
    if (total_bytes != NULL && *total_bytes > limit) *total_bytes = limit;
    if (free_bytes != NULL && *free_bytes > left) *free_bytes = left;
}
