#include "system/spawn.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define STACK_BYTES (1024u << 10) /* room for the host program's thread-local storage */

int orion_thread_spawn(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, kept;
    int error = errno;
    if (pthread_attr_init(&attributes) != 0) return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int result = pthread_create(&thread, &attributes, body, argument);
    if (result != 0) { /* maybe the program's thread-local storage is larger than this stack: try 8 MiB */
        pthread_attr_setstacksize(&attributes, 8u << 20);
        result = pthread_create(&thread, &attributes, body, argument);
    }
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    pthread_attr_destroy(&attributes);
    errno = error;
    return result == 0 ? 0 : -1;
}
