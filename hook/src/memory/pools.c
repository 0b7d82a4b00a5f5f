#include "memory/pools.h"

#include <stddef.h>

#include "generated/driver.h"
#include "memory/account.h"
#include "memory/graph_memory.h"
#include "streams/capture.h"
#include "system/spawn.h"
#include "system/system.h"

#define STEP (UINT64_C(32) << 20) /* by which the driver's pools grow */
#define LOOK_AGAIN_NS (10 * ORION_MILLISECOND)
#define WARY 64u
#define QUESTIONS 8u
#define POLL_NS (250 * ORION_MILLISECOND)

static void lock(struct orion_pools *pools)
{
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&pools->lock, &none, 1)) return;
    while (atomic_exchange(&pools->lock, 2) != 0) orion_futex_wait(&pools->lock, 2, LOOK_AGAIN_NS, false);
}

static void unlock(struct orion_pools *pools)
{
    if (atomic_exchange(&pools->lock, 0) == 2) orion_futex_wake_all(&pools->lock, false);
}

/* -- Which pools count, under the lock ------------------------------------------------------------------------------- */

static struct orion_pool *find(struct orion_pools *pools, CUmemoryPool handle)
{
    for (uint32_t i = 0; i < pools->high; i++)
        if (pools->entry[i].handle == handle) return &pools->entry[i];
    return NULL;
}

#define OF_GRAPHS(device) ((CUmemoryPool)(uintptr_t)((device) + 1)) /* no pool has such a handle */

static struct orion_pool *enter(struct orion_pools *pools, CUmemoryPool handle, CUdevice device, bool is_default)
{
    struct orion_pool *entry = find(pools, NULL);
    if (entry == NULL && pools->high < ORION_POOLS) entry = &pools->entry[pools->high++];
    if (entry != NULL) *entry = (struct orion_pool){.handle = handle, .device = device, .is_default = is_default};
    return entry;
}

/* A pool that the hook has not seen created is the default pool of a device, or does not count. */
static struct orion_pool *adopt(struct orion_process *process, CUmemoryPool handle)
{
    struct orion_pools *pools = orion_pools(process);
    uint32_t gpus = orion_driver.cuDeviceGetDefaultMemPool == NULL ? 0 : atomic_load(&process->gpu_count);
    for (uint32_t i = 0; i < gpus && i < ORION_GPUS; i++) {
        CUmemoryPool its_own;
        CUdevice device = process->gpus[i].device;
        if (orion_driver.cuDeviceGetDefaultMemPool(&its_own, device) == CUDA_SUCCESS && its_own == handle)
            return enter(pools, handle, device, true);
    }
    return enter(pools, handle, -1, false);
}

static void enter_graphs(struct orion_pools *pools, CUdevice device)
{
    struct orion_pool *pool = find(pools, OF_GRAPHS(device));
    if (pool == NULL) pool = enter(pools, OF_GRAPHS(device), device, true);
    if (pool != NULL) pool->is_of_graphs = true;
}

/* -- What a pool holds, under the lock ------------------------------------------------------------------------------- */

static bool ask(const struct orion_pool *pool, CUmemPool_attribute attribute, uint64_t *bytes)
{
    if (pool->is_of_graphs) return orion_graph_memory_ask(pool->device, attribute, bytes);
    return orion_driver.cuMemPoolGetAttribute != NULL &&
           orion_driver.cuMemPoolGetAttribute(pool->handle, attribute, bytes) == CUDA_SUCCESS;
}

static uint64_t free_part(const struct orion_pool *pool)
{
    uint64_t held, taken;
    bool known = ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held) && ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &taken);
    return known && held > taken ? held - taken : 0;
}

/* What the pool holds, and its free part at that moment: calls under way change both, and a call that has taken its part
 * between the two questions would count neither with what the pool holds nor with what it may add. */
static bool ask_both(const struct orion_pool *pool, uint64_t *held, uint64_t *left)
{
    uint64_t before, taken;
    if (!ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, held)) return false;
    for (unsigned i = 0; i < QUESTIONS; i++) {
        before = *held;
        if (!ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &taken) || !ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, held))
            return false;
        *left = before > taken ? before - taken : 0;
        if (*held == before) return true;
    }
    return false;
}

static void move(struct orion_process *process, CUdevice device, uint64_t from, uint64_t to)
{
    struct orion_memory *memory = orion_memory(process);
    if (from == to) return;
    orion_account_lock(memory);
    uint64_t used = memory->used[device];
    orion_account_change(process, device, used + to > from ? used + to - from : 0);
    orion_account_unlock(memory);
}

static void count(struct orion_process *process, struct orion_pool *pool, uint64_t bytes)
{
    move(process, pool->device, pool->counted, bytes);
    pool->counted = bytes;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t whole_steps(uint64_t bytes) { return (bytes + STEP - 1) / STEP * STEP; }

/* By how much calls under way may make the pool grow. One that had its growth reserved may have taken what another one has
 * claimed, so that the pool grows for that one. */
static uint64_t may_grow(const struct orion_pool *pool, uint64_t left)
{
    return pool->promised + (pool->claimed > left ? whole_steps(pool->claimed - left) : 0);
}

/* Returns how much lower the count is than before. If the driver does not answer, the count stays. */
static uint64_t correct(struct orion_process *process, struct orion_pool *pool)
{
    uint64_t held, left = 0, before = pool->counted;
    if (pool->device < 0) return 0;
    bool known = pool->claimed == 0 ? ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held) : ask_both(pool, &held, &left);
    if (!known) return 0;
    uint64_t now = least(before, held + may_grow(pool, left));
    if (now < held) {
        pool->overgrown += held - now; /* matters to calls that have claimed the free part */
        now = held;
    }
    count(process, pool, now);
    return before > now ? before - now : 0;
}

/* -- Allocations ----------------------------------------------------------------------------------------------------- */

bool orion_pool_begin(struct orion_pooling *pooling)
{
    struct orion_process *process = orion_the_process;
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
    lock(pools);
    struct orion_pool *pool = find(pools, handle);
    if (pool == NULL) pool = adopt(process, handle);
    pooling->counts = pool != NULL && orion_account_counts(pool->device);
    if (pooling->counts) pooling->index = (uint32_t)(pool - pools->entry), pooling->device = pool->device;
    unlock(pools);
    pooling->growth = whole_steps(orion_account_countable(pooling->bytes));
    return pooling->counts;
}

void orion_pool_promised(const struct orion_pooling *pooling)
{
    struct orion_pools *pools = orion_pools(orion_the_process);
    lock(pools);
    pools->entry[pooling->index].promised += pooling->growth;
    pools->entry[pooling->index].counted += pooling->growth;
    unlock(pools);
}

bool orion_pool_claim(struct orion_pooling *pooling, bool first)
{
    if (first && orion_memory_excess(pooling->device) != 0) return false;
    struct orion_pools *pools = orion_pools(orion_the_process);
    struct orion_pool *pool = &pools->entry[pooling->index];
    lock(pools);
    bool waits = first && pool->wary != 0;
    if (waits) pool->wary--;
    pooling->claims = !waits && orion_account_countable(pooling->bytes) + pool->claimed <= free_part(pool);
    if (pooling->claims && pool->claimed == 0) pool->overgrown = 0;
    if (pooling->claims) pool->claimed += pooling->bytes;
    unlock(pools);
    return pooling->claims;
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
    uint32_t none = 0;
    struct orion_pools *pools = orion_pools(process);
    if (atomic_load_explicit(&pools->polling, memory_order_relaxed) != 0 || !orion_account_is_limited(process, device)) return;
    if (atomic_compare_exchange_strong(&pools->polling, &none, 1) && orion_thread_spawn(poll_devices, process) != 0)
        atomic_store(&pools->polling, 0); /* the next allocation tries again */
}

void orion_pool_keep(const struct orion_pooling *pooling, CUdeviceptr at)
{
    orion_memory_pooled(at, pooling->bytes, pooling->index);
}

void orion_pool_give_up(const struct orion_pooling *pooling, CUdeviceptr *at)
{
    __typeof__(&cuMemFreeAsync) release =
        pooling->stream.per_thread ? orion_driver.cuMemFreeAsync_ptsz : orion_driver.cuMemFreeAsync;
    if (release != NULL) release(*at, pooling->stream.handle);
    *at = 0;
}

bool orion_pool_end(const struct orion_pooling *pooling, CUresult result)
{
    struct orion_process *process = orion_the_process;
    struct orion_pools *pools = orion_pools(process);
    struct orion_pool *pool = &pools->entry[pooling->index];
    lock(pools);
    if (pooling->claims) pool->claimed -= pooling->bytes;
    else pool->promised -= pooling->growth;
    if (!pooling->claims && result != CUDA_SUCCESS) count(process, pool, pool->counted - least(pool->counted, pooling->growth));
    correct(process, pool);
    bool grew = pooling->claims && pool->overgrown != 0;
    if (pooling->claims) pool->overgrown = 0;
    if (grew) pool->wary = WARY;
    unlock(pools);
    start_polling(process, pooling->device);
    return grew;
}

/* -- Pools come and go ----------------------------------------------------------------------------------------------- */

static bool is_on(const struct orion_pool *pool, CUdevice device) { return pool->handle != NULL && pool->device == device; }

void orion_pool_made(CUmemoryPool handle, const CUmemPoolProps *properties)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL || properties == NULL) return;
    bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct orion_pools *pools = orion_pools(process);
    lock(pools);
    struct orion_pool *before = find(pools, handle); /* the hook has not seen its end */
    if (before != NULL && before->device >= 0) move(process, before->device, before->counted, 0);
    if (before != NULL) before->handle = NULL;
    enter(pools, handle, on_device ? properties->location.id : -1, false);
    unlock(pools);
}

void orion_pool_ending(CUmemoryPool handle)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || handle == NULL) return;
    struct orion_pools *pools = orion_pools(process);
    lock(pools);
    struct orion_pool *pool = find(pools, handle);
    if (pool != NULL && !pool->is_default) { /* the driver does not destroy a default pool */
        if (pool->device >= 0)
            move(process, pool->device, pool->counted, orion_memory_leave_pool((uint32_t)(pool - pools->entry), pool->device));
        pool->handle = NULL;
    }
    unlock(pools);
}

void orion_pools_ended_on(struct orion_process *process, CUdevice device)
{
    struct orion_pools *pools = orion_pools(process);
    lock(pools);
    for (uint32_t i = 0; i < pools->high; i++) {
        if (!is_on(&pools->entry[i], device) || pools->entry[i].counted == 0) continue;
        orion_memory_leave_pool(i, -1);
        count(process, &pools->entry[i], 0);
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
        if (is_in_use(&pools->entry[i], device)) less += correct(process, &pools->entry[i]);
    return less != 0;
}

bool orion_pools_look(CUdevice device)
{
    struct orion_pools *pools = orion_pools(orion_the_process);
    lock(pools);
    bool less = look(orion_the_process, device);
    unlock(pools);
    return less;
}

void orion_pools_poll(struct orion_process *process, CUdevice device)
{
    uint32_t none = 0;
    struct orion_pools *pools = orion_pools(process);
    if ((pools->high == 0 && !orion_graph_memory_exists(process)) || !atomic_compare_exchange_strong(&pools->lock, &none, 1))
        return;
    if (orion_touch(process)) {
        if (orion_graph_memory_exists(process)) enter_graphs(pools, device);
        look(process, device);
        orion_touched(process);
    }
    unlock(pools);
}

static uint64_t trim(struct orion_process *process, struct orion_pool *pool, uint64_t bytes)
{
    uint64_t held;
    if (free_part(pool) == 0 || !ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held)) return 0;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (!pool->is_of_graphs) orion_driver.cuMemPoolTrimTo(pool->handle, held > bytes ? (size_t)(held - bytes) : 0);
    else if (orion_driver.cuDeviceGraphMemTrim != NULL) orion_driver.cuDeviceGraphMemTrim(pool->device);
    orion_capture_unrelax(&relaxed);
    return correct(process, pool);
}

/* `part`: also if the pools have less free. */
static bool trim_all(CUdevice device, uint64_t bytes, bool part)
{
    struct orion_process *process = orion_the_process;
    struct orion_pools *pools = orion_pools(process);
    uint64_t spare = 0, less = 0;
    if (orion_driver.cuMemPoolTrimTo == NULL) return false;
    lock(pools);
    for (uint32_t i = 0; i < pools->high; i++)
        if (is_in_use(&pools->entry[i], device)) spare += free_part(&pools->entry[i]);
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
    lock(pools);
    enter_graphs(pools, device);
    struct orion_pool *pool = find(pools, OF_GRAPHS(device));
    if (pool != NULL) correct(process, pool);
    unlock(pools);
    uint64_t excess = orion_memory_excess(device);
    if (excess != 0) trim_all(device, excess, true);
}
