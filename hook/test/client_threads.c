/* Clients as threads of one process: each scenario is a function below, named on the command line, and checks itself.
 * Run under the hook, without an agent, on the simulated GPU. */
#include "check.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "orion/inprocess.h"

#define MS 1000000u
#define BE 0
#define HP 1

/* Looked up, since only a preloaded hook has them. */
static __typeof__(&orion_start_scheduler) start;
static __typeof__(&orion_stop_scheduler) stop;
static __typeof__(&orion_set_client_idx) bind;
static __typeof__(&orion_set_client_role) set_role;
static __typeof__(&orion_set_policy) set_policy;
static __typeof__(&orion_client_stream) stream_of;
static __typeof__(&orion_client_figures) ask_figures;
static __typeof__(&orion_scheduler_error) last_error;

static CUcontext context;
static CUfunction timed;

#define DONE(call) CHECK((call) == CUDA_SUCCESS)

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void initialise(void)
{
    static const char text[] = "orion-sim 1\nkernel timed duration_us=@0 sms=@1 params=8,4\n";
    CUdevice device;
    CUmodule module;
    DONE(cuInit(0));
    DONE(cuDeviceGet(&device, 0));
    DONE(cuDevicePrimaryCtxRetain(&context, device));
    DONE(cuCtxSetCurrent(context));
    DONE(cuModuleLoadData(&module, text));
    DONE(cuModuleGetFunction(&timed, module, "timed"));
}

/* A kernel of fewer than half of the SMs, so that two run side by side where they may. */
static void launch(CUstream stream, uint64_t milliseconds)
{
    uint64_t microseconds = milliseconds * 1000;
    uint32_t sms = 60;
    void *parameters[] = {&microseconds, &sms};
    DONE(cuLaunchKernel(timed, 132, 1 + (unsigned)milliseconds, 1, 256, 1, 1, 0, stream, parameters, NULL));
}

static struct orion_client_figures figures(int client)
{
    struct orion_client_figures answer;
    CHECK(ask_figures(client, &answer, sizeof answer) == 0);
    return answer;
}

/* Runs a body in a thread of its own, bound to a client (-1: to none). */
struct task { void (*body)(void); int client; };
static void *run_task(void *argument)
{
    struct task *task = argument;
    DONE(cuCtxSetCurrent(context));
    if (task->client >= 0) CHECK(bind(task->client) == 0);
    task->body();
    return NULL;
}
static pthread_t in_thread(int client, void (*body)(void))
{
    static struct task tasks[64];
    static unsigned used;
    struct task *task = &tasks[used++ % 64];
    *task = (struct task){body, client};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_task, task) == 0);
    return thread;
}
static void all_of(int client, void (*body)(void)) { CHECK(pthread_join(in_thread(client, body), NULL) == 0); }

/* -- Gating ---------------------------------------------------------------------------------------------------------- */

static uint64_t marks[8];
static void hp_begins(void) { launch(NULL, 100); }
static void be_runs(void)
{
    launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
    marks[0] = now();
}
static void hp_ends(void)
{
    DONE(cuStreamSynchronize(NULL));
    marks[1] = now();
}

static void be_waits_for_hp(void)
{
    CHECK(start(2) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[0] > marks[1]);
    CHECK(marks[0] < marks[1] + 20 * MS);
    CHECK(figures(BE).role == ORION_CLIENT_BE && figures(HP).role == ORION_CLIENT_HP);
    CHECK(figures(BE).gated_launches >= 1 && figures(BE).gated_ns > 20 * MS);
    CHECK(figures(HP).gated_launches == 0 && figures(HP).busy_periods == 1 && figures(HP).busy_ns > 99 * MS);
}

static void without_a_policy_nobody_waits(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(HP, hp_begins);
    all_of(BE, be_runs);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
    CHECK(figures(BE).gated_launches == 0);
}

static void a_policy_changes_under_a_waiter(void)
{
    CHECK(start(2) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs);
    CHECK(set_policy(ORION_SCHEDULER_STREAMS, 1000) == 0);
    pthread_join(be, NULL);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
}

static void unbound_threads_pass(void)
{
    CHECK(start(2) == 0);
    all_of(HP, hp_begins);
    all_of(-1, be_runs);
    CHECK(figures(HP).launches == 1 && figures(BE).launches == 0);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
}

/* As autograd's backward does: a thread that is bound to nobody, on a stream that is a client's. */
static CUstream of_be, made;
static void launch_on_bes(void)
{
    launch(of_be, 1);
    DONE(cuStreamSynchronize(of_be));
    marks[0] = now();
}
static void launch_on_made(void)
{
    launch(made, 1);
    DONE(cuStreamSynchronize(made));
}
static void make_and_use(void)
{
    DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    launch(made, 1);
    DONE(cuStreamSynchronize(made));
}
static void make(void) { DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING)); launch(made, 1); }
static void a_stream_keeps_its_client(void)
{
    CHECK(start(2) == 0);
    of_be = stream_of(BE);
    CHECK(of_be != NULL && of_be == stream_of(BE) && of_be != stream_of(HP));
    all_of(HP, hp_begins);
    pthread_t backward = in_thread(-1, launch_on_bes);
    all_of(HP, hp_ends);
    pthread_join(backward, NULL);
    CHECK(marks[0] > marks[1]);
    CHECK(figures(BE).launches == 1 && figures(BE).gated_launches >= 1);
    all_of(BE, make_and_use); /* a stream that the program made: its first client's */
    all_of(-1, launch_on_made);
    all_of(HP, launch_on_made);
    CHECK(figures(BE).launches == 4 && figures(HP).launches == 1);
    all_of(-1, make); /* nobody's, until a client uses it */
    all_of(-1, launch_on_made);
    CHECK(figures(BE).launches == 4);
    all_of(HP, launch_on_made);
    all_of(-1, launch_on_made);
    CHECK(figures(HP).launches == 3);
}

static void note_priority(void)
{
    int priority;
    DONE(cuStreamGetPriority(NULL, &priority));
    marks[0] = (uint64_t)(int64_t)priority;
}
static void own_streams_have_priorities(void)
{
    int least, greatest;
    CHECK(start(3) == 0);
    CHECK(set_role(0, ORION_CLIENT_HP) == 0);
    DONE(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    int expected[] = {greatest, least, greatest};
    for (int i = 0; i < 3; i++) {
        all_of(i, note_priority);
        CHECK((int64_t)marks[0] == expected[i]);
    }
    all_of(0, be_runs);
    CHECK(set_role(0, ORION_CLIENT_BE) == -1 && strstr(last_error(), "begun") != NULL);
}

/* -- What programs rely on of the default stream --------------------------------------------------------------------- */

static void copies_and_kernels_keep_their_order(void)
{
    CUdeviceptr memory;
    uint32_t seen = 0, sent = 7;
    DONE(cuMemAlloc(&memory, 4096));
    for (uint32_t i = 1; i <= 20; i++) {
        launch(NULL, 1);
        DONE(cuMemsetD32Async(memory, i, 1024, i % 2 ? NULL : CU_STREAM_LEGACY));
        DONE(cuMemcpyDtoH(&seen, memory + 4092, 4));
        CHECK(seen == i);
        launch(CU_STREAM_PER_THREAD, 1);
        DONE(cuMemsetD32(memory, i + 100, 1024));
        DONE(cuMemcpyAsync((CUdeviceptr)(uintptr_t)&seen, memory, 4, NULL));
        DONE(cuStreamSynchronize(NULL));
        CHECK(seen == i + 100);
        DONE(cuMemcpyHtoD(memory, &sent, 4));
        DONE(cuMemcpyDtoD(memory + 8, memory, 4));
        DONE(cuMemcpy((CUdeviceptr)(uintptr_t)&seen, memory + 8, 4));
        CHECK(seen == 7);
    }
    DONE(cuMemFree(memory));
}
static void a_client_has_one_order(void)
{
    CHECK(start(2) == 0);
    pthread_t be = in_thread(BE, copies_and_kernels_keep_their_order);
    all_of(HP, copies_and_kernels_keep_their_order);
    pthread_join(be, NULL);
}

static CUdeviceptr shared_word;
static void read_shared_word(void)
{
    uint32_t seen = 0;
    DONE(cuMemcpyDtoHAsync(&seen, shared_word, 4, NULL));
    DONE(cuStreamSynchronize(NULL));
    CHECK(seen == 42);
    launch(NULL, 10);
    DONE(cuMemsetD32Async(shared_word, 43, 1, NULL));
    CHECK(bind(-1) == 0);
}
static void binding_hands_over(void)
{
    uint32_t seen = 0;
    CHECK(start(2) == 0);
    DONE(cuMemAlloc(&shared_word, 4));
    launch(NULL, 10); /* this thread's legacy stream; the client's is behind it from the binding on */
    DONE(cuMemsetD32Async(shared_word, 42, 1, NULL));
    all_of(HP, read_shared_word);
    DONE(cuMemcpyDtoH(&seen, shared_word, 4)); /* and ahead of it from the unbinding on */
    CHECK(seen == 43);
}

static void be_synchronises_context(void)
{
    launch(NULL, 1);
    DONE(cuCtxSynchronize());
    marks[0] = now();
}
static void a_context_synchronise_is_the_clients_own(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(HP, hp_begins);
    all_of(BE, be_synchronises_context);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
    CHECK(set_policy(ORION_SCHEDULER_GATE, 1000) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_synchronises_context);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[0] > marks[1]);
}

static CUevent event;
static void record(void)
{
    launch(NULL, 10);
    DONE(cuEventRecord(event, NULL));
    marks[2] = now();
}
static void wait_for_event(void)
{
    DONE(cuStreamWaitEvent(NULL, event, 0));
    launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
    marks[0] = now();
}
static void events_order_clients(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    DONE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    all_of(BE, record);
    all_of(HP, wait_for_event);
    DONE(cuEventQuery(event));
    CHECK(marks[0] > marks[2] + 8 * MS);
}

static void capture_and_replay(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    DONE(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DONE(cuStreamIsCapturing(NULL, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    launch(CU_STREAM_PER_THREAD, 5);
    launch(NULL, 5);
    DONE(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    DONE(cuGraphInstantiate(&exec, graph, 0));
    uint64_t began = now();
    DONE(cuGraphLaunch(exec, NULL));
    DONE(cuStreamSynchronize(NULL));
    CHECK(now() > began + 9 * MS);
}
static void captures_are_the_clients_own(void)
{
    CHECK(start(2) == 0);
    all_of(BE, capture_and_replay);
    CHECK(figures(BE).launches == 1);
}

/* -- hp that never synchronises, streams that end, contexts that end ------------------------------------------------- */

static void hp_floods(void)
{
    for (int i = 0; i < 20; i++) launch(NULL, 1);
    DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    launch(made, 2);
    DONE(cuStreamDestroy(made));
    marks[1] = now();
}
static void long_be(void) { launch(NULL, 300); }
static void hp_drains_without_being_waited_for(void)
{
    CHECK(start(3) == 0); /* clients 0 and 1 are be */
    all_of(0, long_be);   /* hp's end must not be that of the whole context */
    all_of(2, hp_floods);
    all_of(1, be_runs);
    CHECK(marks[0] < marks[1] + 150 * MS);
    CHECK(figures(2).busy_periods >= 1);
}

static void own_streams_end_with_their_context(void)
{
    CHECK(start(2) == 0);
    all_of(HP, be_runs);
    all_of(BE, be_runs);
    DONE(cuDevicePrimaryCtxReset(0));
    initialise();
    all_of(HP, be_runs);
    all_of(BE, be_runs);
    CHECK(figures(HP).launches >= 1 && figures(BE).launches >= 1);
}

/* -- Start and stop -------------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;
static void stays_bound(void)
{
    launch(NULL, 10);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    int priority = 1;
    DONE(cuStreamGetPriority(NULL, &priority)); /* the process's own default stream again */
    CHECK(priority == 0);
    launch(NULL, 1);
    DONE(cuCtxSynchronize());
}
static void stop_drains_and_unbinds(void)
{
    for (int round = 0; round < 3; round++) {
        CHECK(start(2 + round) == 0);
        pthread_barrier_init(&barrier, NULL, 2);
        pthread_t hp = in_thread(1 + round, stays_bound);
        pthread_barrier_wait(&barrier);
        uint64_t began = now();
        CHECK(stop() == 0);
        CHECK(now() > began + 5 * MS);
        CHECK(stop() == 0); /* nothing to do */
        pthread_barrier_wait(&barrier);
        pthread_join(hp, NULL);
    }
    CHECK(start(2) == 0);
    CHECK(figures(HP).launches == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[0] > marks[1]);
    CHECK(figures(BE).launches == 1 && figures(HP).launches == 1);
    CHECK(stop() == 0);
}

static void wrong_calls_are_refused(void)
{
    struct orion_client_figures unused;
    CHECK(bind(0) == -1 && strstr(last_error(), "no scheduler") != NULL);
    CHECK(bind(-1) == 0);
    CHECK(set_policy(ORION_SCHEDULER_GATE, 1000) == -1 && ask_figures(0, &unused, sizeof unused) == -1);
    CHECK(start(0) == -1 && start(ORION_CLIENTS_MOST + 1) == -1 && strstr(last_error(), "12") != NULL);
    CHECK(start(2) == 0);
    CHECK(start(2) == -1 && strstr(last_error(), "runs already") != NULL);
    CHECK(bind(2) == -1 && bind(-2) == -1 && stream_of(2) == NULL);
    CHECK(set_policy(3, 1000) == -1 && set_policy(ORION_SCHEDULER_ORION, 999) == -1);
    CHECK(set_role(0, 0) == -1 && set_role(5, ORION_CLIENT_HP) == -1);
    char few[8];
    memset(few, 1, sizeof few);
    CHECK(ask_figures(0, (struct orion_client_figures *)few, 4) == 0 && few[0] == ORION_CLIENT_BE && few[4] == 1);
}

static void an_agents_client_is_refused(void)
{
    DONE(cuCtxSynchronize());
    launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
    CHECK(start(2) == -1);
    CHECK(strstr(last_error(), "ORION_ROOT") != NULL);
}

static void the_environment_names_hp(void) /* ORION_HP_CLIENT=0 */
{
    CHECK(start(2) == 0);
    CHECK(figures(0).role == ORION_CLIENT_HP && figures(1).role == ORION_CLIENT_BE);
}

static void a_child_begins_anew(void)
{
    CHECK(start(2) == 0);
    all_of(HP, be_runs);
    CHECK(bind(HP) == 0);
    int result[2], stayed = 1;
    CHECK(pipe(result) == 0);
    if (fork() == 0) {
        stayed = bind(0) == -1 && start(2) == 0 && bind(0) == 0 && stop() == 0 ? 0 : 2;
        _exit(write(result[1], &stayed, sizeof stayed) != sizeof stayed);
    }
    CHECK(read(result[0], &stayed, sizeof stayed) == sizeof stayed && stayed == 0);
    be_runs();
    CHECK(figures(HP).launches == 2);
}

/* -- All at once ----------------------------------------------------------------------------------------------------- */

static uint64_t deadline;
static void at_random(void)
{
    unsigned seed = (unsigned)(uintptr_t)&seed >> 4;
    CUstream mine;
    CUevent mark;
    uint32_t word;
    CUdeviceptr memory;
    DONE(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    DONE(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
    DONE(cuMemAlloc(&memory, 64));
    while (now() < deadline) {
        CUstream stream = rand_r(&seed) % 2 ? NULL : mine;
        uint64_t microseconds = (unsigned)rand_r(&seed) % 80;
        uint32_t sms = 60;
        void *parameters[] = {&microseconds, &sms};
        DONE(cuLaunchKernel(timed, 132, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
        switch (rand_r(&seed) % 8) {
        case 0: DONE(cuStreamSynchronize(stream)); break;
        case 1: DONE(cuCtxSynchronize()); break;
        case 2: DONE(cuEventRecord(mark, stream)); DONE(cuEventSynchronize(mark)); break;
        case 3: DONE(cuMemcpyDtoH(&word, memory, 4)); break;
        default: break;
        }
    }
    DONE(cuCtxSynchronize());
    DONE(cuStreamDestroy(mine));
    DONE(cuMemFree(memory));
}
static void many_threads_at_random(void)
{
    pthread_t threads[8];
    CHECK(start(4) == 0);
    CHECK(set_policy(ORION_SCHEDULER_ORION, 1300) == 0);
    deadline = now() + 700 * MS;
    for (int i = 0; i < 8; i++) threads[i] = in_thread(i % 5 - 1, at_random);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) CHECK(figures(i).launches > 0);
    CHECK(stop() == 0);
}

static void hp_serves(void)
{
    while (now() < deadline) {
        launch(NULL, 5);
        DONE(cuStreamSynchronize(NULL));
        usleep(8000); /* requests with gaps: the budget compares busy periods */
    }
}
static void be_trains(void)
{
    while (now() < deadline) launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
}
static void work_together(unsigned seconds)
{
    deadline = now() + seconds * 1000 * MS;
    pthread_t be = in_thread(BE, be_trains);
    all_of(HP, hp_serves);
    pthread_join(be, NULL);
}
static void a_budget_lets_be_overlap(void)
{
    CHECK(start(2) == 0);
    work_together(1);
    CHECK(figures(BE).overlapped_launches == 0);
    CHECK(set_policy(ORION_SCHEDULER_ORION, 2000) == 0);
    for (int i = 0; i < 10 && figures(BE).overlapped_launches <= 20; i++) work_together(1); /* it has to be learnt */
    CHECK(figures(BE).overlapped_launches > 20);
}

/* For a count of instructions: 0 without a scheduler, 1 on a client's default stream, 2 on a stream of the client's. */
static void launches(void) { for (int i = 0; i < 20000; i++) launch(made, 0); DONE(cuStreamSynchronize(made)); }
static void cost(const char *where)
{
    made = NULL;
    if (where[0] != '0') CHECK(start(1) == 0);
    if (where[0] == '2') made = stream_of(0);
    all_of(where[0] == '0' ? -1 : 0, launches);
}

#define SCENARIO(name) {#name, name}
static const struct { const char *name; void (*body)(void); } scenarios[] = {
    SCENARIO(be_waits_for_hp), SCENARIO(without_a_policy_nobody_waits), SCENARIO(a_policy_changes_under_a_waiter),
    SCENARIO(unbound_threads_pass), SCENARIO(a_stream_keeps_its_client), SCENARIO(own_streams_have_priorities),
    SCENARIO(a_client_has_one_order), SCENARIO(binding_hands_over), SCENARIO(a_context_synchronise_is_the_clients_own),
    SCENARIO(events_order_clients), SCENARIO(captures_are_the_clients_own), SCENARIO(hp_drains_without_being_waited_for),
    SCENARIO(own_streams_end_with_their_context), SCENARIO(stop_drains_and_unbinds), SCENARIO(wrong_calls_are_refused),
    SCENARIO(an_agents_client_is_refused), SCENARIO(the_environment_names_hp), SCENARIO(a_child_begins_anew),
    SCENARIO(many_threads_at_random), SCENARIO(a_budget_lets_be_overlap),
};

static void *found(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    CHECK(function != NULL);
    return function;
}

int main(int count, char **arguments)
{
    CHECK(count > 1);
    if (strcmp(arguments[1], "list") == 0) {
        for (unsigned i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) puts(scenarios[i].name);
        return 0;
    }
    start = found("orion_start_scheduler");
    stop = found("orion_stop_scheduler");
    bind = found("orion_set_client_idx");
    set_role = found("orion_set_client_role");
    set_policy = found("orion_set_policy");
    stream_of = found("orion_client_stream");
    ask_figures = found("orion_client_figures");
    last_error = found("orion_scheduler_error");
    initialise();
    if (strcmp(arguments[1], "cost") == 0) return cost(arguments[2]), 0;
    for (unsigned i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
        if (strcmp(arguments[1], scenarios[i].name) == 0) return scenarios[i].body(), 0;
    CHECK(!"such a scenario");
}
