/* The memory ranges that this process has allocated from the driver. */
#ifndef ORION_SIM_ALLOCATION_H
#define ORION_SIM_ALLOCATION_H

#include "sim.h"

enum sim_memory { SIM_DEVICE_MEMORY, SIM_PINNED, SIM_REGISTERED, SIM_MANAGED, SIM_POOLED, SIM_MAPPED, SIM_OF_GRAPH, SIM_OPENED };

struct sim_allocation {
    uintptr_t start;
    size_t size;    /* as requested */
    size_t charged; /* bytes charged to the device */
    enum sim_memory memory;
    unsigned flags;
    unsigned long long id;
    struct CUctx_st *context;
    void *pool;     /* for pooled memory: its pool */
    uint64_t range; /* of managed memory: its slot in the machine's ranges */
    int file;       /* of memory that other processes may open (ipc.c); 0: none */
};

/* Reserve address space for `size` bytes. Linux adds memory when a program touches it. NULL: no address space is left.
 * */
void *sim_pages(size_t size);
void sim_pages_free(void *pages, size_t size);

/* Add a range. False: there is no memory for the entry. */
bool sim_allocation_add(const struct sim_allocation *allocation);
/* Reserve `bytes` for a range, set its start and add it. False: there is no memory. */
bool sim_allocation_make(struct sim_allocation *allocation, size_t bytes);
/* Copy the range that contains `address` to `found`. False: no range contains it. */
bool sim_allocation_find(uintptr_t address, struct sim_allocation *found);
/* Remove the range that starts at `start`. */
bool sim_allocation_remove(uintptr_t start, struct sim_allocation *removed);

/* Other processes may open the memory that starts at `start` by this file. False: no such range. */
bool sim_allocation_share(uintptr_t start, int file);
/* Does the process have device memory of a kind that no checkpoint can save: managed, or shared by ipc.c? */
bool sim_allocation_unsaved(void);

/* Is the address in device memory? Copies need this to choose an engine. */
bool sim_on_device(const void *address);

/* The bytes that an allocation is charged. Small allocations are charged whole pages, so that addresses have CUDA's
 * alignment. Large allocations are charged whole granules. */
size_t sim_charge(size_t size);

/* Allocate device memory and charge `context` for it; the second function frees the memory. */
CUresult sim_device_memory(struct CUctx_st *context, size_t size, enum sim_memory memory, uintptr_t *start);
void sim_device_memory_free(const struct sim_allocation *allocation);

/* Allocate managed memory, which may exceed the device (paging.c). */
CUresult sim_managed_memory(struct CUctx_st *context, size_t size, uintptr_t *start);

/* Charge `context` for `size` bytes at an address that stays reserved; sim_device_memory_free ends that, too. */
CUresult sim_device_memory_at(struct CUctx_st *context, uintptr_t start, size_t size);

/* Take memory for a graph, and return it; the device's graphs keep it until cuDeviceGraphMemTrim. */
bool sim_graphs_take(struct CUctx_st *context, uint64_t charged);
void sim_graphs_give(struct CUctx_st *context, uint64_t charged);

/* Return memory to its pool. */
CUresult sim_pool_free(const struct sim_allocation *allocation);

#endif
