/* The commands `atexit` and `threadexit`: a call that the process makes while it exits, and ends of the process in another thread. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "scripted.h"

static int call_at_exit = -1;
static CUdeviceptr kept;

static void call(void)
{
    CUdeviceptr other;
    switch (call_at_exit) {
    case 0: cuMemFree(kept); break;
    case 1: launch(10, 1); break;
    case 2: cuStreamSynchronize(used->streams[1]); break;
    case 3: cuMemAlloc(&other, 1 << 20); break;
    case 4: cuMemcpyDtoH(&other, kept, sizeof other); break;
    default: break;
    }
}

/* Before cuInit, as the CUDA runtime registers its own: so it runs behind the hook's. */
__attribute__((constructor)) static void register_handler(void) { atexit(call); }

double at_exit(const struct arguments *at)
{
    call_at_exit = (int)at->a;
    return cuMemAlloc(&kept, 1 << 20);
}

static void *leave_in_thread(void *at_once)
{
    if (at_once == NULL) exit(0);
    _exit(0);
}

double exit_in_thread(const struct arguments *at)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave_in_thread, at->a == 0 ? NULL : &thread) != 0) return -1;
    return pthread_join(thread, NULL);
}
