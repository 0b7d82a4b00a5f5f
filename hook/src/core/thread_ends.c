#include "core/thread_ends.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/core.h"
#include "process/absence.h"
#include "streams/capture.h"
#include "streams/capture_origins.h"
#include "streams/stream_records.h"

/* The C library's function behind C++ thread_local objects (Itanium C++ ABI, "thread_local"). */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static pthread_key_t last_round;
static bool has_key;
static void end_presence(void *process)
{
    static _Thread_local unsigned rounds;
    if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(last_round, process) == 0) return;
    orion_present_end(process, ORION_COUNTED);
}
static void make_key(void) { has_key = pthread_key_create(&last_round, end_presence) == 0; }

/* Where this is not possible now, because a context may be ending, the records end once a new thread has this one's place. */
static void end_records(struct orion_process *process)
{
    orion_capture_origins_end_thread(process);
    if (!orion_touch(process)) return;
    orion_stream_records_end_thread(process);
    orion_touched(process);
}

static void begin_presence(void *process)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    enum orion_presence presence = orion_present_begin(process);
    if (presence != ORION_ABSENT) end_records(process);
    if (presence != ORION_COUNTED) return;
    pthread_once(&once, make_key);
    if (!has_key || pthread_setspecific(last_round, process) != 0) orion_present_end(process, ORION_COUNTED);
}

/* The first thread ends with the process, and exit() runs no destructors of keys. */
void orion_thread_ends_watch(struct orion_process *process)
{
    if (__cxa_thread_atexit_impl == NULL || syscall(SYS_gettid) == getpid()) return;
    __cxa_thread_atexit_impl(begin_presence, process, &__dso_handle);
}
