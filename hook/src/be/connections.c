/* A be process gets a connection to the GPU for each of its streams.
 *
 * CUDA puts a process's streams into eight connections, channels of the GPU. Streams that share one wait for each other inside the
 * driver, in ways that the hook does not see, and a process that is held in such a wait keeps its whole time slices. Beside a
 * recurrent network of cuDNN, which has 32 streams, up to half of hp's requests took 1.9 times as long, and with 32 connections
 * none did (docs/results/programs.md). So who starts a be process names a number in ORION_CONNECTIONS, and the program's own
 * CUDA_DEVICE_MAX_CONNECTIONS comes first. Clients of an MPS daemon share a pool of connections, and no time slices separate
 * them: they keep CUDA's number.
 *
 * Only the constructor may call setenv: no other thread can be reading the environment then.
 *
 * Rejected: to set CUDA's variable in the pod. CDI would replace the pod's own value, and what a container gets must not depend on
 * the mode of the GPU. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* setenv */
#endif

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "system/environment.h"

static bool is_mps_client(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char control[ORION_PATH_LONGEST];
    int length = snprintf(control, sizeof control, "%s/control", folder != NULL ? folder : "/tmp/nvidia-mps");
    return length < 0 || (size_t)length >= sizeof control || access(control, F_OK) == 0;
}

__attribute__((constructor)) static void set_connections(void)
{
    const char *connections = getenv("ORION_CONNECTIONS");
    if (connections != NULL && !is_mps_client()) setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 0);
}
