#include "system/spawn.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#define STACK_BYTES (1024u << 10) /* room for the host program's thread-local storage */

/* The CPUs of the process when the hook was loaded, of up to 8192; none: unknown. A program may tie a thread to one CPU
 * before that thread first uses the GPU. The hook's threads would inherit this, and would wait for that CPU. They still do
 * if a constructor ties the main thread before this one runs, as gcc's OpenMP does with OMP_PROC_BIND in a program that is linked
 * with it. Rejected: all CPUs, which the kernel cuts to those of the cgroup, because a user's taskset or numactl would no longer hold, and
 * nothing tells it from a tie of OpenMP; the CPUs of the parent, which taskset and numactl do not tie; a constructor that runs before
 * all others (-z initfirst), because there the environment is still empty (environment.c). */
static cpu_set_t cpus[8192 / CPU_SETSIZE];

__attribute__((constructor)) static void read_cpus(void)
{
    int error = errno;
    if (sched_getaffinity(0, sizeof cpus, cpus) != 0) CPU_ZERO_S(sizeof cpus, cpus);
    errno = error;
}

struct start {
    void *(*body)(void *);
    void *argument;
};

/* The thread sets its own CPUs. Rejected: the spawning thread does it, by pthread_setaffinity_np. If the new thread has
 * ended by then, its id is 0, by which the kernel means the caller. */
static void *begin(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    sched_setaffinity(0, sizeof cpus, cpus); /* if this is refused, it keeps the CPUs of the thread that spawned it */
    return start.body(start.argument);
}

int orion_thread_spawn(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, kept;
    int error = errno;
    struct start *start = malloc(sizeof *start);
    if (start == NULL || pthread_attr_init(&attributes) != 0) {
        free(start);
        errno = error;
        return -1;
    }
    *start = (struct start){body, argument};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int result = pthread_create(&thread, &attributes, begin, start);
    if (result != 0) { /* maybe the program's thread-local storage is larger than this stack: try 8 MiB */
        pthread_attr_setstacksize(&attributes, 8u << 20);
        result = pthread_create(&thread, &attributes, begin, start);
    }
    if (result != 0) free(start);
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    pthread_attr_destroy(&attributes);
    errno = error;
    return result == 0 ? 0 : -1;
}

int orion_thread_spawn_once(_Atomic uint32_t *runs, void *(*body)(void *), void *argument)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(runs, &none, 1)) return 0;
    int result = orion_thread_spawn(body, argument);
    if (result != 0) atomic_store(runs, 0);
    return result;
}
