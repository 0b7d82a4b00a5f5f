/* Collectives: kernels that wait on one GPU for their peers on others. They go on all GPUs of the process or on none.
 *
 * Suppose that a collective (such as NCCL's all-reduce) runs on GPU 0 while its peer is held on GPU 1. It spins on GPU
 * 0, and takes time slices from any hp there, until the hp of GPU 1 is idle. So a collective waits for every GPU on
 * which the process has launched collectives: these GPUs are *tied*. Other work waits for its own GPU's gate only.
 *
 * A collective that has begun on one GPU must be finished on all. So each GPU numbers its collectives in the order of
 * their launches: the n-th of one GPU is the peer of the n-th of another. One word for all GPUs says up to which number
 * they may begin. While every hp is idle, the word is far ahead; else it is the last number that some GPU has begun.
 * Before each collective, its stream waits for that word, then writes the number into a word of the GPU. So one store
 * closes or opens all GPUs. The valves' watchers make this store (valve.h); each looks at the hp of all tied GPUs.
 * Without a valve, the launching thread decides by the same words.
 *
 * If a process has groups of several communicators, its GPUs' numbers may be out of step, that is, far apart. Then
 * nothing is finished for another GPU's sake, and collectives are only held together. Nothing waits for ever: the word
 * opens when every hp is idle, whatever the numbers are.
 *
 * Refused: to close everything on all GPUs when one hp is busy. GPUs would be idle whose compute harms nobody. A
 * collective that has begun on one GPU would be kept from its peers, and would spin for as long as that hp is busy. */
#ifndef ORION_COLLECTIVE_H
#define ORION_COLLECTIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/stop.h"
#include "process/gpu.h"
#include "process/pinned_page.h"
#include "process/process.h"

struct orion_stream_record;
struct orion_launch;
struct orion_process;

struct orion_collectives {
    _Atomic uint32_t lock;                 /* tried, never waited for; held while the page is made or pinned */
    struct orion_pinned_page page;         /* guarded by the lock; `words` stays the same once `gpus` has a bit */
    _Atomic uint32_t pinned_epoch;         /* of the page, for threads that do not hold the lock */
    _Atomic uint32_t refused;              /* this device or driver does not support waits in streams */
    _Atomic uint32_t gpus;                 /* one bit for each index: has launched a collective; two or more are tied */
    _Atomic uint32_t launched[ORION_GPUS]; /* the number of each GPU's last collective; numbers wrap around */
};
ORION_PART(collectives)

/* Called at the launch of a collective. Returns its number. 0: only its own GPU's gate holds it. */
uint32_t orion_collective_begin(struct orion_process *process, struct orion_gpu *gpu);

/* Whether some other GPU has launched the collective of that number. */
bool orion_collective_peer_launched(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);

/* ready: whether the collective can be put behind a wait in its stream. pass: puts it there. If pass returns false, the
 * collective is gated on the CPU. */
bool orion_collective_ready(struct orion_process *process);
bool orion_collective_pass(struct orion_process *process, struct orion_stream_record *stream_record, uint32_t number);

/* For collectives that are gated on the CPU. held: whether it must wait. wait: waits until it need not. go: records
 * that it goes. */
bool orion_collective_held(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);
void orion_collective_wait(struct orion_process *process, struct orion_gpu *gpu, uint32_t number);
void orion_collective_note_unarmed(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);

/* For watchers: closes or opens the word. True: a GPU may have begun a collective meanwhile, so call again soon. */
bool orion_collective_update(struct orion_process *process);
void orion_collective_open(struct orion_process *process);

/* The tied GPU whose hp keeps a launched collective of this GPU from beginning, or NULL. */
struct orion_gpu *orion_collective_blocked_by(struct orion_process *process, const struct orion_gpu *gpu);

extern const struct orion_stop orion_collective_stop; /* claims collectives */

#endif
