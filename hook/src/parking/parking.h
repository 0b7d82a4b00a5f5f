/* Parking: a be process leaves the GPU's memory so that others have room, and comes back when there is room again.
 *
 * The agent says when, in the grant's word `park` (pages.h). The process does it itself, with the driver's checkpoint of its
 * own id, as NVIDIA's samples do. So the agent needs no right over the process, and a tenant can harm only itself.
 *
 * A thread of the hook, the parker, does it:
 *   1. launches wait (ORION_ERRAND_STAY);
 *   2. the valve works as always, so that queued work ends while hp is idle; after LET_RUN_NS it stays open, because work
 *      behind a closed valve would never end;
 *   3. the driver locks the process: the program's further CUDA calls wait in the driver;
 *   4. the driver copies the memory to the host and frees it on the GPU.
 * If a step fails, the parker undoes the earlier ones and says why, and the program runs on. It tries again upon a newer
 * wish. Only the agent brings the process back, by a newer wish: it knows whether there is room, and a restore without room cannot be
 * repeated.
 *
 * A thread of the program starts the parker, because the driver needs the program's descriptors (agent/thread.h). Rejected: the
 * agent does it from outside (it would need ptrace rights over all tenants); a copy of all allocations by the hook (the
 * driver's own objects stay on the GPU; to be tried for speed). */
#ifndef ORION_PARKING_H
#define ORION_PARKING_H

struct orion_gpu;
struct orion_process;

/* Starts the parker if the slot of the GPU parks, unless it runs. Called by a thread of the program. */
void orion_parking_start(struct orion_process *process, const struct orion_gpu *gpu);

/* The same when the GPU's join is still under way: decides once a slot of the process parks. */
void orion_parking_start_once_joined(struct orion_process *process, struct orion_gpu *gpu);

/* Waits while the process is away, or leaves. Called by a thread of the program. If the program has ended the parker, which
 * alone lets waiting threads go, starts another one. */
void orion_parking_await(struct orion_process *process);

/* The same before a launch, which counts as waiting. */
void orion_parking_stay(struct orion_process *process, struct orion_gpu *gpu);

/* Called when the process exits: it does not leave from now on. */
void orion_parking_end(struct orion_process *process);

#endif
