/* Device memory that this process holds on each device, and what it may hold there: the limit of the grant, and
 * this client's credit.
 *
 * The limit is that of the slot. So that an allocation needs no message, the agent gives each client of the slot credit,
 * which the client spends alone; all credits together are no more than the limit. A client publishes what it holds before
 * it looks at its credit, and the agent lowers a credit before it looks at what the client holds. Both are sequentially
 * consistent, so one of them sees the other. Only more than the credit takes a message (agent/credit.h).
 * Rejected: a word that the clients of a slot share; one of them could keep the others from all memory.
 *
 * Tables map addresses and handles to sizes. A lock guards them; they are not on the launch path. The first
 * table suffices for most programs; the next one is used when an allocation finds no free entry. A process that has not
 * joined counts its memory, too: when it joins later, the limit applies to all its memory.
 *
 * Memory of cuMemCreate exists until the program has released all handles and has removed all mappings (CUDA Driver API,
 * Virtual Memory Management). So its entry counts both, and each mapping has an entry of its own. */
#ifndef ORION_MEMORY_H
#define ORION_MEMORY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/process.h"
#include "streams/stream_name.h"

#define ORION_ALLOCATIONS 16384u /* of one table; a power of two */
#define ORION_ALLOCATION_TABLES 16u

struct orion_allocation {
    uint64_t key; /* address or handle; 0: the entry is free */
    /* kind: enum orion_memory_kind; pool: 0, or the number + 1 of the pool that counts it (pools.h) */
    uint64_t bytes : 49, device : 4, kind : 2, pool : 9;
    struct orion_allocation *mapped; /* of a mapping: the memory that is mapped; else NULL */
    CUcontext context;               /* the memory ends with it; NULL: with none, or the hook does not know it */
    uint32_t handles, mappings;      /* the memory exists until both are 0 */
    uint32_t ends;                   /* `ends` of struct orion_memory when the entry was made */
};

struct orion_memory {
    _Atomic uint32_t lock;
    uint32_t tables;              /* that have entries */
    uint32_t ends;                /* calls that may end a context and have begun */
    _Atomic uint32_t managed;     /* allocations of managed memory */
    _Atomic uint32_t has_managed; /* 1: has got managed memory in another way */
    _Atomic uint32_t on_host;     /* 1: has got a pool or memory of cuMemCreate on the host */
    _Atomic uint32_t shared;      /* 1: has had memory of another process, or has given one, or a device, a handle of its own */
    uint64_t used[ORION_GPUS];    /* by device */
    uint64_t movable[ORION_GPUS]; /* the part of it that is managed */
    uint64_t taking[ORION_GPUS];  /* the part of it that the driver is about to be asked for, or is asked for now */
    _Atomic uint32_t has_green;   /* 1: the program has asked for a green context */
    struct orion_allocation allocation[ORION_ALLOCATION_TABLES][ORION_ALLOCATIONS];
};
ORION_PART(memory)

/* Writes the bytes that are used on the GPU into its record page. */
void orion_memory_publish(struct orion_process *process, struct orion_gpu *gpu);

/* The device on which an allocation in the current context, or one in the order of a stream, takes memory. -1: the
 * driver names none, so the allocation will fail. */
CUdevice orion_memory_device(void);
CUdevice orion_memory_device_of(struct orion_stream_name stream);

/* Called before an allocation. Memory on a device that the hook does not manage, and on none (-1), does not count.
 * ORION_BEYOND_CREDIT: `wish` says which client wants how much in all. */
enum orion_memory_kind {
    ORION_MEMORY_RESIDENT = 0, /* stays on the GPU */
    ORION_MEMORY_MANAGED = 1,  /* the program allocated it as managed memory */
    ORION_MEMORY_UNIFIED = 2   /* the program allocated device memory, and the hook made it managed (unified.h) */
};
enum orion_reservation { ORION_RESERVED, ORION_BEYOND_LIMIT, ORION_BEYOND_CREDIT };
struct orion_wish {
    struct orion_gpu *gpu;
    uint64_t bytes, lacks; /* lacks: how much less this client must hold so that the allocation may begin */
};
enum orion_reservation orion_memory_reserve(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, struct orion_wish *wish);
/* What is reserved may be taken at any moment, until the call has ended, but not while it waits for a word of the agent (`takes`
 * false). Nobody may be let back into that room, whatever the driver says to be free. */
void orion_memory_takes(CUdevice device, uint64_t bytes, bool takes);
uint64_t orion_memory_excess(CUdevice device);    /* how much more the process holds than it may */
void orion_memory_refused(struct orion_gpu *gpu); /* counts an allocation that fails because of the limit */

/* Called after an allocation that was reserved. `key` is the address or handle; `result` is the driver's. The second function is for
 * memory that ends with the current context: what cuMemAlloc, cuMemAllocPitch and cuMemAllocManaged allocate, and arrays. */
void orion_memory_reserved(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, uint64_t key, CUresult result);
void orion_memory_allocated(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, uint64_t key, CUresult result);

/* After an allocation from a pool, which counts the memory: notes whose memory is at the address. The second function
 * returns what such allocations of a pool still hold; from then on each of them counts by itself, or with device -1 none. */
void orion_memory_pooled(uint64_t key, uint64_t bytes, uint32_t pool);
uint64_t orion_memory_leave_pool(uint32_t pool, CUdevice device);

/* Called before and after a free. The entry goes before the driver frees the memory: at once afterwards, another thread
 * may get the same address or handle. The bytes count until the driver has freed them. */
struct orion_release {
    uint64_t key, bytes;
    CUcontext context;
    CUdevice device;
    enum orion_memory_kind kind;
};
struct orion_release orion_memory_releasing(uint64_t key);
void orion_memory_released(const struct orion_release *release, CUresult result);

/* After cuMemMap and cuMemUnmap, and after a cuMemRetainAllocationHandle that succeeded. Mappings of imported memory do not count. */
void orion_memory_mapped(CUdeviceptr at, size_t bytes, uint64_t handle, CUresult result);
void orion_memory_unmapped(CUdeviceptr at, size_t bytes, CUresult result);
void orion_memory_retained(uint64_t handle, uintptr_t address);

/* Some kinds of memory keep the process on the GPU (parking/steps.h): managed memory, and shared memory. After a call by which
 * processes or devices share memory: */
void orion_memory_shared(void);
static inline bool orion_memory_asks_for_tokens(const CUpointer_attribute *attributes, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return true;
    return false;
}
/* After the process has got a variable of managed memory, and after it has got a pool or memory of cuMemCreate there. For good:
 * memory outlives its pool. The driver does not bring such memory on the host back: a restore fails, or the checkpoint hangs (580). */
void orion_memory_managed(void);
void orion_memory_placed(const CUmemLocation *location, CUmemAllocationType type);
static inline bool orion_memory_is_managed(const struct orion_process *process)
{
    return atomic_load_explicit(&orion_memory(process)->managed, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&orion_memory(process)->has_managed, memory_order_relaxed) != 0;
}
static inline bool orion_memory_is_on_host(const struct orion_process *process)
{
    return atomic_load_explicit(&orion_memory(process)->on_host, memory_order_relaxed) != 0;
}
static inline bool orion_memory_is_shared(const struct orion_process *process)
{
    return atomic_load_explicit(&orion_memory(process)->shared, memory_order_relaxed) != 0;
}

/* After the driver has said how much memory a device has: applies the limit. Either pointer may be NULL. The first function waits,
 * for a bounded time, until a join has succeeded or failed. The second one does not; false: the process has no client there, or not
 * yet, so its slot may limit it. */
void orion_memory_info(CUdevice device, size_t *free_bytes, size_t *total_bytes);
/* hp waits for others to leave a full GPU (parking/room.h), so what they would leave is as good as free. */
static inline uint64_t orion_memory_leaving(const struct orion_grant_page *page)
{
    const struct orion_grant *grant = &page->copy[atomic_load_explicit(&page->current, memory_order_acquire) & 1];
    return grant->memory_wait_ns != 0 ? (uint64_t)atomic_load(&page->leaving_mib) << 20 : 0;
}
uint64_t orion_memory_leaves(CUdevice device); /* the same for the process's slot; 0: it has none */
bool orion_memory_total(CUdevice device, size_t *total_bytes);
static inline void orion_memory_limit_total(size_t *total_bytes, uint64_t limit, bool beyond)
{
    if (total_bytes != NULL && (beyond || *total_bytes > limit)) *total_bytes = limit;
}
struct orion_gpu *orion_memory_limiting(CUdevice device); /* the client that has joined and has a limit, or NULL */
bool orion_memory_is_beyond(CUdevice device);             /* the GPU bounds neither figure (unified.h) */

/* -1: the memory is not on a device. cuMemCreate can also allocate host memory, which does not count for the slot. */
static inline CUdevice orion_device_at(const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) return location->id;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN ? location->localized.deviceId : -1;
}

static inline CUdevice orion_device_of(const CUmemAllocationProp *properties)
{
    return properties != NULL ? orion_device_at(&properties->location) : -1;
}

static inline uint64_t orion_bytes_on_device(const CUmemAllocationProp *properties, size_t size)
{
    return orion_device_of(properties) >= 0 ? size : 0;
}

#endif
