/* Room on a full GPU, for an allocation that the driver has refused for lack of memory although the grant allows it: the agent
 * has best-effort processes leave (parking/parking.h) for hp, and for what a slot that does not park is sure of. A best-effort
 * process that may be parked leaves itself, and comes back in its turn, with room for what it needs; the allocation waits
 * meanwhile, outside of the driver. */
#ifndef ORION_ROOM_H
#define ORION_ROOM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* True: try again, there may be room now. One that parks waits for 30 s of the time in which it is on the GPU, others
 * for at most the grant's memory_wait_ns in all. *until is 0 before the first call of an allocation. */
bool orion_room_may_come(CUdevice device, uint64_t bytes, uint64_t *until);

/* The waiting of one context; all zero: it has not begun. */
struct orion_context_room {
    uint64_t until;
    uint64_t bytes; /* which count as memory of the process */
};

/* The same for a context, of which nobody knows how much it takes. Waits until the process has joined the agent. Until the
 * call's end the most that a context takes counts as held: else the agent would let the slot's processes come back without
 * room for it, and the context would take the room of one that the driver still brings back. */
bool orion_room_for_context(CUdevice device, struct orion_context_room *room);
void orion_room_for_context_ends(CUdevice device, const struct orion_context_room *room);
/* Before a context that may be new: like orion_room_ask_first below. */
bool orion_room_ask_first_for_context(CUdevice device, bool is_primary, struct orion_context_room *room);

/* Before the driver is asked: while others come back, who waits for memory and every be asks the agent first. They have been let back
 * into room that is free until they take it, and would be lost without it. False: the room is theirs, so the allocation fails. */
bool orion_room_ask_first(CUdevice device, uint64_t bytes, uint64_t *until);
/* The same two for a pool. It may have the memory already. */
struct orion_pooling;
bool orion_room_ask_first_for_pool(const struct orion_pooling *pooling, uint64_t *until);
bool orion_room_may_come_for_pool(const struct orion_pooling *pooling, uint64_t *until);

#endif
