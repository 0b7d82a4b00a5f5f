/* Clients of a simulated MPS control daemon (see mps.h; the daemon is orion.node_agent.mps.simulated_control).
 *
 * A client stays connected to the daemon's socket for its whole life. A thread waits for the end of the connection:
 * when the daemon ends, its clients' contexts end, as with NVIDIA's servers. The client uses only the folder that the
 * environment names, so it never finds a real daemon of the machine by accident. Not modelled: user ids, limits, and a
 * fault of one client that affects all. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mps.h"
#include "state.h"

static pthread_once_t decided = PTHREAD_ONCE_INIT;
static bool client;
static atomic_bool lost;
static int connection = -1;

static void *wait_for_end(void *unused)
{
    char byte;
    prctl(PR_SET_NAME, "sim-mps");
    while (recv(connection, &byte, 1, 0) > 0) {}
    atomic_store(&lost, true);
    return unused;
}

/* Connects by a short path below /proc, because a socket's address holds only 107 bytes. */
static int connect_in(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int where = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int made = where < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/control", where);
    if (made >= 0 && connect(made, (const struct sockaddr *)&address, sizeof address)) {
        close(made);
        made = -1;
    }
    if (where >= 0) close(where);
    return made;
}

static void decide(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    sigset_t all, before;
    pthread_t thread;
    client = sim_machine->parameters.mode == SIM_MPS;
    if (client || !folder || !*folder || (connection = connect_in(folder)) < 0) return;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    client = pthread_create(&thread, NULL, wait_for_end, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (client) pthread_detach(thread);
    else close(connection);
}

bool sim_mps_client(void)
{
    pthread_once(&decided, decide);
    return client;
}

bool sim_mps_lost(void) { return atomic_load_explicit(&lost, memory_order_relaxed); }
