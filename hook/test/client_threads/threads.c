#include "threads.h"

#include <dlfcn.h>
#include <time.h>

__typeof__(&orion_start_scheduler) start;
__typeof__(&orion_stop_scheduler) stop;
__typeof__(&orion_set_client_idx) bind_to;
__typeof__(&orion_set_client_role) set_role;
__typeof__(&orion_set_policy) set_policy;
__typeof__(&orion_client_stream) stream_of;
__typeof__(&orion_client_figures) ask_figures;
__typeof__(&orion_scheduler_error) last_error;
CUfunction timed;
uint64_t marks[3], hp_worked_until;

static CUcontext context;

static void *found(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    CHECK(function != NULL);
    return function;
}

void look_up(void)
{
    start = found("orion_start_scheduler");
    stop = found("orion_stop_scheduler");
    bind_to = found("orion_set_client_idx");
    set_role = found("orion_set_client_role");
    set_policy = found("orion_set_policy");
    stream_of = found("orion_client_stream");
    ask_figures = found("orion_client_figures");
    last_error = found("orion_scheduler_error");
}

struct orion_client_figures figures(int client)
{
    struct orion_client_figures answer;
    CHECK(ask_figures(client, &answer, sizeof answer) == 0);
    return answer;
}

uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void initialise_kernel(void)
{
    static const char text[] = "orion-sim 1\nkernel timed duration_us=@0 sms=@1 params=8,4\n";
    CUmodule module;
    DONE(cuModuleLoadData(&module, text));
    DONE(cuModuleGetFunction(&timed, module, "timed"));
}

void initialise(void)
{
    CUdevice device;
    DONE(cuInit(0));
    DONE(cuDeviceGet(&device, 0));
    DONE(cuDevicePrimaryCtxRetain(&context, device));
    DONE(cuCtxSetCurrent(context));
    initialise_kernel();
}

/* The grid has more blocks than the GPU can run at once, so the hook may move the kernel to fewer SMs. */
void launch(CUstream stream, uint64_t milliseconds)
{
    uint64_t microseconds = milliseconds * 1000;
    uint32_t sms = 60;
    void *parameters[] = {&microseconds, &sms};
    DONE(cuLaunchKernel(timed, 132, 9 + (unsigned)milliseconds, 1, 256, 1, 1, 0, stream, parameters, NULL));
}

struct task {
    void (*body)(void);
    int client;
};

static void *run_task(void *argument)
{
    struct task *task = argument;
    DONE(cuCtxSetCurrent(context));
    if (task->client >= 0) CHECK(bind_to(task->client) == 0);
    task->body();
    return NULL;
}

pthread_t in_thread(int client, void (*body)(void))
{
    static struct task tasks[64];
    static unsigned used;
    struct task *task = &tasks[used++ % 64];
    *task = (struct task){body, client};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_task, task) == 0);
    return thread;
}

void all_of(int client, void (*body)(void)) { CHECK(pthread_join(in_thread(client, body), NULL) == 0); }

void hp_begins(void)
{
    hp_worked_until = now() + 100 * MS;
    launch(NULL, 100);
}

void hp_ends(void)
{
    DONE(cuStreamSynchronize(NULL));
    marks[1] = now();
}

void be_runs(void)
{
    launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
    marks[0] = now();
}
