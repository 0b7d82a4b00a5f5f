#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ */
#endif

#include "be/connections.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "system/environment.h"

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"

static bool is_mps_client(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char control[ORION_PATH_LONGEST];
    int length = snprintf(control, sizeof control, "%s/control", folder != NULL ? folder : "/tmp/nvidia-mps");
    return length < 0 || (size_t)length >= sizeof control || access(control, F_OK) == 0;
}

/* setenv frees the array of an earlier setenv, which another thread may be reading. This array replaces the old one, and neither is
 * ever freed. */
static void add_variable(const char *connections)
{
    static char variable[sizeof VARIABLE + sizeof(((struct orion_environment *)0)->connections)];
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL) count++;
    char **more = malloc((count + 2) * sizeof *more);
    if (more == NULL) return;
    snprintf(variable, sizeof variable, VARIABLE "=%s", connections);
    if (count > 0) memcpy(more, environ, count * sizeof *more);
    more[count] = variable;
    more[count + 1] = NULL;
    environ = more;
}

void orion_connections_choose(void)
{
    static _Atomic uint32_t chosen;
    const char *connections = orion_environment()->connections;
    if (atomic_exchange(&chosen, 1) != 0 || connections[0] == '\0') return;
    int kept = errno;
    if (getenv(VARIABLE) == NULL && !is_mps_client()) add_variable(connections);
    errno = kept;
}
