/* The compute channel groups of this process. A channel group is what a GPU time-slices: CUDA makes one for each context,
 * by calls of NVIDIA's kernel driver, and sets its time slice (2048 us). The hook sees these calls because it exports
 * `ioctl` (interposition/ioctl.c).
 *
 * Which GPU a group belongs to is not known: the calls name the GPU by a number of the kernel driver.
 *
 * Concurrency: an entry's key is 0 while the entry is free, and TAKEN while a thread fills it. A thread that reads an entry
 * reads its key again afterwards. If a program frees a group while another thread sets its slice, the kernel driver
 * refuses the set. */
#ifndef ORION_GROUPS_H
#define ORION_GROUPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/process.h"

#define ORION_CHANNEL_GROUPS 64u           /* the time slices of further groups stay as they are */
#define ORION_CUDA_SLICE_US UINT64_C(2048) /* until CUDA's own value is seen */

typedef int orion_ioctl(int file, unsigned long request, ...);

struct orion_channel_group {
    _Atomic uint64_t key;            /* client << 32 | object: the group's names in the kernel driver; 0: free */
    _Atomic uint64_t own_us, now_us; /* the time slice that CUDA set; the one that was set last */
    _Atomic uint32_t parent;         /* the object that owns the group */
    _Atomic int32_t file;            /* the descriptor by which the group was made */
};

struct orion_time_slice {
    _Atomic(orion_ioctl *) call; /* the function that the program's calls go to */
    _Atomic uint32_t applying;   /* a lock that is only tried */
    _Atomic uint64_t wanted_us;  /* 0: CUDA's own */
    _Atomic uint32_t used;       /* entries below this number may be in use */
    struct orion_channel_group group[ORION_CHANNEL_GROUPS];
};
ORION_PART(time_slice)

/* Called after a successful call of the kernel driver. `number`, `argument`, `size`: those of the request. `call` made it. */
void orion_groups_saw(orion_ioctl *call, int file, uint32_t number, const void *argument, size_t size);

/* Sets the group's time slice. If the kernel driver refuses, the group is forgotten, so it is not tried again. Changes
 * errno. */
void orion_group_set(struct orion_time_slice *groups, struct orion_channel_group *group, uint64_t slice_us);

#endif
