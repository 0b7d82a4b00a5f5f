/* Decides which operation runs when. All functions need the lock and depend only on the time. */
#ifndef ORION_SIM_ENGINE_H
#define ORION_SIM_ENGINE_H

#include "shared.h"

/* Advance the machine to `now_ns`, step by step. */
void sim_advance(uint64_t now_ns);

/* Complete and start what is due at the present time, and set the time of the next step (next_ns). */
void sim_run(void);

/* Discard everything queued in a stream and free its entry in the shared state. */
void sim_drop_stream(uint64_t stream);

static inline struct sim_op *sim_op_at(struct sim_state *state, uint64_t stream, uint64_t number)
{
    return &state->queue[stream][number % SIM_QUEUE];
}

static inline struct sim_op *sim_head_of(struct sim_state *state, uint64_t stream)
{
    return sim_op_at(state, stream, state->streams[stream].done);
}

static inline uint64_t sim_gpu_of(struct sim_state *state, uint64_t stream)
{
    return state->contexts[state->streams[stream].context].gpu;
}

/* The group of a stream's context: the context alone, or all contexts of MPS clients together (struct sim_context). */
uint64_t sim_group_of(struct sim_state *state, uint64_t stream);

#endif
