#include "memory/pools.h"

#include <stddef.h>

#include "generated/driver.h"
#include "memory/account.h"
#include "memory/graph_memory.h"
#include "memory/pool_counts.h"
#include "streams/capture.h"
#include "system/lock.h"
#include "system/spawn.h"
#include "system/system.h"

#define WARY 64u
#define POLL_NS (250 * ORION_MILLISECOND)

/* The driver is asked under the lock, and may call a tool's callback meanwhile. A call of that callback would wait for its own
 * thread. So such a call leaves the pools alone. */
static _Thread_local bool within;

static void lock(struct orion_pools *pools)
{
    orion_lock(&pools->lock);
    within = true;
}

static bool enter(struct orion_pools *pools)
{
    if (within) return false;
    lock(pools);
    return true;
}

static void unlock(struct orion_pools *pools)
{
    within = false;
    orion_unlock(&pools->lock);
}

/* -- Allocations ----------------------------------------------------------------------------------------------------- */

bool orion_pool_begin(struct orion_pooling *pooling)
{
    struct orion_process *process = orion_the_process;
    pooling->counts = false;
    pooling->promised = 0;
    if (process == NULL) return false;
    if (orion_capture_records(process, pooling->stream)) {
        orion_graph_memory_begins();
        return false;
    }
    CUmemoryPool handle = pooling->pool;
    if (handle == NULL) {
        CUdevice device = orion_memory_device_of(pooling->stream);
        if (orion_driver.cuDeviceGetMemPool == NULL || orion_driver.cuDeviceGetMemPool(&handle, device) != CUDA_SUCCESS)
            return false;
    }
    struct orion_pools *pools = orion_pools(process);
    if (!enter(pools)) return false;
    struct orion_pool *pool = orion_pool_find(pools, handle);
    if (pool == NULL) pool = orion_pool_adopt(process, handle);
    pooling->counts = pool != NULL && orion_account_counts(pool->device);
    if (pooling->counts) {
        pooling->index = (uint32_t)(pool - pools->entry);
        pooling->number = pool->number;
        pooling->device = pool->device;
    }
    unlock(pools);
    pooling->growth = orion_whole_steps(orion_account_countable(pooling->bytes));
    return pooling->counts;
}

void orion_pool_promised(struct orion_pooling *pooling)
{
    struct orion_pools *pools = orion_pools(orion_the_process);
    lock(pools);
    struct orion_pool *pool = orion_pool_of(pools, pooling);
    if (pool != NULL) pool->promised += pooling->growth, pool->counted += pooling->growth;
    unlock(pools);
    pooling->promised = pool != NULL ? pooling->growth : 0;
    if (pool == NULL) orion_memory_reserved(pooling->device, pooling->growth, ORION_MEMORY_RESIDENT, 0, CUDA_ERROR_OUT_OF_MEMORY);
}

bool orion_pool_claim(struct orion_pooling *pooling, bool first)
{
    if (first && orion_memory_excess(pooling->device) != 0) return false;
    struct orion_pools *pools = orion_pools(orion_the_process);
    lock(pools);
    struct orion_pool *pool = orion_pool_of(pools, pooling);
    bool waits = first && pool != NULL && pool->wary != 0;
    if (waits) pool->wary--;
    pooling->claims =
        pool != NULL && !waits && orion_account_countable(pooling->bytes) + pool->claimed <= orion_pool_free_part(pool);
    if (pooling->claims && pool->claimed == 0) pool->overgrown = 0;
    if (pooling->claims) pool->claimed += pooling->bytes;
    unlock(pools);
    return pooling->claims;
}

bool orion_pool_may_suffice(const struct orion_pooling *pooling)
{
    if (pooling->claims) return true;
    struct orion_pools *pools = orion_pools(orion_the_process);
    lock(pools);
    const struct orion_pool *pool = orion_pool_of(pools, pooling);
    bool suffices = pool != NULL && orion_account_countable(pooling->bytes) + pool->claimed <= orion_pool_free_part(pool);
    unlock(pools);
    return suffices;
}

/* The descriptors of a thread are those of the thread that starts it, so a thread of the program must start this one. */
static void *poll_devices(void *argument)
{
    struct orion_process *process = argument;
    for (;;) {
        orion_futex_wait(&orion_pools(process)->polling, 1, POLL_NS, false);
        for (CUdevice device = 0; orion_account_counts(device); device++)
            if (orion_account_is_limited(process, device)) orion_pools_poll(process, device);
    }
    return NULL;
}

static void start_polling(struct orion_process *process, CUdevice device)
{
    struct orion_pools *pools = orion_pools(process);
    if (atomic_load_explicit(&pools->polling, memory_order_relaxed) != 0 || !orion_account_is_limited(process, device)) return;
    orion_thread_spawn_once(&pools->polling, poll_devices, process);
}

void orion_pool_keep(const struct orion_pooling *pooling, CUdeviceptr at)
{
    struct orion_process *process = orion_the_process;
    struct orion_pools *pools = orion_pools(process);
    if (!pooling->counts) return;
    lock(pools);
    bool lives = orion_pool_of(pools, pooling) != NULL;
    if (lives) orion_memory_pooled(at, pooling->bytes, pooling->index);
    unlock(pools);
    if (lives) return;
    orion_pool_move(process, pooling->device, 0,
                    orion_account_countable(pooling->bytes)); /* as orion_memory_leave_pool does with others */
    orion_memory_takes(pooling->device, pooling->bytes, true);
    orion_memory_reserved(pooling->device, pooling->bytes, ORION_MEMORY_RESIDENT, at, CUDA_SUCCESS);
}

void orion_pool_give_up(const struct orion_pooling *pooling, CUdeviceptr *at)
{
    __typeof__(&cuMemFreeAsync) release =
        pooling->stream.per_thread ? orion_driver.cuMemFreeAsync_ptsz : orion_driver.cuMemFreeAsync;
    if (release != NULL) release(*at, pooling->stream.handle);
    *at = 0;
}

/* What was reserved went with the pool. */
static bool end_in_another_pool(struct orion_process *process, struct orion_pooling *pooling, CUresult result)
{
    bool grew = false;
    if (result != CUDA_SUCCESS || !orion_pool_begin(pooling)) return false;
    struct orion_pools *pools = orion_pools(process);
    lock(pools);
    struct orion_pool *pool = orion_pool_of(pools, pooling);
    uint64_t before = pool == NULL ? 0 : pool->counted;
    if (pool != NULL) orion_pool_correct(process, pool), grew = pool->counted > before;
    unlock(pools);
    return grew;
}

static bool end(struct orion_pooling *pooling, CUresult result)
{
    struct orion_process *process = orion_the_process;
    struct orion_pools *pools = orion_pools(process);
    lock(pools);
    struct orion_pool *pool = orion_pool_of(pools, pooling);
    if (pool == NULL) {
        unlock(pools);
        return end_in_another_pool(process, pooling, result);
    }
    if (pooling->claims) pool->claimed -= pooling->bytes;
    else pool->promised -= pooling->growth;
    if (!pooling->claims && result != CUDA_SUCCESS)
        orion_pool_count(process, pool, pool->counted - orion_least(pool->counted, pooling->growth));
    orion_pool_correct(process, pool);
    bool grew = pooling->claims && pool->overgrown != 0;
    if (pooling->claims) pool->overgrown = 0;
    if (grew) pool->wary = WARY;
    unlock(pools);
    start_polling(process, pooling->device);
    return grew;
}

bool orion_pool_end(struct orion_pooling *pooling, CUresult result)
{
    CUdevice device = pooling->device;
    uint64_t promised = pooling->promised;
    bool grew = end(pooling, result);
    orion_memory_takes(device, promised, false);
    return grew;
}

/* -- Pools come and go ----------------------------------------------------------------------------------------------- */

static bool is_on(const struct orion_pool *pool, CUdevice device) { return pool->handle != NULL && pool->device == device; }

void orion_pool_made(CUmemoryPool handle, const CUmemPoolProps *properties)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL || properties == NULL) return;
    orion_memory_placed(&properties->location, properties->allocType);
    struct orion_pools *pools = orion_pools(process);
    if (!enter(pools)) return;
    struct orion_pool *before = orion_pool_find(pools, handle); /* the hook has not seen its end */
    if (before != NULL && before->device >= 0) orion_pool_move(process, before->device, before->counted, 0);
    if (before != NULL) before->handle = NULL;
    orion_pool_enter(pools, handle, orion_device_at(&properties->location), false);
    unlock(pools);
}

void orion_pool_ending(CUmemoryPool handle)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || handle == NULL) return;
    struct orion_pools *pools = orion_pools(process);
    if (!enter(pools)) return;
    struct orion_pool *pool = orion_pool_find(pools, handle);
    if (pool != NULL && !pool->is_default) { /* the driver does not destroy a default pool */
        if (pool->device >= 0)
            orion_pool_move(process, pool->device, pool->counted,
                            orion_memory_leave_pool((uint32_t)(pool - pools->entry), pool->device));
        pool->handle = NULL;
    }
    unlock(pools);
}

void orion_pools_ended_on(struct orion_process *process, CUdevice device)
{
    struct orion_pools *pools = orion_pools(process);
    if (!enter(pools)) return;
    for (uint32_t i = 0; i < pools->high; i++) {
        if (!is_on(&pools->entry[i], device) || pools->entry[i].counted == 0) continue;
        orion_memory_leave_pool(i, -1);
        orion_pool_count(process, &pools->entry[i], 0);
    }
    unlock(pools);
}

/* -- Looking and trimming -------------------------------------------------------------------------------------------- */

/* Of another pool the driver may know nothing: see orion_pools_ended_on. */
static bool is_in_use(const struct orion_pool *pool, CUdevice device)
{
    return is_on(pool, device) && (pool->counted != 0 || pool->is_of_graphs);
}

static bool look(struct orion_process *process, CUdevice device)
{
    struct orion_pools *pools = orion_pools(process);
    uint64_t less = 0;
    for (uint32_t i = 0; i < pools->high; i++)
        if (is_in_use(&pools->entry[i], device)) less += orion_pool_correct(process, &pools->entry[i]);
    return less != 0;
}

bool orion_pools_look(CUdevice device)
{
    struct orion_pools *pools = orion_pools(orion_the_process);
    if (!enter(pools)) return false;
    bool less = look(orion_the_process, device);
    unlock(pools);
    return less;
}

void orion_pools_poll(struct orion_process *process, CUdevice device)
{
    struct orion_pools *pools = orion_pools(process);
    if ((pools->high == 0 && !orion_graph_memory_exists(process)) || !orion_lock_try(&pools->lock)) return;
    within = true;
    if (orion_touch(process)) {
        if (orion_graph_memory_exists(process)) orion_pool_enter_graphs(pools, device);
        look(process, device);
        orion_touched(process);
    }
    unlock(pools);
}

static uint64_t trim(struct orion_process *process, struct orion_pool *pool, uint64_t bytes)
{
    uint64_t held;
    if (orion_pool_free_part(pool) == 0 || !orion_pool_held(pool, &held)) return 0;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (!pool->is_of_graphs) orion_driver.cuMemPoolTrimTo(pool->handle, held > bytes ? (size_t)(held - bytes) : 0);
    else if (orion_driver.cuDeviceGraphMemTrim != NULL) orion_driver.cuDeviceGraphMemTrim(pool->device);
    orion_capture_unrelax(&relaxed);
    return orion_pool_correct(process, pool);
}

/* `part`: also if the pools have less free. */
static bool trim_all(CUdevice device, uint64_t bytes, bool part)
{
    struct orion_process *process = orion_the_process;
    struct orion_pools *pools = orion_pools(process);
    uint64_t spare = 0, less = 0;
    if (orion_driver.cuMemPoolTrimTo == NULL || !enter(pools)) return false;
    for (uint32_t i = 0; i < pools->high; i++)
        if (is_in_use(&pools->entry[i], device)) spare += orion_pool_free_part(&pools->entry[i]);
    for (uint32_t i = 0; i < pools->high && (part || spare >= bytes) && less < bytes; i++)
        if (is_in_use(&pools->entry[i], device)) less += trim(process, &pools->entry[i], bytes - less);
    unlock(pools);
    return less != 0;
}

bool orion_pools_trim(CUdevice device, uint64_t bytes) { return trim_all(device, bytes, false); }

void orion_pools_graph_launched(CUdevice device)
{
    struct orion_process *process = orion_the_process;
    struct orion_pools *pools = orion_pools(process);
    if (!orion_account_counts(device) || !orion_account_is_limited(process, device)) return;
    start_polling(process, device);
    if (!enter(pools)) return;
    orion_pool_enter_graphs(pools, device);
    struct orion_pool *pool = orion_pool_find(pools, ORION_POOL_OF_GRAPHS(device));
    if (pool != NULL) orion_pool_correct(process, pool);
    unlock(pools);
    uint64_t excess = orion_memory_excess(device);
    if (excess != 0) trim_all(device, excess, true);
}
