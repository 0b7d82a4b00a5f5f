/* Kernels that wait for kernels of other GPUs, as NCCL's collectives do. Such a kernel adds 1 to a word when it begins. It
 * keeps its SMs and does not advance, which is to spin, until the word has the kernel's number. The word is in memory that
 * the programs share. This process's keeper reads and writes it. */
#include <stdlib.h>

#include "dispatch.h"
#include "effect.h"
#include "engine.h"
#include "sim.h"
#include "state.h"

struct meeting {
    struct sim_position at;
    _Atomic uint32_t *word;
    uint32_t number;
    bool announced;
};

/* The kernel, if it is at the head of its stream; NULL: it is not, or no longer. Needs the lock. */
static const struct sim_op *kernel_of(const struct meeting *meeting)
{
    struct sim_state *state = sim_state();
    const struct sim_stream *of = &state->streams[meeting->at.stream];
    bool there = of->generation == meeting->at.generation && of->done + 1 == meeting->at.number;
    return there ? sim_head_of(state, meeting->at.stream) : NULL;
}

static bool has_begun(const struct meeting *meeting)
{
    sim_enter();
    const struct sim_op *kernel = kernel_of(meeting);
    bool begun = kernel && kernel->end_ns;
    sim_leave();
    return begun;
}

/* The effect is never done by itself: the kernel's end takes it out of the list. */
static bool meet(void *data)
{
    struct meeting *meeting = data;
    if (!meeting->announced) {
        if (!has_begun(meeting)) return false;
        atomic_fetch_add(meeting->word, 1);
        meeting->announced = true;
    }
    if ((int32_t)(atomic_load(meeting->word) - meeting->number) < 0) return false;
    do {
        sim_enter();
        const struct sim_op *kernel = kernel_of(meeting);
        if (kernel && kernel->c == SIM_SPINS_FOR_PEERS) {
            sim_dispatch_met(meeting->at.stream);
            sim_run();
        }
    } while (!sim_leave());
    sim_effects_wake(); /* threads that wait for the kernel slept without an end, as it had none */
    return false;
}

CUresult sim_submit_meeting(struct CUstream_st *stream, const struct sim_op *kernel, uint64_t word, uint64_t number)
{
    struct sim_op op = *kernel;
    SIM_REFUSE(!word || word % sizeof(uint32_t), CUDA_ERROR_INVALID_VALUE);
    struct meeting *meeting = malloc(sizeof *meeting);
    SIM_REFUSE(!meeting, CUDA_ERROR_OUT_OF_MEMORY);
    *meeting = (struct meeting){.word = (_Atomic uint32_t *)(uintptr_t)word, .number = (uint32_t)number};
    op.c = SIM_SPINS_FOR_PEERS;
    SIM_TRY(sim_submit(stream, &op, &meeting->at));
    sim_effect_add(&meeting->at, meet, meeting, 0);
    return CUDA_SUCCESS;
}
