/* Memory that a pool of the program holds of the driver.
 *
 * cuMemAllocAsync takes memory from a pool, and the pool takes it from the driver: more than the program asks for, in steps
 * of 32 MiB, and it keeps it after a free. Other processes lack what the pool holds, so that counts, and not what the
 * program has taken from the pool.
 *
 * Nobody but the driver knows whether an allocation makes its pool grow. So before the allocation the hook counts the most
 * by which the pool may grow, and afterwards what the pool holds. While other calls are under way, their growth may be
 * in that figure or not: then the count becomes what the pool holds plus what those calls may add, if that is lower than
 * the count. So the count is never lower than what the pool holds, and never higher than what was reserved.
 *
 * A pool gives memory back at a synchronisation, which the hook does not watch. It reads what its pools hold where that
 * matters: before it asks for credit or refuses an allocation, for cuMemGetInfo, and four times a second for the agent. A
 * thread of its own does the last: a call of the program may hold the driver's locks for long, and the thread that serves the
 * agent has a descriptor table of its own, in which the driver's descriptors are missing. Without a limit nobody looks.
 *
 * If the growth finds no credit after a look, the allocation may have what is free in its pool: programs that use most of their
 * limit allocate so all the time, and need neither the agent nor the driver for it. If the pool grows even so, the hook trims
 * the pools, as the driver does before it refuses an allocation, and asks for credit; and for a while it does so before the
 * allocation for this pool. If there is still no credit, the memory goes back and the allocation ends with "out of memory".
 * Rejected: an estimate of which free part of a pool an allocation can have. It depends on streams, events and gaps.
 *
 * The memory of graphs with allocation nodes counts like a pool of the device: the driver keeps it for later launches. A
 * launch is never refused, so nothing is reserved for it; under a limit the hook looks after each launch of such a graph
 * (graph_memory.h).
 *
 * Pools of host memory and imported pools do not count: the hook knows the default pools of the devices, and those that
 * it sees created on a device. A destroyed pool lives on until its last allocation is freed, and the driver no longer says
 * what it holds. So from then on each of these allocations counts by itself. */
#ifndef ORION_POOLS_H
#define ORION_POOLS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"
#include "streams/stream_name.h"

#define ORION_POOLS 500u /* further pools do not count in the hook; the agent finds what they hold by NVML */

struct orion_pool {
    CUmemoryPool handle; /* NULL: the entry is free */
    uint32_t number;     /* no two pools have the same one, although they may have the same handle and entry */
    CUdevice device;     /* -1: its memory does not count */
    bool is_default, is_of_graphs;
    uint64_t counted;           /* its part of the device's sum */
    uint64_t promised, claimed; /* of calls under way: by how much they may make it grow; what they want of its free part */
    uint32_t wary;              /* so many allocations more ask and trim before they claim: the last claim made the pool grow */
    uint64_t overgrown;         /* by how much it has grown although nothing was reserved, while calls claim its free part */
};

struct orion_pools {
    _Atomic uint32_t lock;    /* a thread may sleep for it; the driver is asked under it */
    _Atomic uint32_t high;    /* the number of entries that were ever used */
    uint32_t entered;         /* the number of the newest pool */
    _Atomic uint32_t polling; /* 1: the thread that looks exists; a private futex */
    struct orion_pool entry[ORION_POOLS];
};
ORION_PART(pools)

/* An allocation from a pool. */
struct orion_pooling {
    CUmemoryPool pool; /* NULL: the current pool of the stream's device */
    struct orion_stream_name stream;
    uint64_t bytes;
    /* Set by orion_pool_begin and the functions after it. */
    uint32_t index, number; /* the pool's */
    CUdevice device;
    uint64_t growth;   /* the most by which the pool may grow */
    uint64_t promised; /* what is reserved of it */
    bool counts, claims;
};

/* Before the allocation. False: its memory does not count, as during a capture, which only records it. */
bool orion_pool_begin(struct orion_pooling *pooling);
/* Then one of these two. The first: the growth is reserved (memory.h). The second: it is not; returns whether the free part
 * of the pool may suffice. `first`: before the hook has asked the agent and trimmed. */
void orion_pool_promised(struct orion_pooling *pooling);
bool orion_pool_claim(struct orion_pooling *pooling, bool first);
/* Whether the pool may have the memory already, and need not grow. */
bool orion_pool_may_suffice(const struct orion_pooling *pooling);
/* After the driver's call. True: the pool grew although nothing was reserved. Then one of the two: the program gets the memory,
 * or not. Another thread may have destroyed the pool meanwhile. Then the memory is of the pool that is the current one now. */
bool orion_pool_end(struct orion_pooling *pooling, CUresult result);
void orion_pool_keep(const struct orion_pooling *pooling, CUdeviceptr at);
void orion_pool_give_up(const struct orion_pooling *pooling, CUdeviceptr *at);

void orion_pool_made(CUmemoryPool pool, const CUmemPoolProps *properties);
void orion_pool_ending(CUmemoryPool pool); /* before cuMemPoolDestroy */
/* After the end of a device's primary context, which may end its pools: the hook asks about one of them only when the program
 * has used it again. */
void orion_pools_ended_on(struct orion_process *process, CUdevice device);

/* After the launch of a graph that allocates: counts what graphs hold on the device. If that is more than the process may
 * hold, trims what is free. */
void orion_pools_graph_launched(CUdevice device);

/* Corrects the counts of a device's pools. True: the device's sum is lower than before. */
bool orion_pools_look(CUdevice device);
/* The same four times a second, in the thread that looks. Not while a thread of the program uses pools, a capture is open or
 * a context ends. */
void orion_pools_poll(struct orion_process *process, CUdevice device);
/* Trims pools until they hold so much less, if so much of them is free. True: they hold less. */
bool orion_pools_trim(CUdevice device, uint64_t bytes);

#endif
