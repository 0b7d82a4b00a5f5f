/* A CUDA program that does what it is told, one command a line on standard input, one answer a line on standard output.
 * It knows nothing of Orion; tests run it under the hook and without. Answers: "ok NAME BEGAN ENDED RESULT [MORE...]";
 * the times are CLOCK_MONOTONIC nanoseconds around the command, RESULT is a CUDA result unless said otherwise. STREAM
 * is 0 (legacy), 1 or 2 (non-blocking), 3 (the thread's default stream). Kernels take every SM on the legacy stream and
 * fewer than half elsewhere, so that two of those run side by side.
 *
 *   init DEVICE            cuInit, primary context, module, streams; that device is used from here on
 *   use DEVICE             goes back to one that was initialised
 *   launch N US [STREAM [LIKE]]  N kernels of US microseconds; of the grid that kernels of LIKE microseconds have
 *   run N US [STREAM [LIKE]]     the same, and cuStreamSynchronize
 *   sync [STREAM]          cuStreamSynchronize
 *   ctxsync                cuCtxSynchronize
 *   event [STREAM]         cuEventRecord, cuEventSynchronize
 *   query [STREAM]         cuStreamQuery until it is not CUDA_ERROR_NOT_READY
 *   equery [STREAM]        cuEventRecord, cuEventQuery until it is not CUDA_ERROR_NOT_READY
 *   loop SECONDS US K      closed loop: K kernels of US, synchronise; RESULT: iterations; MORE: CPU seconds
 *   stamps SECONDS US      closed loop of single kernels; RESULT: launches; MORE: began and synchronised of each
 *   flood SECONDS US       closed loop without any synchronise; RESULT: launches
 *   serve N US GAP_US K    N requests every GAP_US, each K kernels of US and a synchronise; RESULT: their number; MORE:
 *                          latency of each from its scheduled arrival, nanoseconds
 *   threads N SECONDS US   N threads, each on a stream of its own, launching and synchronising at random; RESULT: launches
 *   streams N US           N times: a stream is created, launched on, destroyed
 *   crowd N                N streams are created and kept, numbered from 4 on; each has one short kernel
 *   reset                  cuDevicePrimaryCtxReset with work under way, then all anew
 *   context US             another context is created, launched on, destroyed
 *   touch GIB              makes that much memory resident
 *   alloc BYTES            cuMemAlloc
 *   info                   cuMemGetInfo; RESULT: total bytes
 *   fork SECONDS           forks a child that sleeps; RESULT: its process id
 *   forklaunch             forks a child that tries to launch; RESULT: the child's CUDA result
 *   spawn                  fork and exec of this program, which uses the device; RESULT: its exit status
 *   exec                   this program again, in this process
 *   dlclose                dlopen of the driver, a look-up, dlclose
 *   closefds               closes every descriptor from 3 on
 *   exit, _exit            ends, with and without handlers */
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEVICES 4
#define STREAMS 2048
#define SHOWN 60000

struct arguments { double a, b, c, d; };
struct used_device { CUcontext context; CUfunction timed; CUevent event; CUstream streams[STREAMS]; };

static struct used_device devices[DEVICES], *used = devices;
static unsigned long long shown[SHOWN]; /* MORE */
static unsigned shown_count;
static double shown_cpu = -1;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t when)
{
    struct timespec time = {.tv_sec = (time_t)(when / 1000000000u), .tv_nsec = (long)(when % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) {}
}

static void show(uint64_t number) { if (shown_count < SHOWN) shown[shown_count++] = number; }

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* -- Device, launches, proofs ---------------------------------------------------------------------------------------- */

static CUresult load(CUfunction *function)
{
    static const char module_text[] = "orion-sim 1\nkernel timed duration_us=@0 sms=@1 params=8,4\n";
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, module_text);
    return result != CUDA_SUCCESS ? result : cuModuleGetFunction(function, module, "timed");
}

static double initialise(const struct arguments *at)
{
    CUdevice device;
    CUresult result;
    used = &devices[(unsigned)at->a % DEVICES];
    used->streams[3] = CU_STREAM_PER_THREAD;
    if ((result = cuInit(0)) || (result = cuDeviceGet(&device, (int)at->a)) ||
        (result = cuDevicePrimaryCtxRetain(&used->context, device)) || (result = cuCtxSetCurrent(used->context)) ||
        (result = load(&used->timed)) || (result = cuEventCreate(&used->event, CU_EVENT_DISABLE_TIMING)) ||
        (result = cuStreamCreate(&used->streams[1], CU_STREAM_NON_BLOCKING)))
        return result;
    return cuStreamCreate(&used->streams[2], CU_STREAM_NON_BLOCKING);
}

static double use(const struct arguments *at)
{
    used = &devices[(unsigned)at->a % DEVICES];
    return cuCtxSetCurrent(used->context);
}

/* As with real kernels, one of another length has another grid; `like` lets it look like one of another length. */
static CUresult launch_as(CUfunction function, CUstream stream, uint64_t microseconds, uint64_t like)
{
    uint32_t sms = stream == NULL ? 132 : 60;
    void *parameters[] = {&microseconds, &sms};
    return cuLaunchKernel(function, 132, 1 + (unsigned)(like % 60000), 1, 256, 1, 1, 0, stream, parameters, NULL);
}
static CUresult launch_on(CUfunction function, CUstream stream, uint64_t microseconds)
{
    return launch_as(function, stream, microseconds, microseconds);
}

static CUstream stream_of(double number) { return used->streams[(unsigned)number % STREAMS]; }
static CUresult launch(uint64_t microseconds, double stream) { return launch_on(used->timed, stream_of(stream), microseconds); }

static double launches(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++)
        result = launch_as(used->timed, stream_of(at->c), (uint64_t)at->b, (uint64_t)(at->d > 0 ? at->d : at->b));
    return result;
}

static double synchronise(const struct arguments *at) { return cuStreamSynchronize(stream_of(at->a)); }
static double run(const struct arguments *at)
{
    const struct arguments stream = {at->c, 0, 0, 0};
    double result = launches(at);
    return result != CUDA_SUCCESS ? result : synchronise(&stream);
}
static double synchronise_context(const struct arguments *at) { (void)at; return cuCtxSynchronize(); }

static double synchronise_event(const struct arguments *at)
{
    CUresult result = cuEventRecord(used->event, stream_of(at->a));
    return result != CUDA_SUCCESS ? result : cuEventSynchronize(used->event);
}

static double query(const struct arguments *at)
{
    CUresult result;
    while ((result = cuStreamQuery(stream_of(at->a))) == CUDA_ERROR_NOT_READY) sleep_until(now() + 20000);
    return result;
}

static double query_event(const struct arguments *at)
{
    CUresult result = cuEventRecord(used->event, stream_of(at->a));
    while (result == CUDA_SUCCESS && (result = cuEventQuery(used->event)) == CUDA_ERROR_NOT_READY) {
        sleep_until(now() + 20000);
        result = CUDA_SUCCESS;
    }
    return result;
}

/* -- Loops ----------------------------------------------------------------------------------------------------------- */

static double loop(const struct arguments *at)
{
    long iterations = 0;
    double cpu = cpu_seconds();
    const struct arguments kernels = {at->c, at->b, 0, 0}, none = {0};
    for (uint64_t end = now() + (uint64_t)(at->a * 1e9); now() < end; iterations++)
        if (launches(&kernels) != CUDA_SUCCESS || synchronise(&none) != CUDA_SUCCESS) break;
    shown_cpu = cpu_seconds() - cpu;
    return (double)iterations;
}

static double stamps(const struct arguments *at)
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

static double flood(const struct arguments *at)
{
    long count = 0;
    for (uint64_t end = now() + (uint64_t)(at->a * 1e9); now() < end; count++)
        if (launch((uint64_t)at->b, 0) != CUDA_SUCCESS) break;
    return (double)count;
}

static double serve(const struct arguments *at)
{
    uint64_t arrival = now();
    const struct arguments kernels = {at->d, at->b, 0, 0}, none = {0};
    for (long i = 0; i < (long)at->a; i++) {
        arrival += (uint64_t)(at->c * 1e3);
        sleep_until(arrival);
        if (launches(&kernels) != CUDA_SUCCESS || synchronise(&none) != CUDA_SUCCESS) break;
        show(now() - arrival);
    }
    return shown_count;
}

struct worker { pthread_t thread; unsigned seed; uint64_t end, microseconds; long launches; CUresult result; };

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

static double threads(const struct arguments *at)
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

/* -- Lifetimes ------------------------------------------------------------------------------------------------------- */

static double streams(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++) {
        CUstream stream;
        if ((result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS) break;
        result = launch_on(used->timed, stream, (uint64_t)at->b);
        cuStreamDestroy(stream);
    }
    return result;
}

static double crowd(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 4; i < 4 + (unsigned)at->a && i < STREAMS && result == CUDA_SUCCESS; i++)
        if ((result = cuStreamCreate(&used->streams[i], CU_STREAM_NON_BLOCKING)) == CUDA_SUCCESS) result = launch(1, i);
    return result;
}

static double reset(const struct arguments *at)
{
    CUdevice device;
    (void)at;
    CUresult result = cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxReset(device);
    if (result != CUDA_SUCCESS) return result;
    const struct arguments same = {(double)device, 0, 0, 0};
    return initialise(&same);
}

static double another_context(const struct arguments *at)
{
    CUdevice device;
    CUcontext context;
    CUfunction function;
    CUresult result;
    if ((result = cuCtxGetDevice(&device)) || (result = cuCtxCreate(&context, NULL, 0, device))) return result;
    if ((result = load(&function)) == CUDA_SUCCESS) result = launch_on(function, NULL, (uint64_t)at->a);
    CUresult ended = cuCtxDestroy(context);
    cuCtxSetCurrent(used->context);
    return result != CUDA_SUCCESS ? result : ended;
}

/* -- The process ----------------------------------------------------------------------------------------------------- */

static double touch(const struct arguments *at)
{
    size_t bytes = (size_t)(at->a * 1073741824.0);
    char *memory = malloc(bytes);
    for (size_t i = 0; memory != NULL && i < bytes; i += 4096) memory[i] = 1;
    return memory == NULL;
}

static double allocate(const struct arguments *at) { CUdeviceptr pointer; return cuMemAlloc(&pointer, (size_t)at->a); }
static double information(const struct arguments *at)
{
    size_t free_bytes = 0, total = 0;
    (void)at;
    return cuMemGetInfo(&free_bytes, &total) ? -1 : (double)total;
}

static double forks(const struct arguments *at)
{
    pid_t child = fork();
    if (child != 0) return child;
    sleep((unsigned)at->a);
    _exit(0);
}

static double status_of(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static double fork_and_launch(const struct arguments *at)
{
    pid_t child = fork();
    (void)at;
    if (child == 0) _exit((int)launch(1, 0) & 0xff);
    return status_of(child);
}

static double spawn(const struct arguments *at)
{
    int script[2];
    (void)at;
    if (pipe(script) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(script[0], 0);
        dup2(open("/dev/null", O_WRONLY), 1); /* its answers are not ours */
        for (int fd = 3; fd < 64; fd++) close(fd);
        execl("/proc/self/exe", "client_spawned", (char *)NULL);
        _exit(127);
    }
    const char text[] = "init 0\nlaunch 3 10\nsync\n_exit\n";
    ssize_t written = write(script[1], text, sizeof text - 1);
    close(script[0]);
    close(script[1]);
    return written < 0 ? -1 : status_of(child);
}

static double replace(const struct arguments *at)
{
    (void)at;
    printf("ok exec 0 0 0\n");
    fflush(stdout);
    execl("/proc/self/exe", "client_replaced", (char *)NULL);
    _exit(127);
}

static double open_and_close(const struct arguments *at)
{
    (void)at;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL || dlsym(driver, "cuLaunchKernel") == NULL) return -1;
    return dlclose(driver);
}

static double close_descriptors(const struct arguments *at)
{
    (void)at;
    for (int fd = 3; fd < 1024; fd++) close(fd);
    return 0;
}

static double end(const struct arguments *at) { (void)at; exit(0); }
static double end_at_once(const struct arguments *at) { (void)at; _exit(0); }

static const struct { const char *name; double (*obey)(const struct arguments *at); } commands[] = {
    {"init", initialise}, {"use", use}, {"launch", launches}, {"run", run}, {"sync", synchronise}, {"ctxsync", synchronise_context},
    {"event", synchronise_event}, {"query", query}, {"equery", query_event}, {"loop", loop}, {"stamps", stamps},
    {"flood", flood}, {"serve", serve}, {"threads", threads}, {"streams", streams}, {"crowd", crowd}, {"reset", reset},
    {"context", another_context}, {"touch", touch}, {"alloc", allocate}, {"info", information}, {"fork", forks},
    {"forklaunch", fork_and_launch}, {"spawn", spawn}, {"exec", replace}, {"dlclose", open_and_close},
    {"closefds", close_descriptors}, {"exit", end}, {"_exit", end_at_once},
};

static double obey(const char *name, const struct arguments *at)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(name, commands[i].name)) return commands[i].obey(at);
    return -1;
}

int main(void)
{
    char line[256], name[32];
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct arguments at = {0};
        if (sscanf(line, "%31s %lf %lf %lf %lf", name, &at.a, &at.b, &at.c, &at.d) < 1) continue;
        shown_count = 0;
        shown_cpu = -1;
        uint64_t began = now();
        double answer = obey(name, &at);
        printf("ok %s %llu %llu %.0f", name, (unsigned long long)began, (unsigned long long)now(), answer);
        if (shown_cpu >= 0) printf(" %.6f", shown_cpu);
        for (unsigned i = 0; i < shown_count; i++) printf(" %llu", shown[i]);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
