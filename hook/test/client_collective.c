/* A CUDA program that trains on several GPUs from one process, or on one GPU as one of several processes. It reads one
 * command per line and answers as client_scripted does. It has no Orion code. Its kernels are compute_gpuG and
 * ncclDevKernel_AllReduce_gpuG, so the simulated GPU's trace shows when they ran on which GPU. Events make each stream's
 * later work wait until the collective has ended on all GPUs. Only the kernels ncclDevKernel_Meet_gpuG spin on their GPU until
 * their peers run.
 *
 *   init N            contexts, modules and streams on GPUs 0 to N-1
 *   rank GPU N        the same on this GPU only: this process is one of N, whose GPUs are 0 to N-1. The processes share
 *                     the file RANKS_PAGE. In it each stream writes how many collectives it has run, and waits for the
 *                     others.
 *   compute GPU US    a kernel on this GPU
 *   collective US     a collective on all GPUs, launched by this thread, one GPU after the other
 *   graph US          a collective as one graph per GPU, captured before the launches
 *   apart GPU US      this GPU's part of the collective only; its peers' parts are separate commands
 *   meet US           a collective that spins, of all ranks; this rank's part
 *   train N COMPUTE_US COLLECTIVE_US [KERNELS]   N steps of KERNELS (1) times compute and a collective, by this thread
 *   threads N COMPUTE_US COLLECTIVE_US the same, by one thread per GPU
 *   sync              cuStreamSynchronize of each GPU
 *   query GPU         cuStreamQuery
 *   end               cuDevicePrimaryCtxReset of each GPU, with work under way */
#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GPUS 4

struct gpu {
    CUcontext context;
    CUstream stream;
    CUfunction compute, collective, meet;
    CUevent done;
};

static struct gpu gpus[GPUS];
static unsigned first_gpu, gpu_count; /* this process uses the GPUs from first_gpu to gpu_count - 1 */
static uint32_t *ranks_page;          /* by GPU: collectives that have run; NULL: no other processes */
static unsigned ranks;
static uint32_t collectives_run, meetings;
static pthread_barrier_t barrier; /* of training threads */

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static CUresult initialise(unsigned index)
{
    struct gpu *gpu = &gpus[index];
    char image[512], name[64];
    CUdevice device;
    CUmodule module;
    CUresult result;
    snprintf(image, sizeof image,
             "orion-sim 1\nkernel compute_gpu%u duration_us=@0 sms=60 params=8\n"
             "kernel ncclDevKernel_AllReduce_gpu%u duration_us=@0 sms=20 params=8\n"
             "kernel ncclDevKernel_Meet_gpu%u duration_us=@0 sms=20 params=8,8,4 meets=@1\n",
             index, index, index);
    if ((result = cuDeviceGet(&device, (int)index)) || (result = cuDevicePrimaryCtxRetain(&gpu->context, device)) ||
        (result = cuCtxSetCurrent(gpu->context)) || (result = cuModuleLoadData(&module, image)) ||
        (result = cuStreamCreate(&gpu->stream, CU_STREAM_NON_BLOCKING)) ||
        (result = cuEventCreate(&gpu->done, CU_EVENT_DISABLE_TIMING)))
        return result;
    snprintf(name, sizeof name, "compute_gpu%u", index);
    if ((result = cuModuleGetFunction(&gpu->compute, module, name))) return result;
    snprintf(name, sizeof name, "ncclDevKernel_AllReduce_gpu%u", index);
    if ((result = cuModuleGetFunction(&gpu->collective, module, name))) return result;
    snprintf(name, sizeof name, "ncclDevKernel_Meet_gpu%u", index);
    return cuModuleGetFunction(&gpu->meet, module, name);
}

static CUresult launch(struct gpu *gpu, CUfunction function, uint64_t microseconds)
{
    void *parameters[] = {&microseconds};
    CUresult result = cuCtxSetCurrent(gpu->context);
    if (result != CUDA_SUCCESS) return result;
    return cuLaunchKernel(function, 20, 1 + (unsigned)(microseconds % 60000), 1, 256, 1, 1, 0, gpu->stream, parameters, NULL);
}

/* Each rank's part adds 1 to the word at the end of the shared page. It ends once all parts have begun. */
static CUresult meet(uint64_t microseconds)
{
    uint64_t word = (uint64_t)(uintptr_t)&ranks_page[1023];
    uint32_t number = ranks * ++meetings;
    void *parameters[] = {&microseconds, &word, &number};
    return cuLaunchKernel(gpus[first_gpu].meet, 20, 1, 1, 256, 1, 1, 0, gpus[first_gpu].stream, parameters, NULL);
}

/* This process's stream continues once the streams of all ranks have run as many collectives. */
static CUresult join_ranks(void)
{
    if (ranks_page == NULL) return CUDA_SUCCESS;
    CUstream stream = gpus[first_gpu].stream;
    CUdeviceptr page = (CUdeviceptr)(uintptr_t)ranks_page; /* on the simulated GPU addresses are the program's */
    CUresult result = cuStreamWriteValue32(stream, page + 64 * first_gpu, ++collectives_run, CU_STREAM_WRITE_VALUE_DEFAULT);
    for (unsigned i = 0; i < ranks && !result; i++)
        if (i != first_gpu) result = cuStreamWaitValue32(stream, page + 64 * i, collectives_run, CU_STREAM_WAIT_VALUE_GEQ);
    return result;
}

static CUresult join(void)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = first_gpu; i < gpu_count && !result; i++)
        if (!(result = cuCtxSetCurrent(gpus[i].context))) result = cuEventRecord(gpus[i].done, gpus[i].stream);
    for (unsigned i = first_gpu; i < gpu_count && !result; i++)
        for (unsigned j = first_gpu; j < gpu_count && !result; j++)
            if (j != i && !(result = cuCtxSetCurrent(gpus[i].context))) result = cuStreamWaitEvent(gpus[i].stream, gpus[j].done, 0);
    return result ? result : join_ranks();
}

static CUresult collective(uint64_t microseconds)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = first_gpu; i < gpu_count && !result; i++) result = launch(&gpus[i], gpus[i].collective, microseconds);
    return result ? result : join();
}

static CUresult graph(uint64_t microseconds)
{
    CUgraphExec graphs[GPUS];
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = first_gpu; i < gpu_count && !result; i++) {
        CUgraph captured;
        if ((result = cuCtxSetCurrent(gpus[i].context)) ||
            (result = cuStreamBeginCapture(gpus[i].stream, CU_STREAM_CAPTURE_MODE_RELAXED)) ||
            (result = launch(&gpus[i], gpus[i].compute, 10)) || (result = launch(&gpus[i], gpus[i].collective, microseconds)) ||
            (result = cuStreamEndCapture(gpus[i].stream, &captured)))
            break;
        result = cuGraphInstantiate(&graphs[i], captured, 0);
    }
    for (unsigned i = first_gpu; i < gpu_count && !result; i++)
        if (!(result = cuCtxSetCurrent(gpus[i].context))) result = cuGraphLaunch(graphs[i], gpus[i].stream);
    return result ? result : join();
}

static CUresult train(unsigned steps, uint64_t compute, uint64_t collective_us, unsigned kernels)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned step = 0; step < steps && !result; step++) {
        for (unsigned kernel = 0; kernel < kernels; kernel++)
            for (unsigned i = first_gpu; i < gpu_count && !result; i++) result = launch(&gpus[i], gpus[i].compute, compute);
        if (!result) result = collective(collective_us);
    }
    return result;
}

struct worker {
    pthread_t thread;
    struct gpu *gpu;
    unsigned steps;
    uint64_t compute, collective;
    CUresult result;
};

static void *work(void *argument)
{
    struct worker *self = argument;
    CUresult result = CUDA_SUCCESS;
    for (unsigned step = 0; step < self->steps; step++) {
        if (!result) result = launch(self->gpu, self->gpu->compute, self->compute);
        if (!result) result = launch(self->gpu, self->gpu->collective, self->collective);
        if (!result) result = cuEventRecord(self->gpu->done, self->gpu->stream);
        pthread_barrier_wait(&barrier);
        for (unsigned i = first_gpu; i < gpu_count && !result; i++)
            if (&gpus[i] != self->gpu) result = cuStreamWaitEvent(self->gpu->stream, gpus[i].done, 0);
        pthread_barrier_wait(&barrier);
    }
    self->result = result;
    return NULL;
}

static CUresult train_by_threads(unsigned steps, uint64_t compute, uint64_t collective_us)
{
    struct worker workers[GPUS];
    CUresult result = CUDA_SUCCESS;
    pthread_barrier_init(&barrier, NULL, gpu_count);
    for (unsigned i = first_gpu; i < gpu_count; i++) {
        workers[i] = (struct worker){.gpu = &gpus[i], .steps = steps, .compute = compute, .collective = collective_us};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (unsigned i = first_gpu; i < gpu_count; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].result != CUDA_SUCCESS) result = workers[i].result;
    }
    pthread_barrier_destroy(&barrier);
    return result;
}

static CUresult synchronise(void)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = first_gpu; i < gpu_count && !result; i++)
        if (!(result = cuCtxSetCurrent(gpus[i].context))) result = cuStreamSynchronize(gpus[i].stream);
    return result;
}

static CUresult be_rank(unsigned gpu, unsigned count)
{
    const char *path = getenv("RANKS_PAGE");
    int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    CUresult result = cuInit(0);
    if (file < 0 || result) return result ? result : CUDA_ERROR_FILE_NOT_FOUND;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    ranks_page = page, ranks = count, first_gpu = gpu, gpu_count = gpu + 1;
    if ((result = initialise(gpu))) return result;
    return cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP);
}

static CUresult obey(const char *name, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    struct gpu *gpu = &gpus[a % GPUS];
    if (!strcmp(name, "init")) {
        CUresult result = cuInit(0);
        for (gpu_count = 0; gpu_count < a && gpu_count < GPUS && !result; gpu_count++) result = initialise(gpu_count);
        return result;
    }
    if (!strcmp(name, "rank")) return be_rank((unsigned)(a % GPUS), (unsigned)b);
    if (!strcmp(name, "compute")) return launch(gpu, gpu->compute, b);
    if (!strcmp(name, "apart")) return launch(gpu, gpu->collective, b);
    if (!strcmp(name, "meet")) return meet(a);
    if (!strcmp(name, "collective")) return collective(a);
    if (!strcmp(name, "graph")) return graph(a);
    if (!strcmp(name, "train")) return train((unsigned)a, b, c, d != 0 ? (unsigned)d : 1);
    if (!strcmp(name, "threads")) return train_by_threads((unsigned)a, b, c);
    if (!strcmp(name, "sync")) return synchronise();
    if (!strcmp(name, "end")) {
        CUresult result = CUDA_SUCCESS;
        for (unsigned i = first_gpu; i < gpu_count && !result; i++) result = cuDevicePrimaryCtxReset((CUdevice)i);
        return result;
    }
    if (!strcmp(name, "query")) return cuStreamQuery(gpu->stream);
    return CUDA_ERROR_INVALID_VALUE;
}

int main(void)
{
    char line[256], name[32];
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned long a = 0, b = 0, c = 0, d = 0;
        if (sscanf(line, "%31s %lu %lu %lu %lu", name, &a, &b, &c, &d) < 1) continue;
        uint64_t began = now();
        CUresult result = obey(name, a, b, c, d);
        printf("ok %s %llu %llu %d\n", name, (unsigned long long)began, (unsigned long long)now(), (int)result);
        fflush(stdout);
    }
    return 0;
}
