/* Queries of kernels: attributes, parameters, occupancy. */
#include <string.h>

#include "context.h"
#include "sim.h"

#define REGISTERS 32

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const struct sim_kernel *kernel)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = SIM_MAX_THREADS; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = REGISTERS; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = kernel->max_dynamic_shared ? kernel->max_dynamic_shared : SIM_SHARED_MEMORY;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = kernel->preferred_carveout; break;
    default: SIM_REFUSE(attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE); *value = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUfunction_attribute attribute, int value, struct sim_kernel *kernel)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        SIM_REFUSE(value < 0 || value > SIM_SHARED_MEMORY_OPTIN, CUDA_ERROR_INVALID_VALUE);
        kernel->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        SIM_REFUSE(value < -1 || value > 100, CUDA_ERROR_INVALID_VALUE);
        kernel->preferred_carveout = value;
        return CUDA_SUCCESS;
    default:
        return attribute > CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && attribute < CU_FUNC_ATTRIBUTE_MAX
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult name_of(const char **name, const void *handle)
{
    SIM_KERNEL_CALL(handle, !name);
    *name = sim_kernel(handle)->name;
    return CUDA_SUCCESS;
}

static CUresult parameter_of(const void *handle, size_t index, size_t *offset, size_t *size)
{
    const struct sim_kernel *kernel = sim_kernel(handle);
    SIM_READY();
    SIM_REFUSE(!kernel, CUDA_ERROR_INVALID_HANDLE);
    SIM_REFUSE(!offset || index >= (size_t)kernel->parameter_count, CUDA_ERROR_INVALID_VALUE);
    *offset = kernel->parameter_offset[index];
    if (size) *size = kernel->parameter_size[index];
    return CUDA_SUCCESS;
}

static CUresult parameter_count_of(const void *handle, size_t *count)
{
    SIM_KERNEL_CALL(handle, !count);
    *count = (size_t)sim_kernel(handle)->parameter_count;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    SIM_KERNEL_CALL(function, !value);
    return get_attribute(value, attribute, sim_kernel(function));
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SIM_READY();
    SIM_REFUSE(!sim_kernel(function), CUDA_ERROR_INVALID_HANDLE);
    return set_attribute(attribute, value, sim_kernel(function));
}

CUresult CUDAAPI cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    SIM_READY();
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    SIM_READY();
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    (void)config;
    SIM_READY();
    return sim_kernel(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    (void)device;
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction function) { return name_of(name, function); }
CUresult CUDAAPI cuKernelGetName(const char **name, CUkernel kernel) { return name_of(name, kernel); }
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    return parameter_of(function, index, offset, size);
}
CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    return parameter_of(kernel, index, offset, size);
}
CUresult CUDAAPI cuFuncGetParamCount(CUfunction function, size_t *count) { return parameter_count_of(function, count); }
CUresult CUDAAPI cuKernelGetParamCount(CUkernel kernel, size_t *count) { return parameter_count_of(kernel, count); }

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_READY();
    SIM_REFUSE(!state, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_kernel(function), CUDA_ERROR_INVALID_HANDLE);
    *state = sim_kernel(function)->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncLoad(CUfunction function)
{
    SIM_CONTEXT(context);
    struct sim_kernel *kernel = sim_kernel(function);
    SIM_REFUSE(!kernel, CUDA_ERROR_INVALID_HANDLE);
    sim_context_load(context, kernel);
    return CUDA_SUCCESS;
}

/* An SM holds 2048 threads, 32 blocks and 228 KiB of shared memory. Each block reserves 1 KiB of the shared memory. */
int sim_blocks_per_sm(int threads, size_t shared)
{
    int by_threads = 2048 / ((threads + 31) / 32 * 32);
    int by_shared = shared ? (int)(233472 / (shared + 1024)) : 32;
    int blocks = by_threads < by_shared ? by_threads : by_shared;
    return blocks < 32 ? blocks : 32;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads, size_t shared,
                                                                      unsigned flags)
{
    (void)flags;
    SIM_KERNEL_CALL(function, !blocks || threads <= 0);
    *blocks = threads > SIM_MAX_THREADS ? 0 : sim_blocks_per_sm(threads, shared);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function, CUoccupancyB2DSize size_of,
                                                           size_t shared, int limit, unsigned flags)
{
    (void)flags;
    SIM_KERNEL_CALL(function, !grid || !block);
    *block = limit > 0 && limit < SIM_MAX_THREADS ? limit : SIM_MAX_THREADS;
    *grid = (int)sim_machine->parameters.sms * sim_blocks_per_sm(*block, size_of ? size_of(*block) : shared);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function, CUoccupancyB2DSize size_of,
                                                  size_t shared, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, size_of, shared, limit, 0);
}

CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int threads)
{
    (void)threads;
    SIM_KERNEL_CALL(function, !bytes || blocks <= 0);
    size_t each = 233472 / (size_t)blocks - 1024;
    *bytes = each < SIM_SHARED_MEMORY_OPTIN ? each : SIM_SHARED_MEMORY_OPTIN;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config)
{
    SIM_KERNEL_CALL(function, !size || !config);
    *size = 8;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config)
{
    SIM_KERNEL_CALL(function, !count || !config);
    *count = (int)sim_machine->parameters.sms / 8;
    return CUDA_SUCCESS;
}
