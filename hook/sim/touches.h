/* The managed memory that work needs, as `touches` of struct sim_op says it. */
#ifndef ORION_SIM_TOUCHES_H
#define ORION_SIM_TOUCHES_H

#include "sim.h"

/* Of a kernel: the allocations that its parameters name. If they name none at all, nobody knows: all of its context. */
uint64_t sim_touches_of(const struct sim_kernel *kernel, void *const *parameters);

/* The allocation that contains an address; and a part of it, for SIM_PARTLY. */
uint64_t sim_touches_at(uintptr_t address);
uint64_t sim_touches_part(uintptr_t address, size_t bytes);

#endif
