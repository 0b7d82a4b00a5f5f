#include "memory/account.h"

#include "memory/memory.h"
#include "memory/pools.h"
#include "process/process.h"
#include "system/lock.h"

void orion_account_lock(struct orion_memory *memory) { orion_lock(&memory->lock); }
void orion_account_unlock(struct orion_memory *memory) { orion_unlock(&memory->lock); }

static bool has_joined(const struct orion_gpu *gpu) { return atomic_load(&gpu->role) != ORION_ROLE_NONE; }

struct orion_gpu *orion_account_client(struct orion_process *process, CUdevice device, bool awaits)
{
    ORION_EACH_GPU(gpu, process) {
        if (gpu->device != device) continue;
        if (awaits) orion_gpu_await_limit(gpu);
        if (has_joined(gpu) || atomic_load(&gpu->known_limit) != 0) return gpu;
    }
    return NULL;
}

/* The limit is unknown until the join has succeeded or failed, so the caller waits for the join. */
static struct orion_gpu *limiting_gpu(struct orion_process *process, CUdevice device)
{
    return orion_account_client(process, device, true);
}

static uint64_t limit_of(struct orion_gpu *gpu) { return gpu == NULL ? 0 : orion_gpu_limit(gpu); }

bool orion_account_is_limited(struct orion_process *process, CUdevice device)
{
    return limit_of(orion_account_client(process, device, false)) != 0;
}

static uint64_t above(uint64_t bytes, uint64_t most) { return bytes > most ? bytes - most : 0; }

static uint64_t in_mib(uint64_t bytes) { return (bytes + (1u << 20) - 1) >> 20; }

/* The driver's answer to the agent may be of any moment since the question. */
static void publish_extremes(struct orion_gpu *gpu, uint64_t used)
{
    struct orion_record_page *record = gpu->record;
    uint64_t question = (uint64_t)atomic_load(&gpu->grant->question) << 32, now = question | in_mib(used);
    uint64_t least = atomic_load(&record->memory_least), most = atomic_load(&record->memory_most);
    if (most >> 32 != question >> 32) least = most = question | in_mib(atomic_load(&record->memory_bytes));
    atomic_store(&record->memory_least, now < least ? now : least);
    atomic_store(&record->memory_most, now > most ? now : most);
}

/* Writes what the process holds on the GPU, and then to which credit it keeps. Sequentially consistent: a later look at the
 * credit, or at who comes back, comes after it. The caller has the lock, so the page never lags behind. */
static void publish_to(struct orion_gpu *gpu, uint64_t used)
{
    uint64_t taken = above(used, orion_memory(orion_the_process)->taking[gpu->device]);
    publish_extremes(gpu, used);
    atomic_store(&gpu->record->has_pools, atomic_load(&orion_pools(orion_the_process)->high) != 0);
    atomic_store(&gpu->record->memory_bytes, used);
    atomic_store(&gpu->record->memory_taken, ORION_MEMORY_TAKEN | taken);
    atomic_store(&gpu->record->credit_epoch, atomic_load(&gpu->grant->credit_epoch));
}

void orion_memory_publish(struct orion_process *process, struct orion_gpu *gpu)
{
    if (!orion_account_counts(gpu->device)) return;
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
    publish_to(gpu, memory->used[gpu->device]);
    orion_account_unlock(memory);
}

void orion_account_change(struct orion_process *process, CUdevice device, uint64_t used)
{
    orion_memory(process)->used[device] = used;
    struct orion_gpu *gpu = orion_account_client(process, device, false);
    if (gpu != NULL && has_joined(gpu)) publish_to(gpu, used);
}

void orion_account_give_back(struct orion_process *process, CUdevice device, uint64_t bytes, enum orion_memory_kind kind)
{
    uint64_t *movable = &orion_memory(process)->movable[device];
    if (kind != ORION_MEMORY_RESIDENT) *movable -= bytes < *movable ? bytes : *movable;
    uint64_t used = orion_memory(process)->used[device];
    orion_account_change(process, device, used > bytes ? used - bytes : 0);
}

void orion_account_takes(struct orion_process *process, CUdevice device, uint64_t bytes, bool takes)
{
    uint64_t *taking = &orion_memory(process)->taking[device];
    *taking = takes ? *taking + bytes : above(*taking, bytes);
    orion_account_change(process, device, orion_memory(process)->used[device]);
}

void orion_memory_takes(CUdevice device, uint64_t bytes, bool takes)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || bytes == 0 || !orion_account_counts(device)) return;
    orion_account_lock(orion_memory(process));
    orion_account_takes(process, device, orion_account_countable(bytes), takes);
    orion_account_unlock(orion_memory(process));
}

/* An agent that gives no credit has the epoch 0; then each process has the whole limit. So has one that has not joined. */
static uint64_t credit_of(const struct orion_gpu *gpu)
{
    if (!has_joined(gpu) || atomic_load(&gpu->grant->credit_epoch) == 0) return UINT64_MAX;
    uint32_t index = gpu->record->client_index;
    return index < ORION_GPU_CLIENTS_MAX ? (uint64_t)atomic_load(&gpu->grant->credit_mib[index]) << 20 : 0;
}
static bool is_within_credit(const struct orion_gpu *gpu, uint64_t used) { return used <= credit_of(gpu); }

/* What is not managed can be on the GPU only, so in a slot whose memory moves it must not be more than the slot is sure of. */
static uint64_t resident_most(const struct orion_gpu *gpu)
{
    const struct orion_grant *grant = gpu == NULL || !has_joined(gpu) ? NULL : orion_gpu_grant(gpu);
    bool moves = grant != NULL && grant->unified != ORION_UNIFIED_NONE && grant->memory_request_bytes != 0;
    return moves ? grant->memory_request_bytes : UINT64_MAX;
}

static uint64_t greatest(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t orion_memory_excess(CUdevice device)
{
    struct orion_process *process = orion_the_process;
    struct orion_gpu *gpu = orion_account_client(process, device, false);
    uint64_t most = limit_of(gpu);
    if (most == 0) return 0;
    orion_account_lock(orion_memory(process));
    uint64_t used = orion_memory(process)->used[device], movable = orion_memory(process)->movable[device];
    orion_account_unlock(orion_memory(process));
    if (credit_of(gpu) < most) most = credit_of(gpu);
    return greatest(above(used, most), above(used - movable, resident_most(gpu)));
}

void orion_memory_refused(struct orion_gpu *gpu)
{
    atomic_fetch_add_explicit(&gpu->record->memory_refusals, 1, memory_order_relaxed);
}

/* Counts the memory if the client has the credit for it. The caller has the lock. */
static enum orion_reservation take(struct orion_process *process, struct orion_gpu *gpu, CUdevice device, uint64_t after,
                                   bool needs_credit)
{
    struct orion_memory *memory = orion_memory(process);
    uint64_t before = memory->used[device], taking = memory->taking[device];
    /* Without a word in the page: the agent would count it as held. */
    if (needs_credit && !is_within_credit(gpu, after)) return ORION_BEYOND_CREDIT;
    memory->taking[device] = taking + (after - before);
    orion_account_change(process, device, after);
    if (!needs_credit || is_within_credit(gpu, after)) return ORION_RESERVED;
    memory->taking[device] = taking;
    orion_account_change(process, device, before); /* the credit was lowered meanwhile */
    return ORION_BEYOND_CREDIT;
}

enum orion_reservation orion_memory_reserve(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, struct orion_wish *wish)
{
    bytes = orion_account_countable(bytes);
    struct orion_process *process = orion_the_process;
    if (process == NULL || !orion_account_counts(device)) return ORION_RESERVED;
    struct orion_gpu *gpu = limiting_gpu(process, device);
    struct orion_memory *memory = orion_memory(process);
    enum orion_reservation result = ORION_BEYOND_LIMIT;
    orion_account_lock(memory);
    uint64_t limit = limit_of(gpu), after = memory->used[device] + bytes;
    uint64_t resident = kind == ORION_MEMORY_RESIDENT ? above(after - memory->movable[device], resident_most(gpu)) : 0;
    if ((limit == 0 || after <= limit) && resident == 0) result = take(process, gpu, device, after, limit != 0 && bytes != 0);
    if (result == ORION_RESERVED && kind != ORION_MEMORY_RESIDENT) memory->movable[device] += bytes;
    orion_account_unlock(memory);
    uint64_t most = gpu == NULL || credit_of(gpu) > limit ? limit : credit_of(gpu);
    *wish = (struct orion_wish){gpu, after, greatest(above(after, most), resident)};
    return result;
}

struct orion_gpu *orion_memory_limiting(CUdevice device)
{
    if (orion_the_process == NULL || !orion_account_counts(device)) return NULL;
    struct orion_gpu *gpu = limiting_gpu(orion_the_process, device);
    return limit_of(gpu) != 0 && credit_of(gpu) != UINT64_MAX ? gpu : NULL;
}

bool orion_memory_is_beyond(CUdevice device)
{
    struct orion_gpu *gpu = orion_the_process == NULL ? NULL : orion_account_client(orion_the_process, device, false);
    return gpu != NULL && orion_gpu_grant(gpu)->unified == ORION_UNIFIED_BEYOND;
}

uint64_t orion_memory_leaves(CUdevice device)
{
    struct orion_gpu *gpu = orion_the_process == NULL ? NULL : orion_account_client(orion_the_process, device, false);
    return gpu == NULL ? 0 : orion_memory_leaving(gpu->grant);
}

/* What other processes of the slot hold, and the driver for this one, is what the agent has said lately. What this process holds is what
 * it knows itself: a program compares what is free before and after its own allocations. */
static uint64_t used_of_slot(const struct orion_gpu *gpu, uint64_t used)
{
    uint64_t besides = atomic_load(&gpu->grant->besides[gpu->record->client_index % ORION_BESIDES]);
    if (has_joined(gpu) && besides >> 32 == gpu->record->generation) return used + ((besides & UINT32_MAX) << 20);
    return greatest((uint64_t)atomic_load(&gpu->grant->used_mib) << 20, used);
}

/* What is left of this client's own credit is surely free. */
void orion_memory_info(CUdevice device, size_t *free_bytes, size_t *total_bytes)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || !orion_account_counts(device)) return;
    struct orion_gpu *gpu = limiting_gpu(process, device);
    uint64_t limit = limit_of(gpu);
    if (limit == 0) return;
    orion_pools_look(device);
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
    uint64_t used = memory->used[device];
    orion_account_unlock(memory);
    uint64_t of_slot = used_of_slot(gpu, used), left = of_slot < limit ? limit - of_slot : 0;
    uint64_t own = credit_of(gpu);
    if (own > limit) own = limit;
    if (own > used && left < own - used) left = own - used;
    bool beyond = orion_memory_is_beyond(device);
    orion_memory_limit_total(total_bytes, limit, beyond);
    if (free_bytes == NULL) return;
    if (beyond) *free_bytes = left;
    uint64_t leaving = orion_memory_leaving(gpu->grant);
    if (*free_bytes >= left || leaving >= left - *free_bytes) *free_bytes = left; /* NVML's caller passes SIZE_MAX */
    else *free_bytes += leaving;
}

/* Until a join under way has ended, only an agent can say whether the GPU bounds the total. */
bool orion_memory_total(CUdevice device, size_t *total_bytes)
{
    struct orion_process *process = orion_the_process;
    if (!orion_account_counts(device)) return true;
    if (process == NULL) return false;
    struct orion_gpu *gpu = orion_account_client(process, device, false);
    if (gpu == NULL) gpu = orion_gpu_find(process, device);
    if (gpu == NULL || atomic_load(&gpu->join) <= ORION_JOIN_TRYING) return false;
    uint64_t limit = limit_of(gpu);
    if (limit != 0) orion_memory_limit_total(total_bytes, limit, orion_memory_is_beyond(device));
    return true;
}
