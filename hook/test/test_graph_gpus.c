/* A be graph whose kernels run on several GPUs begins when no hp is busy on any of them, although it is launched in a stream of one. */
#include "simulated_process.h"

#include <pthread.h>

#include "be/graph_copies.h"
#include "be/state.h"
#include "learning/durations.h"
#include "learning/graphs.h"
#include "until.h"

#define WINDOW_NS (400 * ORION_MICROSECOND)
#define GPUS 2u

static struct orion_policy_page policies[GPUS];
static struct orion_grant_page grant;
static struct orion_gpu *gpus[GPUS];
static CUcontext contexts[GPUS];
static CUfunction function;
static CUstream stream;
static _Atomic unsigned launches;
static char folder[] = "/dev/shm/orion-graph-gpus-XXXXXX"; /* of a machine with two GPUs */

static void set_hp(unsigned on, enum orion_busy_state state)
{
    struct orion_busy_page *page = (struct orion_busy_page *)(uintptr_t)gpus[on]->neighbours;
    atomic_store(&page->heartbeat_ns, orion_now() + 100 * ORION_SECOND);
    atomic_store(&page->drained_ns, UINT64_MAX); /* only the test says how long work takes */
    atomic_store(&page->state, state);
    orion_futex_wake_all(&page->state, true);
}

static void begin(void)
{
    CUdevice device;
    CHECK(mkdtemp(folder) && setenv("ORION_SIM_STATE", folder, 1) == 0 && setenv("ORION_SIM_GPUS", "2", 1) == 0);
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuCtxGetCurrent(&contexts[0]));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGet(&device, 1));
    gpus[0] = gpu, gpus[1] = fake_gpu_of(device, ORION_ROLE_BE);
    MUST(cuDevicePrimaryCtxRetain(&contexts[1], device));
    grant.copy[0].window_share_ns = WINDOW_NS;
    for (unsigned i = 0; i < GPUS; i++) {
        policies[i].copy[0] = (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = WINDOW_NS};
        atomic_store(&policies[i].hp_clients, 1);
        gpus[i]->policy = &policies[i];
        gpus[i]->grant = &grant;
        atomic_store(&gpus[i]->hp_generation[0], 1);
        atomic_store(&gpus[i]->hp_count, 1);
        set_hp(i, ORION_IDLE);
    }
}

static void takes(CUgraphExec exec, uint64_t ns)
{
    uint64_t identity = orion_graph_identity(orion_graphs(process), exec);
    orion_duration_forget(orion_durations(process), identity);
    orion_duration_learn(orion_durations(process), identity, ns, ORION_SAMPLE_CLEAN);
}

/* A chain of two kernels, each on one of the GPUs. */
static CUgraphExec instantiated(unsigned first, unsigned second)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode before = NULL;
    unsigned on[] = {first, second};
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < 2; i++) {
        CUDA_KERNEL_NODE_PARAMS kernel = {.kern = (CUkernel)function,
                                          .gridDimX = 1,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 64,
                                          .blockDimY = 1,
                                          .blockDimZ = 1};
        kernel.ctx = contexts[on[i]];
        MUST(cuGraphAddKernelNode(&before, graph, &before, i, &kernel));
    }
    MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    takes(exec, WINDOW_NS / 10);
    return exec;
}

static void *launch(void *exec)
{
    MUST(cuCtxSetCurrent(contexts[0]));
    MUST(cuGraphLaunch(exec, stream));
    atomic_fetch_add(&launches, 1);
    return NULL;
}

/* Whether a launch waits: for the hp of the other GPU, or again and again for the window. */
static bool waits(uint64_t window_waits)
{
    return atomic_load(&gpus[1]->record->waiting_since_ns) != 0 || atomic_load(&gpu->record->window_waits) != window_waits;
}

/* Launches while something is in the way, which goes once the launch waits. */
static void waits_until(CUgraphExec exec, void (*gone)(void))
{
    pthread_t thread;
    unsigned before = atomic_load(&launches);
    uint64_t window_waits = atomic_load(&gpu->record->window_waits);
    CHECK(pthread_create(&thread, NULL, launch, exec) == 0);
    UNTIL(waits(window_waits) || atomic_load(&launches) != before);
    CHECK(atomic_load(&launches) == before);
    gone();
    CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&launches) == before + 1);
    MUST(cuStreamSynchronize(stream));
}

static void hp_becomes_idle(void) { set_hp(1, ORION_IDLE); }
static void work_completes(void) { atomic_store(&orion_be(gpu)->in_flight_ns, 0); }

static void the_walk_finds_the_gpus(CUgraphExec both, CUgraphExec other, CUgraphExec own)
{
    CHECK(orion_graph_gpus(orion_graphs(process), both) == 3);
    CHECK(orion_graph_gpus(orion_graphs(process), other) == 2);
    CHECK(orion_graph_gpus(orion_graphs(process), own) == 1);
}

static void a_graph_waits_for_the_hp_of_each_gpu(CUgraphExec both, CUgraphExec other, CUgraphExec own)
{
    set_hp(1, ORION_BUSY);
    launch(own);
    waits_until(both, hp_becomes_idle);
    launch(both);
    set_hp(1, ORION_BUSY);
    waits_until(other, hp_becomes_idle);
}

/* Else it could begin much later than it was launched, when hp is busy again. */
static void a_graph_waits_for_room_in_the_window(CUgraphExec both, CUgraphExec own)
{
    atomic_store(&policies[0].hp_clients, 0);
    atomic_store(&orion_be(gpu)->in_flight_ns, 2 * WINDOW_NS);
    launch(own);
    MUST(cuStreamSynchronize(stream));
    atomic_store(&orion_be(gpu)->in_flight_ns, 2 * WINDOW_NS);
    waits_until(both, work_completes);
    atomic_store(&policies[0].hp_clients, 1);
}

static void a_long_graph_runs_in_pieces_for_the_hp_of_another_gpu(CUgraphExec both, CUgraphExec own)
{
    atomic_store(&policies[0].hp_clients, 0);
    takes(both, 6 * WINDOW_NS), takes(own, 6 * WINDOW_NS);
    launch(both), launch(own);
    CHECK(orion_graph_copy_of(process, both)->pieces == 2 && orion_graph_copy_of(process, own)->pieces == 1);
    MUST(cuStreamSynchronize(stream));
    atomic_store(&policies[0].hp_clients, 1);
}

int main(void)
{
    char command[64];
    begin();
    CUgraphExec both = instantiated(0, 1), other = instantiated(1, 1), own = instantiated(0, 0);
    the_walk_finds_the_gpus(both, other, own);
    a_graph_waits_for_the_hp_of_each_gpu(both, other, own);
    a_graph_waits_for_room_in_the_window(both, own);
    a_long_graph_runs_in_pieces_for_the_hp_of_another_gpu(both, own);
    MUST(cuGraphExecDestroy(both));
    MUST(cuGraphExecDestroy(other));
    MUST(cuGraphExecDestroy(own));
    puts("graph_gpus: ok");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}
