/* Kernels with a grid barrier of their own: no block ends before all blocks run. An SM holds two of their blocks. */
#include "scripted.h"

static CUfunction meeting; /* in the context in which it was used first */

static CUresult load_meeting(void)
{
    static const char code[] = "orion-sim 1\nkernel meeting duration_us=@0 sms=grid barrier=grid params=8\n";
    return meeting != NULL ? CUDA_SUCCESS : load_code(&meeting, code, "meeting");
}

static CUresult meet_on(CUstream stream, const struct arguments *at, CUlaunchAttribute *attribute)
{
    uint64_t microseconds = (uint64_t)at->b;
    void *parameters[] = {&microseconds};
    CUlaunchConfig config = {(unsigned)at->d, 1, 1, 1024, 1, 1, 0, stream, attribute, attribute != NULL};
    CUresult result = load_meeting();
    for (long i = 0; i < (long)at->a && result == CUDA_SUCCESS; i++)
        result = attribute != NULL ? cuLaunchKernelEx(&config, meeting, parameters, NULL)
                                   : cuLaunchKernel(meeting, (unsigned)at->d, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL);
    return result;
}

double meet(const struct arguments *at) { return meet_on(stream_of(at->c), at, NULL); }

double meet_in_clusters(const struct arguments *at)
{
    CUlaunchAttribute clusters = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}};
    return meet_on(stream_of(at->c), at, &clusters);
}

double meet_in_graph(const struct arguments *at)
{
    CUgraph graph;
    CUgraphExec executable;
    CUstream stream = stream_of(at->c);
    CUresult result;
    if ((result = load_meeting()) || (result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) ||
        (result = meet_on(stream, at, NULL)) || (result = cuStreamEndCapture(stream, &graph)) ||
        (result = cuGraphInstantiate(&executable, graph, 0)) || (result = cuGraphLaunch(executable, stream)) ||
        (result = cuStreamSynchronize(stream)) || (result = cuGraphExecDestroy(executable)))
        return result;
    return cuGraphDestroy(graph);
}
