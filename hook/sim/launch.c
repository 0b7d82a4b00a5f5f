/* Kernel launches, in all their forms. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "context.h"
#include "graph.h"
#include "sim.h"

/* Collect the parameters of a launch as an array of pointers, from either of CUDA's two forms. */
CUresult sim_gather_parameters(const struct sim_kernel *kernel, void **parameters, void **extra, void *gathered[])
{
    const char *buffer = NULL;
    size_t size = 0;
    SIM_REFUSE(parameters && extra, CUDA_ERROR_INVALID_VALUE);
    for (void **at = extra; at && *at != CU_LAUNCH_PARAM_END; at += 2) {
        if (at[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = at[1];
        else if (at[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *(const size_t *)at[1];
        else return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_REFUSE(kernel->parameter_count && !parameters && !buffer, CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < kernel->parameter_count; i++) {
        SIM_REFUSE(!parameters && kernel->parameter_offset[i] + kernel->parameter_size[i] > size, CUDA_ERROR_INVALID_VALUE);
        gathered[i] = parameters ? parameters[i] : (void *)(uintptr_t)(buffer + kernel->parameter_offset[i]);
        SIM_REFUSE(!gathered[i], CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

CUresult sim_check_shape(const struct sim_kernel *kernel, const unsigned grid[3], const unsigned block[3], unsigned shared)
{
    SIM_REFUSE(!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2], CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(block[0] > 1024 || block[1] > 1024 || block[2] > 64, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE((uint64_t)block[0] * block[1] * block[2] > SIM_MAX_THREADS, CUDA_ERROR_INVALID_VALUE);
    unsigned most = kernel->max_dynamic_shared ? (unsigned)kernel->max_dynamic_shared : SIM_SHARED_MEMORY;
    SIM_REFUSE(shared > most, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult launch(const struct sim_launch *launch, CUstream handle, void **parameters, void **extra,
                       const CUlaunchAttribute *attributes, unsigned count)
{
    void *gathered[SIM_PARAMETERS];
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!launch->kernel, CUDA_ERROR_INVALID_HANDLE);
    SIM_TRY(sim_check_shape(launch->kernel, launch->grid, launch->block, launch->shared));
    SIM_TRY(sim_gather_parameters(launch->kernel, parameters, extra, gathered));
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_kernel(stream, launch, gathered, attributes, count);
    sim_context_load(stream->context, launch->kernel);
    return sim_submit_kernel(stream, launch, gathered);
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                                void **extra)
{
    struct sim_launch it = {.kernel = sim_kernel(function),
                            .grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared = shared};
    return launch(&it, stream, parameters, extra, NULL, 0);
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                           unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, NULL);
}

/* Of the launch attributes, only a priority and an event to record have an effect here. The nodes of captures keep all of them. */
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    SIM_READY();
    SIM_REFUSE(!config || (config->numAttrs && !config->attrs), CUDA_ERROR_INVALID_VALUE);
    struct sim_launch it = {.kernel = sim_kernel(function),
                            .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                            .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                            .shared = config->sharedMemBytes};
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            it.priority = (unsigned)(sim_priority(config->attrs[i].value.priority) + SIM_PRIORITIES);
    SIM_TRY(launch(&it, config->hStream, parameters, extra, config->attrs, config->numAttrs));
    for (unsigned i = 0; i < config->numAttrs; i++) {
        CUevent event = NULL;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) event = config->attrs[i].value.programmaticEvent.event;
        else if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            event = config->attrs[i].value.launchCompletionEvent.event;
        if (event) SIM_TRY(cuEventRecord(event, config->hStream));
    }
    return CUDA_SUCCESS;
}

/* A function that CUDA does not have. It stands for those of a newer driver, which a hook does not know. */
SIM_EXPORT CUresult CUDAAPI cuLaunchOfTheFuture(CUfunction function, CUstream stream, void **parameters);
CUresult CUDAAPI cuLaunchOfTheFuture(CUfunction function, CUstream stream, void **parameters)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}
