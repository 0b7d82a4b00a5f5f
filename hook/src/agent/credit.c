#include "agent/credit.h"

#include <limits.h>

#include "agent/credit_request.h"
#include "agent/view.h"
#include "generated/driver.h"
#include "memory/memory.h"
#include "memory/pools.h"

static bool reserve(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, struct orion_wish *wish,
                    struct orion_credit_wait *wait)
{
    enum orion_reservation reservation;
    while ((reservation = orion_memory_reserve(device, bytes, kind, wish)) == ORION_BEYOND_CREDIT)
        if (orion_credit_request(wish->gpu, wish->bytes, wait) == ORION_CREDIT_NO) break;
    return reservation == ORION_RESERVED;
}

/* Without the agent. */
static bool reserve_at_once(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, struct orion_wish *wish)
{
    if (orion_memory_reserve(device, bytes, kind, wish) == ORION_RESERVED) return true;
    return orion_pools_look(device) && orion_memory_reserve(device, bytes, kind, wish) == ORION_RESERVED;
}

/* Trimming comes last: the program's next allocations would have found that memory in its pools. */
static bool find_room(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, struct orion_wish *wish)
{
    struct orion_credit_wait wait = {0};
    if (reserve_at_once(device, bytes, kind, wish) || reserve(device, bytes, kind, wish, &wait)) return true;
    return orion_pools_trim(device, wish->lacks) && reserve(device, bytes, kind, wish, &wait);
}

/* The agent charges a process what its context takes, as the driver says. It learns when there is a context by the process's
 * first wish, which comes before the first allocation, even if the process has credit. */
static void tell_first(CUdevice device)
{
    struct orion_gpu *gpu = orion_memory_limiting(device);
    if (gpu != NULL) orion_credit_first(gpu);
}

/* CUDA's runtime asks for the total of each visible GPU when it starts. Who only asks that uses no memory: as a client, each helper of
 * a program and each rank of a job would be charged a context that it never makes. */
static void show_total(CUdevice device, size_t *total_bytes)
{
    char uuid[48];
    struct orion_room room;
    if (orion_memory_total(device, total_bytes) || !orion_gpu_name(device, uuid)) return;
    if (orion_view_room(uuid, &room)) orion_memory_limit_total(total_bytes, room.limit, room.beyond);
}

void orion_room_is_asked(CUdevice device, size_t *free_bytes, size_t *total_bytes)
{
    if (free_bytes == NULL) {
        show_total(device, total_bytes);
        return;
    }
    tell_first(device);
    orion_memory_info(device, free_bytes, total_bytes);
}

static unsigned narrowed(size_t bytes) { return bytes < UINT_MAX ? (unsigned)bytes : UINT_MAX; }

/* What the driver writes for a GPU of more than 4 GiB is not documented, so it counts only where there is no limit. */
void orion_narrow_room_is_asked(CUdevice device, unsigned *free_bytes, unsigned *total_bytes)
{
    size_t of_gpu, total = SIZE_MAX, left = SIZE_MAX;
    if (free_bytes != NULL && orion_driver.cuMemGetInfo_v2 != NULL) orion_driver.cuMemGetInfo_v2(&left, &of_gpu);
    orion_room_is_asked(device, free_bytes != NULL ? &left : NULL, &total);
    if (total == SIZE_MAX) return;
    if (free_bytes != NULL) *free_bytes = narrowed(left);
    if (total_bytes != NULL) *total_bytes = narrowed(total);
}

bool orion_allocation_may_begin(CUdevice device, uint64_t bytes, enum orion_memory_kind kind)
{
    struct orion_wish wish;
    if (bytes != 0) tell_first(device);
    if (find_room(device, bytes, kind, &wish)) return true;
    orion_memory_refused(wish.gpu);
    return false;
}

bool orion_pool_may_begin(struct orion_pooling *pooling)
{
    struct orion_wish wish;
    if (!pooling->counts) return true;
    tell_first(pooling->device);
    if (reserve_at_once(pooling->device, pooling->growth, ORION_MEMORY_RESIDENT, &wish)) {
        orion_pool_promised(pooling);
        return true;
    }
    if (orion_pool_claim(pooling, true)) return true;
    if (find_room(pooling->device, pooling->growth, ORION_MEMORY_RESIDENT, &wish)) {
        orion_pool_promised(pooling);
        return true;
    }
    if (orion_pool_claim(pooling, false)) return true;
    orion_memory_refused(wish.gpu);
    return false;
}

/* After an allocation that nothing was reserved for: the limit holds for what the process has then. */
static bool may_keep(CUdevice device)
{
    struct orion_wish wish;
    struct orion_credit_wait wait = {0};
    uint64_t excess = orion_memory_excess(device);
    if (excess == 0 || (orion_pools_trim(device, excess) && orion_memory_excess(device) == 0)) return true;
    if (!reserve(device, 1, ORION_MEMORY_RESIDENT, &wish, &wait)) return false;
    orion_memory_reserved(device, 1, ORION_MEMORY_RESIDENT, 0, CUDA_ERROR_OUT_OF_MEMORY);
    return true;
}

CUresult orion_pool_ended(struct orion_pooling *pooling, CUdeviceptr *at, CUresult result)
{
    if (!pooling->counts) return result;
    bool grew = orion_pool_end(pooling, result);
    if (result != CUDA_SUCCESS) return result;
    if (grew && !may_keep(pooling->device)) {
        orion_pool_give_up(pooling, at);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    orion_pool_keep(pooling, *at);
    return CUDA_SUCCESS;
}
