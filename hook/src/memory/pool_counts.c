#include "memory/pool_counts.h"

#include <stddef.h>

#include "generated/driver.h"
#include "memory/account.h"
#include "memory/graph_memory.h"

#define QUESTIONS 8u

struct orion_pool *orion_pool_find(struct orion_pools *pools, CUmemoryPool handle)
{
    for (uint32_t i = 0; i < pools->high; i++)
        if (pools->entry[i].handle == handle) return &pools->entry[i];
    return NULL;
}

struct orion_pool *orion_pool_enter(struct orion_pools *pools, CUmemoryPool handle, CUdevice device, bool is_default)
{
    struct orion_pool *entry = orion_pool_find(pools, NULL);
    if (entry == NULL && pools->high < ORION_POOLS) entry = &pools->entry[pools->high++];
    if (entry == NULL) return NULL;
    *entry = (struct orion_pool){.handle = handle, .number = ++pools->entered, .device = device, .is_default = is_default};
    return entry;
}

struct orion_pool *orion_pool_of(struct orion_pools *pools, const struct orion_pooling *pooling)
{
    struct orion_pool *pool = &pools->entry[pooling->index];
    return pool->handle != NULL && pool->number == pooling->number ? pool : NULL;
}

struct orion_pool *orion_pool_adopt(struct orion_process *process, CUmemoryPool handle)
{
    struct orion_pools *pools = orion_pools(process);
    int devices = 0;
    bool known = orion_driver.cuDeviceGetDefaultMemPool != NULL && orion_driver.cuDeviceGetCount(&devices) == CUDA_SUCCESS;
    for (CUdevice device = 0; known && device < devices && orion_account_counts(device); device++) {
        CUmemoryPool its_own;
        if (orion_driver.cuDeviceGetDefaultMemPool(&its_own, device) == CUDA_SUCCESS && its_own == handle)
            return orion_pool_enter(pools, handle, device, true);
    }
    return orion_pool_enter(pools, handle, -1, false);
}

void orion_pool_enter_graphs(struct orion_pools *pools, CUdevice device)
{
    struct orion_pool *pool = orion_pool_find(pools, ORION_POOL_OF_GRAPHS(device));
    if (pool == NULL) pool = orion_pool_enter(pools, ORION_POOL_OF_GRAPHS(device), device, true);
    if (pool != NULL) pool->is_of_graphs = true;
}

static bool ask(const struct orion_pool *pool, CUmemPool_attribute attribute, uint64_t *bytes)
{
    if (pool->is_of_graphs) return orion_graph_memory_ask(pool->device, attribute, bytes);
    return orion_driver.cuMemPoolGetAttribute != NULL &&
           orion_driver.cuMemPoolGetAttribute(pool->handle, attribute, bytes) == CUDA_SUCCESS;
}

bool orion_pool_held(const struct orion_pool *pool, uint64_t *bytes)
{
    return ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes);
}

uint64_t orion_pool_free_part(const struct orion_pool *pool)
{
    uint64_t held, taken;
    bool known = orion_pool_held(pool, &held) && ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &taken);
    return known && held > taken ? held - taken : 0;
}

/* What the pool holds, and its free part at that moment: calls under way change both, and a call that has taken its part
 * between the two questions would count neither with what the pool holds nor with what it may add. While the pool changes
 * all the time, nothing counts as free. */
static bool ask_both(const struct orion_pool *pool, uint64_t *held, uint64_t *left)
{
    uint64_t before, taken;
    if (!orion_pool_held(pool, held)) return false;
    for (unsigned i = 0; i < QUESTIONS; i++) {
        before = *held;
        if (!ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &taken) || !orion_pool_held(pool, held)) return false;
        *left = before > taken ? before - taken : 0;
        if (*held == before) return true;
    }
    *left = 0;
    return true;
}

void orion_pool_move(struct orion_process *process, CUdevice device, uint64_t from, uint64_t to)
{
    struct orion_memory *memory = orion_memory(process);
    if (from == to) return;
    orion_account_lock(memory);
    uint64_t used = memory->used[device];
    orion_account_change(process, device, used + to > from ? used + to - from : 0);
    orion_account_unlock(memory);
}

void orion_pool_count(struct orion_process *process, struct orion_pool *pool, uint64_t bytes)
{
    orion_pool_move(process, pool->device, pool->counted, bytes);
    pool->counted = bytes;
}

/* By how much calls under way may make the pool grow. One that had its growth reserved may have taken what another one has
 * claimed, so that the pool grows for that one. */
static uint64_t may_grow(const struct orion_pool *pool, uint64_t left)
{
    return pool->promised + (pool->claimed > left ? orion_whole_steps(pool->claimed - left) : 0);
}

uint64_t orion_pool_correct(struct orion_process *process, struct orion_pool *pool)
{
    uint64_t held, left = 0, before = pool->counted;
    if (pool->device < 0) return 0;
    bool known = pool->claimed == 0 ? orion_pool_held(pool, &held) : ask_both(pool, &held, &left);
    if (!known) return 0;
    uint64_t now = orion_least(before, held + may_grow(pool, left));
    if (now < held) {
        pool->overgrown += held - now; /* matters to calls that have claimed the free part */
        now = held;
    }
    orion_pool_count(process, pool, now);
    return before > now ? before - now : 0;
}
