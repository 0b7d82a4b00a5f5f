/* Managed memory, which may exceed the GPU: see paging.c. All functions but the first two need the lock. */
#ifndef ORION_SIM_PAGING_H
#define ORION_SIM_PAGING_H

#include <stdbool.h>

#include "shared.h"

struct CUctx_st;

/* Charge a context for managed memory, and return it. False: the machine has too many such allocations. */
bool sim_managed_take(struct CUctx_st *context, uint64_t bytes, uint64_t *range);
void sim_managed_return(struct CUctx_st *context, uint64_t range);

/* A context has ended. */
void sim_paging_forget(uint64_t context);

/* Make `bytes` of a GPU free, if managed memory is in the way: what was not touched for longest. False: there is not so much. */
bool sim_paging_make_room(uint64_t gpu, uint64_t bytes);

/* Let the pages come in that kernels at the heads of streams need, which may begin now but for them. */
void sim_paging_bring(uint64_t gpu);
/* Does the kernel at the head of a stream, which does not run, wait for pages? */
bool sim_paging_waits(struct sim_state *state, uint64_t stream);
/* When those of these pages have come that are on their way; 0: none are. */
uint64_t sim_paging_due_ns(struct sim_state *state, uint64_t stream);
/* The kernel at the head of a stream begins. */
void sim_paging_begins(uint64_t stream);

/* The prefetch at the head of a stream begins: moves pages, and returns how long that takes. */
uint64_t sim_paging_prefetch(uint64_t stream, enum sim_engine engine);

#endif
