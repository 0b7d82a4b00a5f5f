#include "be/argument_layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "generated/driver.h"
#include "learning/kernels.h"
#include "learning/launch.h"
#include "process/process.h"

void orion_layouts_free(struct orion_layout *layouts)
{
    for (struct orion_layout *next; layouts != NULL; layouts = next) next = layouts->next, free(layouts);
}

static CUresult argument_at(const CUDA_KERNEL_NODE_PARAMS *kernel, size_t index, size_t *offset, size_t *size)
{
    if (kernel->func != NULL && orion_driver.cuFuncGetParamInfo != NULL)
        return orion_driver.cuFuncGetParamInfo(kernel->func, index, offset, size);
    if (kernel->func == NULL && orion_driver.cuKernelGetParamInfo != NULL)
        return orion_driver.cuKernelGetParamInfo(kernel->kern, index, offset, size);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static size_t arguments_of(const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    return kernel->func != NULL ? orion_parameters_of_function(kernel->func) : orion_parameters_of_kernel(kernel->kern);
}

/* NULL: unknown. A driver that does not say how many parameters there are answers CUDA_ERROR_INVALID_VALUE behind the last one. */
static struct orion_layout *ask_for_layout(const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    size_t offset, size;
    struct orion_layout *layout = malloc(sizeof *layout + ORION_ARGUMENTS_MOST * sizeof layout->argument[0]);
    if (layout == NULL) return NULL;
    *layout = (struct orion_layout){.function = orion_function_of_node(kernel)};
    for (size_t arguments = arguments_of(kernel);;) {
        if (layout->count == arguments) return layout;
        CUresult result = argument_at(kernel, layout->count, &offset, &size);
        if (result == CUDA_ERROR_INVALID_VALUE) return layout;
        if (result != CUDA_SUCCESS || layout->count == ORION_ARGUMENTS_MOST || offset + size > UINT16_MAX) break;
        layout->argument[layout->count].offset = (uint32_t)offset;
        layout->argument[layout->count++].size = (uint32_t)size;
        if (offset + size > layout->bytes) layout->bytes = (uint32_t)(offset + size);
    }
    free(layout);
    return NULL;
}

static bool same_layout(const struct orion_layout *one, const struct orion_layout *other)
{
    return one->count == other->count && memcmp(one->argument, other->argument, one->count * sizeof one->argument[0]) == 0;
}

/* A layout of an earlier epoch stays in the list, because parameters that are kept may use it. */
const struct orion_layout *orion_layout_of(struct orion_process *process, struct orion_layout **layouts,
                                           const struct orion_layout *before, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    const void *function = orion_function_of_node(kernel);
    uint32_t epoch = atomic_load_explicit(&orion_kernels(process)->epoch, memory_order_acquire);
    if (before != NULL && before->function == function && before->epoch == epoch) return before;
    struct orion_layout *known = *layouts;
    while (known != NULL && known->function != function) known = known->next;
    if (known != NULL && known->epoch == epoch) return known;
    struct orion_layout *layout = ask_for_layout(kernel);
    if (layout == NULL) return NULL;
    if (known != NULL && same_layout(known, layout)) {
        known->epoch = epoch;
        free(layout);
        return known;
    }
    layout->epoch = epoch;
    layout->next = *layouts;
    *layouts = layout;
    struct orion_layout *smaller = realloc(layout, sizeof *layout + layout->count * sizeof layout->argument[0]);
    if (smaller != NULL) *layouts = smaller;
    return *layouts;
}
