/* Collectives: kernels that wait on one GPU for their peers on others, let through on all GPUs of the process or on none.
 *
 * A collective (NCCL's all-reduce and the like) that runs on GPU 0 while its peer is held on GPU 1 spins on GPU 0, and
 * takes time slices from an hp that comes there, until the hp of GPU 1 is idle. So collectives, and only those, wait for
 * every GPU on which the process has launched any: the GPUs are *tied*. What is computed between two collectives goes on
 * by each GPU's own gate. Refused: closing everything on all GPUs with the first one. It would keep GPUs idle whose
 * compute harms nobody, and it would keep from its peers a collective that has begun already on one GPU, which then spins
 * for as long as the hp lasts that should be spared.
 *
 * For a collective that has begun somewhere has to be finished everywhere. So the collectives of a GPU are numbered in the
 * order of their launches, the n-th of one GPU being the peer of the n-th of another, and one word for all GPUs says up
 * to which number they may begin: far ahead while every hp is idle; else up to the last one that some GPU has begun.
 * Before each collective stand, in its stream, a wait for that word and behind it a write of the number into a word of
 * the GPU's own. One store closes or opens all GPUs. The valves' watchers make it (valve.h), each looking at the hp of
 * all tied GPUs; without a valve the launching thread decides by the same words.
 *
 * Groups of several communicators in one process may have their numbers out of step. Then the GPUs' numbers are far
 * apart, nothing is finished for another GPU's sake, and collectives are only held together. Nothing waits for ever: the
 * word opens when every hp is idle, whatever the numbers are. */
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
    _Atomic uint32_t lock;                 /* tried, never waited for: the page is being made or pinned */
    struct orion_pinned_page page;         /* guarded by the lock; `words` stays once `GPUs` has a bit */
    _Atomic uint32_t pinned_epoch;         /* of the page, for those that do not hold the lock */
    _Atomic uint32_t refused;              /* this device or driver has no waits in streams */
    _Atomic uint32_t gpus;                 /* by index: has launched a collective; tied if there are two or more */
    _Atomic uint32_t launched[ORION_GPUS]; /* the number of each GPU's last one; they wrap around */
};
ORION_PART(collectives)

/* At the launch of a collective: its number; 0: it is held by its own GPU's gate alone. */
uint32_t orion_collective_begin(struct orion_process *process, struct orion_gpu *gpu);

/* Whether some other GPU has been given that number. */
bool orion_collective_follows(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);

/* Whether it can stand behind a wait in its stream; puts it there. False from the latter: it is gated on the CPU. */
bool orion_collective_ready(struct orion_process *process);
bool orion_collective_pass(struct orion_process *process, struct orion_stream_record *stream_record, uint32_t number);

/* Gated on the CPU: whether it has to wait; until it has not; that it goes. */
bool orion_collective_held(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);
void orion_collective_wait(struct orion_process *process, struct orion_gpu *gpu, uint32_t number);
void orion_collective_go(struct orion_process *process, const struct orion_gpu *gpu, uint32_t number);

/* For watchers: closes or opens the word. True: a GPU may have begun one while it was being closed, so look again soon. */
bool orion_collective_attend(struct orion_process *process);
void orion_collective_open(struct orion_process *process);

/* The tied GPU whose hp keeps a launched collective of this GPU from beginning; NULL: none does. */
struct orion_gpu *orion_collective_stands(struct orion_process *process, const struct orion_gpu *gpu);

extern const struct orion_stop orion_collective_stop; /* claims collectives */

#endif
