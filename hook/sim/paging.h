/* Managed memory, which may exceed the GPU: see paging.c. All functions but the first two need the lock. */
#ifndef ORION_SIM_PAGING_H
#define ORION_SIM_PAGING_H

#include <stdbool.h>

#include "shared.h"

struct CUctx_st;

/* Charge a context for managed memory, and return it. */
void sim_managed_take(struct CUctx_st *context, uint64_t bytes);
void sim_managed_return(struct CUctx_st *context, uint64_t bytes);

/* Make `bytes` of a GPU free, if managed memory is in the way: that of the contexts that have not run for longest. False:
 * there is not so much. */
bool sim_paging_make_room(uint64_t gpu, uint64_t bytes);

/* Let the pages come in that kernels at the heads of streams need, which may begin now but for them. */
void sim_paging_bring(uint64_t gpu);
/* Do the pages of a stream's context still come in? */
bool sim_paging_waits(const struct sim_state *state, uint64_t stream);

/* A prefetch begins: moves pages, and returns how long that takes. */
uint64_t sim_paging_prefetch(uint64_t stream, enum sim_engine engine, uint64_t bytes);

#endif
