/* A CUDA program that only calls the driver; measurements.overhead.hook_cost counts or times its calls.
 *
 *   hook_cost_client launch ROUNDS BURST        each round: BURST measured launches, then a synchronise
 *   hook_cost_client synchronise ROUNDS BURST   each round: a launch, a wait for its end, a measured synchronise
 *
 * The kernel is empty. The program prints "ready" and waits for a line on standard input; meanwhile the hook joins its
 * agent. Then the program prints, for each round, the mean nanoseconds of one measured call. Measured calls are in
 * separate functions, so that callgrind can count only these. The program finds the driver as NVIDIA's runtime does:
 * dlopen, one dlsym, and cuGetProcAddress for everything else. It does not need cuda.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_ROUNDS = 20, KERNEL_ENDS_NS = 40000 };

typedef int (*look_up_function)(const char *, void **, int, uint64_t, int *);

static look_up_function look_up;
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);
static int (*synchronise)(void *);
static void *kernel, *stream;
static int burst_length;

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n";
static const char simulated[] = "orion-sim 1\nkernel empty duration_us=1 sms=1 params=\n";

static void require(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "%s: the driver answered %d\n", what, result);
        exit(1);
    }
}

static void *function(const char *name)
{
    void *found = NULL;
    int status = 0;
    require(look_up(name, &found, 12000, 0, &status), name);
    if (found == NULL) {
        fprintf(stderr, "%s: not in this driver\n", name);
        exit(1);
    }
    return found;
}

static void set_up(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL || (look_up = (look_up_function)dlsym(driver, "cuGetProcAddress_v2")) == NULL) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        exit(1);
    }
    void *context = NULL, *module = NULL;
    int device = 0;
    require(((int (*)(unsigned))function("cuInit"))(0), "cuInit");
    require(((int (*)(int *, int))function("cuDeviceGet"))(&device, 0), "cuDeviceGet");
    require(((int (*)(void **, int))function("cuDevicePrimaryCtxRetain"))(&context, device), "primary context");
    require(((int (*)(void *))function("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    int (*load)(void **, const void *) = function("cuModuleLoadData");
    if (load(&module, ptx) != 0)
        require(load(&module, simulated), "cuModuleLoadData");
    int (*get_function)(void **, void *, const char *) = function("cuModuleGetFunction");
    require(get_function(&kernel, module, "empty"), "cuModuleGetFunction");
    require(((int (*)(void **, unsigned))function("cuStreamCreate"))(&stream, 1), "cuStreamCreate");
    *(void **)&launch = function("cuLaunchKernel");
    *(void **)&synchronise = function("cuStreamSynchronize");
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void burst(void)
{
    for (int number = 0; number < burst_length; number++)
        require(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
}

static __attribute__((noinline)) void measured_launch(void) { burst(); }
static __attribute__((noinline)) void measured_synchronise(void)
{
    require(synchronise(stream), "cuStreamSynchronize");
}

static double launch_round(int warm)
{
    uint64_t begin = now_ns();
    if (warm)
        burst();
    else
        measured_launch();
    uint64_t end = now_ns();
    require(synchronise(stream), "cuStreamSynchronize");
    return (double)(end - begin) / burst_length;
}

static double synchronise_round(int warm)
{
    require(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
    uint64_t begin = now_ns();
    /* The loop does not call cuStreamQuery: its success would already show the hook that the kernel has ended. */
    while (now_ns() - begin < KERNEL_ENDS_NS) {}
    begin = now_ns();
    if (warm)
        require(synchronise(stream), "cuStreamSynchronize");
    else
        measured_synchronise();
    return (double)(now_ns() - begin);
}

int main(int count, char **words)
{
    if (count != 4 || (burst_length = atoi(words[3])) < 1 ||
        (strcmp(words[1], "launch") != 0 && strcmp(words[1], "synchronise") != 0)) {
        fprintf(stderr, "usage: hook_cost_client launch|synchronise ROUNDS BURST\n");
        return 2;
    }
    double (*one_round)(int) = strcmp(words[1], "launch") == 0 ? launch_round : synchronise_round;
    set_up();
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    int rounds = atoi(words[2]);
    for (int number = -WARM_ROUNDS; number < rounds; number++) {
        double nanoseconds = one_round(number < 0);
        if (number >= 0)
            printf("%.1f\n", nanoseconds);
    }
    return 0;
}
