/* Chooses the SMs of a kernel, and computes how long the kernel takes on them. All functions need the lock. */
#ifndef ORION_SIM_DISPATCH_H
#define ORION_SIM_DISPATCH_H

#include "shared.h"

struct sim_sms sim_all_sms(void); /* all SMs of a GPU of this machine */
uint64_t sim_count_sms(const struct sim_sms *sms);

/* Give the free SMs of a GPU to the kernels of the group that has the GPU's compute engine. A group is one context, or
 * all contexts of MPS clients together. */
void sim_dispatch(uint64_t gpu);

/* The kernel at the head of a stream has met its peers (meeting.c). */
void sim_dispatch_met(uint64_t stream);

/* Free the SMs of a stream's running kernel. */
void sim_dispatch_release(uint64_t stream);

/* The remaining time of the operation that runs at the head of a stream. For a kernel: the time that the kernel
 * takes on all the SMs that it needs. */
uint64_t sim_remaining_ns(struct sim_state *state, uint64_t stream);

/* The least time that an operation of the stream takes from now on, if it gets every SM that it may use. */
uint64_t sim_least_ns(struct sim_state *state, uint64_t stream, const struct sim_op *op);

#endif
