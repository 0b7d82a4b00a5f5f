/* A client that is killed or stopped at any instruction leaves the simulated device usable.
 *
 *   every point   a client runs a fixed piece of work and is killed at the n-th numbered point inside the critical
 *                 sections, for every n until it completes; it also leaves the GPU by a checkpoint and returns
 *   twice         a second client is killed while it recovers from the death of the first
 *   stopped       the client is stopped by SIGSTOP: others continue. When the client continues, it has lost nothing
 *                 and has done nothing twice
 *   at random     clients that work without end are killed after a random time
 *
 * After each death a survivor launches, synchronises within a time limit, and finds the dead client's memory
 * returned. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "sim.h"

#define SURVIVOR_NS UINT64_C(3000000000) /* usually 2 ms: the time to abandon a stuck lock, and the kernel */
#define LAUNCHES 6

static const char image[] = "orion-sim 1\n"
                            "kernel tick duration_us=20 sms=4 params=\n"
                            "kernel wide duration_us=50 sms=132 params=\n";

static CUfunction tick, wide;
static CUstream stream, green_stream;
static CUgreenCtx green;

static void open_device(void)
{
    CUcontext context;
    CUmodule module;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
    CHECK(cuModuleLoadData(&module, image) == 0);
    CHECK(cuModuleGetFunction(&tick, module, "tick") == 0 && cuModuleGetFunction(&wide, module, "wide") == 0);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == 0);
}

static void open_partition(void)
{
    CUdevResource all, half;
    CUdevResourceDesc resources;
    unsigned count = 1;
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == 0);
    CHECK(cuDevSmResourceSplitByCount(&half, &count, &all, NULL, 0, 64) == 0);
    CHECK(cuDevResourceGenerateDesc(&resources, &half, 1) == 0);
    CHECK(cuGreenCtxCreate(&green, resources, 0, CU_GREEN_CTX_DEFAULT_STREAM) == 0);
    CHECK(cuGreenCtxStreamCreate(&green_stream, green, CU_STREAM_NON_BLOCKING, 0) == 0);
}

static void launch_on(CUstream on, CUfunction function)
{
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, NULL, NULL) == 0);
}

static void launch(CUfunction function) { launch_on(stream, function); }

static void leave_and_return(void)
{
    int self = getpid();
    CHECK(cuCheckpointProcessLock(self, NULL) == 0 && cuCheckpointProcessCheckpoint(self, NULL) == 0);
    CHECK(cuCheckpointProcessRestore(self, NULL) == 0 && cuCheckpointProcessUnlock(self, NULL) == 0);
}

/* The fixed piece of work. */
static int client(void)
{
    CUdeviceptr memory;
    CUevent event;
    open_device();
    open_partition();
    uint64_t before = sim_state()->streams[stream->slot].tail; /* from former streams in this slot */
    CHECK(cuMemAlloc(&memory, 8u << 20) == 0 && cuEventCreate(&event, 0) == 0);
    for (int i = 0; i < LAUNCHES; i++) {
        launch(i % 2 ? tick : wide);
        if (i % 3 == 0) launch_on(green_stream, wide);
    }
    leave_and_return();
    CHECK(cuEventRecord(event, stream) == 0 && cuStreamSynchronize(stream) == 0 && cuEventQuery(event) == 0);
    CHECK(sim_state()->streams[stream->slot].tail - before == LAUNCHES + 1); /* nothing lost, nothing twice */
    CHECK(cuMemFree(memory) == 0 && cuEventDestroy(event) == 0 && cuStreamDestroy(stream) == 0);
    CHECK(cuGreenCtxDestroy(green) == 0 && cuDevicePrimaryCtxRelease(0) == 0);
    return 0;
}

static int endless(unsigned seed)
{
    open_device();
    open_partition();
    for (;;) {
        CUdeviceptr memory = 0;
        launch_on(rand_r(&seed) % 3 ? stream : green_stream, rand_r(&seed) % 2 ? tick : wide);
        if (rand_r(&seed) % 4 == 0) CHECK(cuMemAlloc(&memory, (size_t)(1 + rand_r(&seed) % 8) << 20) == 0);
        if (rand_r(&seed) % 8 == 0) CHECK(cuStreamSynchronize(stream) == 0);
        if (memory && rand_r(&seed) % 2) CHECK(cuMemFree(memory) == 0);
    }
}

static pid_t start(const char *what, const char *variable, long value)
{
    char text[24];
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) return child;
    snprintf(text, sizeof text, "%ld", value);
    if (variable) setenv(variable, text, 1);
    execl("/proc/self/exe", "test_sim_crash", what, text, (char *)NULL);
    _exit(127);
}

static bool killed(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return WIFSIGNALED(status);
}

static uint64_t memory_in_use(void)
{
    size_t available, total;
    CHECK(cuMemGetInfo(&available, &total) == 0);
    return total - available;
}

static void survive(void)
{
    uint64_t begun = sim_monotonic_ns();
    launch(tick);
    launch(wide);
    CHECK(cuStreamSynchronize(stream) == 0);
    uint64_t took = sim_monotonic_ns() - begun;
    if (took > SURVIVOR_NS) fprintf(stderr, "the survivor took %llu us\n", (unsigned long long)took / 1000);
    CHECK(took < SURVIVOR_NS);
    while (memory_in_use() && sim_monotonic_ns() - begun < SURVIVOR_NS) usleep(200);
    CHECK(memory_in_use() == 0);
    sim_enter(); /* all SMs are free again */
    for (unsigned i = 0; i < SIM_SM_WORDS; i++) CHECK(sim_state()->gpus[0].held.word[i] == 0);
    sim_leave();
}

static long every_point(void)
{
    long point = 1;
    while (killed(start("client", "ORION_SIM_CRASH_AT", point))) {
        survive();
        point += point < 400 ? 1 : 7; /* later points repeat the same code */
    }
    survive();
    return point;
}

static void twice(long points)
{
    for (long first = 40; first < points; first += points / 5)
        for (long second = 1; second < 16; second++) {
            killed(start("client", "ORION_SIM_CRASH_AT", first));
            killed(start("client", "ORION_SIM_CRASH_AT", second));
            survive();
        }
}

static void stopped(long points)
{
    for (long point = 20; point < points; point += 1 + points / 60) {
        int status;
        pid_t child = start("client", "ORION_SIM_STOP_AT", point);
        CHECK(waitpid(child, &status, WUNTRACED) == child);
        if (WIFSTOPPED(status)) {
            uint64_t begun = sim_monotonic_ns();
            launch(tick);
            CHECK(cuStreamSynchronize(stream) == 0 && sim_monotonic_ns() - begun < SURVIVOR_NS);
            kill(child, SIGCONT);
            CHECK(!killed(child));
        } else {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        survive();
    }
}

static void at_random(int rounds)
{
    unsigned seed = 7;
    for (int round = 0; round < rounds; round++) {
        pid_t children[2] = {start("endless", NULL, round), start("endless", NULL, round + 1000)};
        usleep(3000 + (unsigned)rand_r(&seed) % 12000);
        for (int i = 0; i < 2; i++) {
            kill(children[i], SIGKILL);
            CHECK(killed(children[i]));
        }
        survive();
    }
}

int main(int count, char **arguments)
{
    char folder[] = "/dev/shm/orion-sim-crash-XXXXXX", command[64];
    if (count > 1) return strcmp(arguments[1], "client") ? endless((unsigned)atoi(arguments[2])) : client();
    CHECK(mkdtemp(folder));
    setenv("ORION_SIM_STATE", folder, 1);
    open_device();
    long points = every_point();
    twice(points);
    stopped(points);
    at_random(40);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    printf("%ld points, %llu regions\n", points, (unsigned long long)sim_machine->next_region);
    return system(command);
}
