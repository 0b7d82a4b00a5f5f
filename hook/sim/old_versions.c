/* Former versions of functions, for programs built against older headers. Each is the present function under another
 * name or with fewer arguments. Of the 32-bit versions of CUDA 2 only those are supported that tell how much memory there is. */
#define __CUDA_API_VERSION_INTERNAL
#include <limits.h>

#include "sim.h"

CUresult CUDAAPI cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) { return cuCtxCreate_v2(context, flags, device); }
CUresult CUDAAPI cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }
CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context) { return cuCtxPopCurrent_v2(context); }
CUresult CUDAAPI cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }
CUresult CUDAAPI cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
static unsigned narrowed(size_t bytes) { return bytes < UINT_MAX ? (unsigned)bytes : UINT_MAX; }

CUresult CUDAAPI cuMemGetInfo(unsigned *available, unsigned *total)
{
    size_t wide_available = 0, wide_total = 0;
    CUresult result = cuMemGetInfo_v2(&wide_available, &wide_total);
    if (available) *available = narrowed(wide_available);
    if (total) *total = narrowed(wide_total);
    return result;
}
CUresult CUDAAPI cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    size_t wide = 0;
    CUresult result = cuDeviceTotalMem_v2(bytes ? &wide : NULL, device);
    if (bytes) *bytes = narrowed(wide);
    return result;
}
CUresult CUDAAPI cuMemHostRegister(void *pointer, size_t size, unsigned flags)
{
    return cuMemHostRegister_v2(pointer, size, flags);
}

static CUmemLocation location_of(CUdevice device)
{
    CUmemLocation at = {0};
    at.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    at.id = device == CU_DEVICE_CPU ? 0 : device;
    return at;
}

CUresult CUDAAPI cuMemAdvise(CUdeviceptr pointer, size_t size, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(pointer, size, advice, location_of(device));
}
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync_v2(pointer, size, location_of(device), 0, stream);
}
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                                    CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, size_t *failed,
                                    CUstream stream)
{
    if (failed) *failed = SIZE_MAX;
    return cuMemcpyBatchAsync_v2(targets, sources, sizes, count, attributes, indices, attribute_count, stream);
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream) { return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL); }
CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **dependencies, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}
CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags)
{
    return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return cuStreamWriteValue32_v2(stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return cuStreamWriteValue64_v2(stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return cuStreamWaitValue32_v2(stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return cuStreamWaitValue64_v2(stream, address, value, flags);
}
CUresult CUDAAPI cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags)
{
    return cuStreamBatchMemOp_v2(stream, count, ops, flags);
}

/* The first version of kernel parameters lacks the kernel and the context at the end. */
static CUDA_KERNEL_NODE_PARAMS_v2 newer(const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    return (CUDA_KERNEL_NODE_PARAMS_v2){.func = old->func,
                                        .gridDimX = old->gridDimX,
                                        .gridDimY = old->gridDimY,
                                        .gridDimZ = old->gridDimZ,
                                        .blockDimX = old->blockDimX,
                                        .blockDimY = old->blockDimY,
                                        .blockDimZ = old->blockDimZ,
                                        .sharedMemBytes = old->sharedMemBytes,
                                        .kernelParams = old->kernelParams,
                                        .extra = old->extra};
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    SIM_REFUSE(!old, CUDA_ERROR_INVALID_VALUE);
    CUDA_KERNEL_NODE_PARAMS_v2 parameters = newer(old);
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &parameters);
}
CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    SIM_REFUSE(!old, CUDA_ERROR_INVALID_VALUE);
    CUDA_KERNEL_NODE_PARAMS_v2 parameters = newer(old);
    return cuGraphKernelNodeSetParams_v2(node, &parameters);
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    SIM_REFUSE(!old, CUDA_ERROR_INVALID_VALUE);
    CUDA_KERNEL_NODE_PARAMS_v2 parameters = newer(old);
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters);
}
CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    CUDA_KERNEL_NODE_PARAMS_v2 now;
    SIM_REFUSE(!old, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(cuGraphKernelNodeGetParams_v2(node, &now));
    *old = (CUDA_KERNEL_NODE_PARAMS_v1){now.func,      now.gridDimX,  now.gridDimY,       now.gridDimZ,     now.blockDimX,
                                        now.blockDimY, now.blockDimZ, now.sharedMemBytes, now.kernelParams, now.extra};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *culprit, char *log, size_t size)
{
    if (culprit) *culprit = NULL;
    if (log && size) *log = 0;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *culprit, char *log, size_t size)
{
    return cuGraphInstantiate(exec, graph, culprit, log, size);
}
CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *culprit, CUgraphExecUpdateResult *result)
{
    CUgraphExecUpdateResultInfo info = {0};
    CUresult updated = cuGraphExecUpdate_v2(exec, graph, &info);
    if (culprit) *culprit = info.errorNode;
    if (result) *result = info.result;
    return updated;
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}
CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}
CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}
CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
CUresult CUDAAPI cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                CUgraphNodeParams *parameters)
{
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, parameters);
}
