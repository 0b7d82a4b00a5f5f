#include "memory/unified.h"

#include "generated/driver.h"
#include "memory/account.h"
#include "memory/pager.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/capture.h"

#define PITCH 512u /* as the driver chooses it: rows begin at multiples of it */

static uint32_t unified_of(struct orion_process *process, CUdevice device, bool awaits)
{
    struct orion_gpu *gpu = orion_account_client(process, device, awaits);
    if (gpu == NULL || gpu->client != 0 || atomic_load(&gpu->role) != ORION_ROLE_BE) return ORION_UNIFIED_NONE;
    return orion_gpu_grant(gpu)->unified;
}

enum orion_memory_kind orion_unified_kind(CUdevice device)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || !orion_account_counts(device) || orion_driver.cuMemAllocManaged == NULL) return ORION_MEMORY_RESIDENT;
    return unified_of(process, device, true) == ORION_UNIFIED_NONE ? ORION_MEMORY_RESIDENT : ORION_MEMORY_UNIFIED;
}

static bool fits(size_t bytes)
{
    size_t free_bytes, total;
    if (orion_driver.cuMemGetInfo_v2 == NULL || orion_driver.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS) return false;
    return bytes <= free_bytes;
}

/* Advice only: without it the memory works, too. */
static void prefer(CUdevice device, CUdeviceptr at, size_t bytes)
{
    const CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    if (orion_driver.cuMemAdvise_v2 == NULL) return;
    orion_driver.cuMemAdvise_v2(at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, there);
    orion_driver.cuMemAdvise_v2(at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, there);
}

/* The pages are on the GPU when this returns. So what is free there is right for the next allocation. */
static CUresult bring(CUdevice device, CUdeviceptr at, size_t bytes)
{
    const CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUstream stream;
    if (orion_driver.cuMemPrefetchAsync_v2 == NULL) return CUDA_ERROR_NOT_SUPPORTED;
    struct orion_relaxed relaxed = orion_capture_relax();
    CUresult result = orion_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        result = orion_driver.cuMemPrefetchAsync_v2(at, bytes, there, 0, stream);
        if (result == CUDA_SUCCESS) result = orion_driver.cuStreamSynchronize(stream);
        orion_driver.cuStreamDestroy_v2(stream);
    }
    orion_capture_unrelax(&relaxed);
    return result;
}

CUresult orion_unified_allocate(CUdevice device, CUdeviceptr *at, size_t bytes)
{
    struct orion_process *process = orion_the_process;
    bool within = unified_of(process, device, false) != ORION_UNIFIED_BEYOND;
    if (within && !fits(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = orion_driver.cuMemAllocManaged(at, bytes, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS) return result;
    prefer(device, *at, bytes);
    if (within) result = bring(device, *at, bytes);
    if (result == CUDA_SUCCESS) orion_pager_start(process, device);
    else if (orion_driver.cuMemFree_v2 != NULL) orion_driver.cuMemFree_v2(*at);
    return result;
}

CUresult orion_unified_allocate_rows(CUdevice device, CUdeviceptr *at, size_t *pitch, size_t width, size_t height)
{
    size_t row = width > SIZE_MAX - PITCH ? SIZE_MAX : (width + PITCH - 1) / PITCH * PITCH;
    if (row > SIZE_MAX / height) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = orion_unified_allocate(device, at, row * height);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
}
