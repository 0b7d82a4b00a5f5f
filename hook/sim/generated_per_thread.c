/* Written by generate.py: do not edit. The default stream is the calling thread's in here. */
#define __CUDA_API_VERSION_INTERNAL
#include "sim.h"

CUresult CUDAAPI cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuEventRecordWithFlags(hEvent, hStream, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuEventRecord(hEvent, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuFabricCpyBatchAsync_ptsz(size_t numOps, CUDA_FABRIC_COPY_BATCH_OP *opList, unsigned long long flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuFabricCpyBatchAsync(numOps, opList, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    sim_per_thread_default = true;
    CUresult result = cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuGraphLaunch(hGraphExec, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuGraphUpload(hGraphExec, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuGraphicsMapResources_ptsz(unsigned int count, CUgraphicsResource *resources, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuGraphicsMapResources(count, resources, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuGraphicsUnmapResources_ptsz(unsigned int count, CUgraphicsResource *resources, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuGraphicsUnmapResources(count, resources, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams) {
    sim_per_thread_default = true;
    CUresult result = cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData) {
    sim_per_thread_default = true;
    CUresult result = cuLaunchHostFunc(hStream, fn, userData);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuLaunchHostFunc_v2_ptsz(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode) {
    sim_per_thread_default = true;
    CUresult result = cuLaunchHostFunc_v2(hStream, fn, userData, syncMode);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    sim_per_thread_default = true;
    CUresult result = cuLaunchKernelEx(config, f, kernelParams, extra);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    sim_per_thread_default = true;
    CUresult result = cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemAllocAsync(dptr, bytesize, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams *paramsArray, size_t count, unsigned int flags, size_t *errorIndex, CUstream stream) {
    sim_per_thread_default = true;
    CUresult result = cuMemBatchDecompressAsync(paramsArray, count, flags, errorIndex, stream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemDiscardAndPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemDiscardBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemFreeAsync(dptr, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemMapArrayAsync(mapInfoList, count, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemPrefetchAsync(devPtr, count, dstDevice, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy2DAsync_v2(pCopy, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *pCopy) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy2DUnaligned_v2(pCopy);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *pCopy) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy2D_v2(pCopy);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy3DAsync_v2(pCopy, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy3DBatchAsync_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy3DBatchAsync(numOps, opList, failIdx, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy3DPeerAsync(pCopy, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *pCopy) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy3DPeer(pCopy);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy3DWithAttributesAsync(op, flags, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *pCopy) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy3D_v2(pCopy);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyAsync(dst, src, ByteCount, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyAtoHAsync_v2_ptsz(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyAtoH_v2_ptds(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyBatchAsync_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyDtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyHtoAAsync_v2_ptsz(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyHtoA_v2_ptds(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpyWithAttributesAsync(dst, src, size, attr, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    sim_per_thread_default = true;
    CUresult result = cuMemcpy(dst, src, ByteCount);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD16Async(dstDevice, us, N, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD16_v2(dstDevice, us, N);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD32Async(dstDevice, ui, N, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD32_v2(dstDevice, ui, N);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD8Async(dstDevice, uc, N, hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    sim_per_thread_default = true;
    CUresult result = cuMemsetD8_v2(dstDevice, uc, N);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuSignalExternalSemaphoresAsync_ptsz(const CUexternalSemaphore *extSemArray, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *paramsArray, unsigned int numExtSems, CUstream stream) {
    sim_per_thread_default = true;
    CUresult result = cuSignalExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamAddCallback(hStream, callback, userData, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamAttachMemAsync(hStream, dptr, length, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamBatchMemOp(stream, count, paramArray, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamBeginCaptureToCig_ptsz(CUstream hStream, CUstreamCigCaptureParams* streamCigCaptureParams) {
    sim_per_thread_default = true;
    CUresult result = cuStreamBeginCaptureToCig(hStream, streamCigCaptureParams);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode) {
    sim_per_thread_default = true;
    CUresult result = cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuStreamBeginCapture(hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
    sim_per_thread_default = true;
    CUresult result = cuStreamBeginCapture_v2(hStream, mode);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph, CUgraphRecaptureCallback callbackFunc, void *userData) {
    sim_per_thread_default = true;
    CUresult result = cuStreamBeginRecaptureToGraph(hStream, mode, hGraph, callbackFunc, userData);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src) {
    sim_per_thread_default = true;
    CUresult result = cuStreamCopyAttributes(dst, src);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamEndCaptureToCig_ptsz(CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuStreamEndCaptureToCig(hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
    sim_per_thread_default = true;
    CUresult result = cuStreamEndCapture(hStream, phGraph);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetAttribute(hStream, attr, value_out);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetCaptureInfo_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetCaptureInfo(hStream, captureStatus_out, id_out);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetCaptureInfo_v2(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetCtx_ptsz(CUstream hStream, CUcontext *pctx) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetCtx(hStream, pctx);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetCtx_v2_ptsz(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetCtx_v2(hStream, pCtx, pGreenCtx);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetDevResource_ptsz(CUstream hStream, CUdevResource *resource, CUdevResourceType type) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetDevResource(hStream, resource, type);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetDevice_ptsz(CUstream hStream, CUdevice *device) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetDevice(hStream, device);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetFlags_ptsz(CUstream hStream, unsigned int *flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetFlags(hStream, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetId_ptsz(CUstream hStream, unsigned long long *streamId) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetId(hStream, streamId);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamGetPriority_ptsz(CUstream hStream, int *priority) {
    sim_per_thread_default = true;
    CUresult result = cuStreamGetPriority(hStream, priority);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    sim_per_thread_default = true;
    CUresult result = cuStreamIsCapturing(hStream, captureStatus);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamQuery_ptsz(CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuStreamQuery(hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value) {
    sim_per_thread_default = true;
    CUresult result = cuStreamSetAttribute(hStream, attr, value);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream hStream) {
    sim_per_thread_default = true;
    CUresult result = cuStreamSynchronize(hStream);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, dependencyData, numDependencies, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWaitEvent(hStream, hEvent, Flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWaitValue32(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWaitValue32_v2(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWaitValue64(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWaitValue64_v2(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWriteValue32(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWriteValue32_v2(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWriteValue64(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    sim_per_thread_default = true;
    CUresult result = cuStreamWriteValue64_v2(stream, addr, value, flags);
    sim_per_thread_default = false;
    return result;
}
CUresult CUDAAPI cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore *extSemArray, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray, unsigned int numExtSems, CUstream stream) {
    sim_per_thread_default = true;
    CUresult result = cuWaitExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
    sim_per_thread_default = false;
    return result;
}
