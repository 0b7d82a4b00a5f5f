/* Room for hp on a full GPU: the agent has best-effort processes leave (parking/parking.h), and the allocation waits for it. */
#ifndef ORION_ROOM_H
#define ORION_ROOM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* After the driver has refused an allocation for lack of memory, although the grant allows it. True: try again, there may be
 * room now. Waits for at most the grant's memory_wait_ns in all; *until is 0 before the first call of an allocation. */
bool orion_room_may_come(CUdevice device, uint64_t bytes, uint64_t *until);

#endif
