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

#define CONNECTIONS "CUDA_DEVICE_MAX_CONNECTIONS"
#define COPY_CONNECTIONS "CUDA_DEVICE_MAX_COPY_CONNECTIONS"
#define CUDAS_COPY_CONNECTIONS "8" /* CUDA's number where neither variable is set; the first one changes both numbers */

static bool is_mps_client(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char control[ORION_PATH_LONGEST];
    int length = snprintf(control, sizeof control, "%s/control", folder != NULL ? folder : "/tmp/nvidia-mps");
    return length < 0 || (size_t)length >= sizeof control || access(control, F_OK) == 0;
}

/* setenv frees the array of an earlier setenv, which another thread may be reading. This array replaces the old one, and neither is
 * ever freed. */
static void add_variables(const char *connections)
{
    static char variable[sizeof CONNECTIONS + sizeof(((struct orion_environment *)0)->connections)];
    static char copies[] = COPY_CONNECTIONS "=" CUDAS_COPY_CONNECTIONS;
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL) count++;
    char **more = malloc((count + 3) * sizeof *more);
    if (more == NULL) return;
    snprintf(variable, sizeof variable, CONNECTIONS "=%s", connections);
    if (count > 0) memcpy(more, environ, count * sizeof *more);
    more[count++] = variable;
    if (getenv(COPY_CONNECTIONS) == NULL) more[count++] = copies;
    more[count] = NULL;
    environ = more;
}

void orion_connections_choose(void)
{
    static _Atomic uint32_t chosen;
    const char *connections = orion_environment()->connections;
    if (atomic_exchange(&chosen, 1) != 0 || connections[0] == '\0') return;
    int kept = errno;
    if (getenv(CONNECTIONS) == NULL && !is_mps_client()) add_variables(connections);
    errno = kept;
}
