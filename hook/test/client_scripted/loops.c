/* Work over a period of time: closed loops, requests at a rate, threads at random, streams that wait for each other. */
#include "scripted.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

double loop(const struct arguments *at)
{
    long iterations = 0;
    double cpu = cpu_seconds();
    const struct arguments kernels = {at->c, at->b, 0, 0}, none = {0};
    for (uint64_t end = now() + (uint64_t)(at->a * 1e9); now() < end; iterations++)
        if (launches(&kernels) != CUDA_SUCCESS || synchronise(&none) != CUDA_SUCCESS) break;
    show_cpu(cpu_seconds() - cpu);
    return (double)iterations;
}

double pausing(const struct arguments *at)
{
    long iterations = 0;
    const struct arguments none = {0};
    for (uint64_t end = now() + (uint64_t)(at->a * 1e9); now() < end; iterations++) {
        if (launch((uint64_t)at->b, 0) != CUDA_SUCCESS || synchronise(&none) != CUDA_SUCCESS) break;
        sleep_until(now() + (uint64_t)(at->c * 1e3));
    }
    return (double)iterations;
}

double stamps(const struct arguments *at)
{
    long count = 0;
    const struct arguments none = {0};
    for (uint64_t end = now() + (uint64_t)(at->a * 1e9); now() < end; count++) {
        show(now());
        if (launch((uint64_t)at->b, 0) != CUDA_SUCCESS || synchronise(&none) != CUDA_SUCCESS) break;
        show(now());
    }
    return (double)count;
}

double flood(const struct arguments *at)
{
    long count = 0;
    for (uint64_t end = now() + (uint64_t)(at->a * 1e9); now() < end; count++)
        if (launch((uint64_t)at->b, 0) != CUDA_SUCCESS) break;
    return (double)count;
}

double serve(const struct arguments *at)
{
    uint64_t arrival = now();
    const struct arguments kernels = {at->d, at->b, 0, 0}, none = {0};
    for (long i = 0; i < (long)at->a; i++) {
        arrival += (uint64_t)(at->c * 1e3);
        sleep_until(arrival);
        if (launches(&kernels) != CUDA_SUCCESS || synchronise(&none) != CUDA_SUCCESS) break;
        show(now() - arrival);
    }
    return shown_so_far();
}

struct worker {
    pthread_t thread;
    unsigned seed;
    uint64_t end, microseconds;
    long launches;
    CUresult result;
};

static void *work(void *argument)
{
    struct worker *self = argument;
    CUstream stream;
    CUresult result = cuCtxSetCurrent(used->context);
    if (result == CUDA_SUCCESS) result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    while (result == CUDA_SUCCESS && now() < self->end) {
        result = launch_on(used->timed, stream, (unsigned)rand_r(&self->seed) % (self->microseconds + 1));
        self->launches++;
        if (result == CUDA_SUCCESS && rand_r(&self->seed) % 3 == 0) result = cuStreamSynchronize(stream);
    }
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream);
    self->result = result;
    return NULL;
}

double threads(const struct arguments *at)
{
    struct worker workers[64] = {{0}};
    double count = 0;
    unsigned number = (unsigned)at->a % 65;
    for (unsigned i = 0; i < number; i++) {
        workers[i].seed = i + 1;
        workers[i].end = now() + (uint64_t)(at->b * 1e9);
        workers[i].microseconds = (uint64_t)at->c;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < number; i++) {
        pthread_join(workers[i].thread, NULL);
        count += workers[i].result == CUDA_SUCCESS ? (double)workers[i].launches : -1e9;
    }
    return count;
}

/* One stream waits for a word of memory, which another stream writes some milliseconds later, behind a kernel. */
double handshake(const struct arguments *at)
{
    CUdeviceptr word;
    CUresult result = cuMemAlloc(&word, sizeof(uint32_t));
    if (result == CUDA_SUCCESS) result = cuMemsetD32(word, 0, 1);
    for (unsigned i = 1; i <= at->a && result == CUDA_SUCCESS; i++) {
        if ((result = cuStreamWaitValue32(used->streams[1], word, i, CU_STREAM_WAIT_VALUE_GEQ))) break;
        sleep_until(now() + (uint64_t)(at->b * 1e6));
        if ((result = launch_on(used->timed, used->streams[2], 100))) break;
        if ((result = cuStreamWriteValue32(used->streams[2], word, i, 0))) break;
        result = cuStreamSynchronize(used->streams[1]);
    }
    return result;
}
