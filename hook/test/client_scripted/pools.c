/* The commands about memory pools (`keep`, `take`, `give`, `trim`, `held` and `endpool`) and about graphs that allocate. */
#include "scripted.h"

#define TAKEN 256u

static CUmemoryPool own;
static CUdeviceptr taken[TAKEN];
static unsigned count;

static CUmemoryPool pool_of(double number)
{
    CUdevice device;
    CUmemoryPool pool = NULL;
    if (cuCtxGetDevice(&device)) return NULL;
    if (number < 1) return cuDeviceGetDefaultMemPool(&pool, device) ? NULL : pool;
    const CUmemPoolProps there = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    if (own == NULL) cuMemPoolCreate(&own, &there);
    return own;
}

double pool_keeps(const struct arguments *at)
{
    cuuint64_t bytes = (cuuint64_t)at->a;
    return cuMemPoolSetAttribute(pool_of(at->b), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
}

double pool_takes(const struct arguments *at)
{
    size_t bytes = (size_t)at->a;
    if (count == TAKEN) return CUDA_ERROR_UNKNOWN;
    CUresult result = at->b < 1 ? cuMemAllocAsync(&taken[count], bytes, NULL)
                                : cuMemAllocFromPoolAsync(&taken[count], bytes, pool_of(at->b), NULL);
    count += result == CUDA_SUCCESS;
    return result;
}

double pool_gives(const struct arguments *at)
{
    (void)at;
    return count == 0 ? CUDA_ERROR_UNKNOWN : cuMemFreeAsync(taken[--count], NULL);
}

double pool_trims(const struct arguments *at) { return cuMemPoolTrimTo(pool_of(at->b), (size_t)at->a); }

double pool_holds(const struct arguments *at)
{
    cuuint64_t bytes = 0;
    return cuMemPoolGetAttribute(pool_of(at->a), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) ? -1 : (double)bytes;
}

double pool_ends(const struct arguments *at)
{
    (void)at;
    CUresult result = cuMemPoolDestroy(own);
    own = NULL;
    return result;
}

static CUgraphExec executable;

static CUresult by_nodes(CUgraph *graph, size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .bytesize = bytes};
    CUgraphNode first, last;
    CUresult result;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if ((result = cuCtxGetDevice(&wanted.poolProps.location.id)) || (result = cuGraphCreate(graph, 0))) return result;
    if ((result = cuGraphAddMemAllocNode(&first, *graph, NULL, 0, &wanted))) return result;
    return cuGraphAddMemFreeNode(&last, *graph, &first, 1, wanted.dptr);
}

static CUresult by_capture(CUgraph *graph, size_t bytes)
{
    CUdeviceptr pointer;
    CUresult result = cuStreamBeginCapture(used->streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!result) result = cuMemAllocAsync(&pointer, bytes, used->streams[1]);
    if (!result) result = cuMemFreeAsync(pointer, used->streams[1]);
    CUresult ended = cuStreamEndCapture(used->streams[1], graph);
    return result ? result : ended;
}

double graph_of_allocation(const struct arguments *at)
{
    CUgraph graph;
    size_t bytes = (size_t)at->a;
    CUresult result = at->b < 1 ? by_nodes(&graph, bytes) : by_capture(&graph, bytes);
    return result ? result : cuGraphInstantiate(&executable, graph, 0);
}

double graph_runs(const struct arguments *at)
{
    (void)at;
    CUresult result = cuGraphLaunch(executable, used->streams[1]);
    return result ? result : cuStreamSynchronize(used->streams[1]);
}

double graph_uploads(const struct arguments *at)
{
    (void)at;
    CUresult result = cuGraphUpload(executable, used->streams[1]);
    return result ? result : cuStreamSynchronize(used->streams[1]);
}

double graphs_hold(const struct arguments *at)
{
    CUdevice device;
    cuuint64_t bytes = 0;
    (void)at;
    if (cuCtxGetDevice(&device)) return -1;
    return cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) ? -1 : (double)bytes;
}
