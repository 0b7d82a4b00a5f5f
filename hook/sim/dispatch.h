/* Which SMs a kernel runs on, and how long it takes on them. All of it under the lock. */
#ifndef ORION_SIM_DISPATCH_H
#define ORION_SIM_DISPATCH_H

#include "shared.h"

struct sim_sms sim_all_sms(void); /* of a GPU of this machine */
uint64_t sim_count_sms(const struct sim_sms *sms);

/* Give the free SMs of a GPU to the kernels of the group that has its compute engine. */
void sim_dispatch(uint64_t gpu);

/* The SMs of a stream's running kernel are free again. */
void sim_dispatch_release(uint64_t stream);

/* What is left to do of a stream's head, which is running: of a kernel, if it had all the SMs that it needs. */
uint64_t sim_remaining_ns(struct sim_state *state, uint64_t stream);

/* As long as an operation of the stream takes from now on at least, should it get every SM that it may use. */
uint64_t sim_least_ns(struct sim_state *state, uint64_t stream, const struct sim_op *op);

#endif
