/* Graphs of kernels that log their runs: a test can see that no kernel of a launch is lost, doubled or out of order.
 *
 * Kernel i writes i; if a launch changes the parameters, it writes i + 1000000 times the number of that launch in its
 * `play`. After every eighth kernel is a node of another type, as the kind says. */
#include "../../sim/orion_sim.h"
#include "graphs.h"

struct targets targets;
static bool muted;

static struct {
    struct wanted wanted;
    CUgraph graph;
    CUgraphExec executable;
} made;

static CUresult prepare(void)
{
    static const char text[] = "orion-sim 1\nkernel logged duration_us=@0 sms=@1 params=8,4,8,8 log=@2\n";
    CUmodule module;
    CUresult result;
    if ((result = cuModuleLoadData(&module, text)) || (result = cuModuleGetFunction(&targets.kernel, module, "logged")) ||
        (result = cuMemAlloc(&targets.memory, 16)) || (result = cuMemsetD32(targets.memory, 0, 4)))
        return result;
    targets.log_address = muted ? 0 : (uint64_t)(uintptr_t)targets.log;
    return cuEventCreate(&targets.event, CU_EVENT_DISABLE_TIMING);
}

/* Kernels of graphs that are made later write no log. */
double mute(const struct arguments *at)
{
    muted = at->a > 0;
    return CUDA_SUCCESS;
}

double make_graph(const struct arguments *at)
{
    struct wanted wanted = {(enum kind)at->a, (unsigned)at->b, (uint64_t)at->c, at->d > 1 ? (unsigned)at->d : 1, 0};
    CUresult result = prepare();
    made.wanted = wanted;
    if (!result) result = build(&wanted, &made.graph);
    unsigned flags = wanted.kind == LAUNCHABLE ? CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH : 0;
    return result ? result : cuGraphInstantiate(&made.executable, made.graph, flags);
}

/* `expected`: what the driver must answer. */
static CUresult update_by_another(CUresult expected, unsigned more)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph other;
    made.wanted.kernels += more;
    CUresult result = build(&made.wanted, &other);
    made.wanted.kernels -= more;
    if (result) return result;
    result = cuGraphExecUpdate(made.executable, other, &info);
    cuGraphDestroy(other);
    return result == expected ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult change(enum change how, unsigned launch)
{
    CUgraphExecUpdateResultInfo info;
    made.wanted.launch = launch;
    switch (how) {
    case NOTHING: return CUDA_SUCCESS;
    case ANOTHER: return update_by_another(CUDA_SUCCESS, 0);
    case REFUSED: return update_by_another(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 8);
    case IN_GRAPH: break;
    default: return set_values(made.graph, made.executable, how, launch);
    }
    CUresult result = set_values(made.graph, NULL, how, launch);
    return result ? result : cuGraphExecUpdate(made.executable, made.graph, &info);
}

/* N launches, alternately in the first STREAMS streams, each after a CHANGE; STREAMS below 0: each waits, too. */
double play(const struct arguments *at)
{
    CUresult result = CUDA_SUCCESS;
    unsigned streams = (unsigned)(at->b < 0 ? -at->b : at->b);
    if (!streams) streams = 1;
    for (unsigned i = 0; i < (unsigned)at->a && !result; i++) {
        CUstream stream = used->streams[1 + i % streams];
        result = change((enum change)at->c, i);
        if (!result) result = cuGraphLaunch(made.executable, stream);
        if (!result && at->b < 0) result = cuStreamSynchronize(stream);
    }
    return result;
}

/* Waits. Shows what copies and writes left in memory, then the log, and empties it. */
double written(const struct arguments *at)
{
    uint64_t copied = 0;
    (void)at;
    CUresult result = cuCtxSynchronize();
    if (!result) result = cuMemcpyDtoH(&copied, targets.memory + 8, 8);
    show(copied);
    show(targets.word);
    for (uint64_t i = 0; i < targets.log[0]; i++) show(targets.log[1 + i]);
    targets.log[0] = targets.word = 0;
    return result;
}

double own_launches(const struct arguments *at)
{
    (void)at;
    return (double)orion_sim_graph_launches(made.executable);
}

/* WHAT: 1: the executable, 2: the graph, 3: both. The executable may still run. */
double unmake(const struct arguments *at)
{
    unsigned what = (unsigned)at->a;
    CUresult result = what & 1 ? cuGraphExecDestroy(made.executable) : CUDA_SUCCESS;
    return result || !(what & 2) ? result : cuGraphDestroy(made.graph);
}
