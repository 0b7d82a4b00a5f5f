/* `ioctl`, by which CUDA calls NVIDIA's kernel driver. The hook exports it to see the process's channel groups
 * (slices/groups.h). Every call goes on unchanged to the next `ioctl`: the C library's, or another preloaded library's.
 *
 * CUDA's driver finds the hook's function because it looks `ioctl` up in the process's global scope, where preloaded
 * libraries come before the C library. Calls that a program makes as system calls of its own are not seen. */
#ifndef ORION_IOCTL_H
#define ORION_IOCTL_H

#include "slices/groups.h"

/* NULL: not looked up yet. Every thread finds the same function, so no lock is needed. */
extern _Atomic(orion_ioctl *) orion_next_ioctl;

#endif
