/* The commands `churn` and `room`. `churn` allocates and frees device memory at random in many threads; others look meanwhile
 * at what the device has left. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "scripted.h"

#define HELD 32u
#define THREADS 64u

struct churner {
    pthread_t thread;
    unsigned seed;
    uint64_t end;
    double done, refused;
};

static bool is_refused(CUresult result) { return result == CUDA_ERROR_OUT_OF_MEMORY; }

static void *churn_in_thread(void *argument)
{
    struct churner *self = argument;
    CUdeviceptr held[HELD] = {0};
    if (cuCtxSetCurrent(used->context)) return NULL;
    while (now() < self->end) {
        CUdeviceptr *one = &held[(unsigned)rand_r(&self->seed) % HELD];
        if (*one != 0) {
            cuMemFree(*one);
            *one = 0;
            continue;
        }
        size_t bytes = (size_t)(1 + rand_r(&self->seed) % 32) << 21; /* whole pages of the driver */
        CUresult result = cuMemAlloc(one, bytes);
        if (result) *one = 0;
        self->done += result == CUDA_SUCCESS, self->refused += is_refused(result);
    }
    for (unsigned i = 0; i < HELD; i++)
        if (held[i] != 0) cuMemFree(held[i]);
    return NULL;
}

/* a: the number of threads; b: seconds; c: a seed. Shows how many allocations were refused; returns how many succeeded. */
double churn(const struct arguments *at)
{
    static struct churner churners[THREADS];
    unsigned number = (unsigned)at->a < THREADS ? (unsigned)at->a : THREADS;
    double done = 0, refused = 0;
    for (unsigned i = 0; i < number; i++) {
        churners[i] = (struct churner){.seed = (unsigned)at->c * 1000 + i + 1, .end = now() + (uint64_t)(at->b * 1e9)};
        pthread_create(&churners[i].thread, NULL, churn_in_thread, &churners[i]);
    }
    for (unsigned i = 0; i < number; i++) {
        pthread_join(churners[i].thread, NULL);
        done += churners[i].done, refused += churners[i].refused;
    }
    show((uint64_t)refused);
    return done;
}

/* How much memory is free. */
double room(const struct arguments *at)
{
    size_t free_bytes = 0, total = 0;
    (void)at;
    return cuMemGetInfo(&free_bytes, &total) ? -1 : (double)free_bytes;
}
