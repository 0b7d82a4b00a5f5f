/* The hook's own calls of the driver do not fail where the program's own calls succeed: tools that report each failed call (compute-sanitizer,
 * CUPTI, the driver's log) would name calls that the program has not made. On the simulated driver. */
#include "simulated_process.h"

#include "be/argument_layout.h"
#include "learning/extent.h"
#include "learning/kernels.h"

static CUfunction function;
static CUkernel library_kernel;
static unsigned failed;

static CUresult noted(CUresult result)
{
    failed += result != CUDA_SUCCESS;
    return result;
}

static CUresult CUDAAPI parameter_of(CUfunction of, size_t index, size_t *offset, size_t *size)
{
    return noted(cuFuncGetParamInfo(of, index, offset, size));
}
static CUresult CUDAAPI parameter_of_kernel(CUkernel of, size_t index, size_t *offset, size_t *size)
{
    return noted(cuKernelGetParamInfo(of, index, offset, size));
}

static void begin(void)
{
    static const char image[] = "orion-sim 1\nkernel one duration_us=20 params=8,4,16\n";
    CUlibrary library;
    CUmodule module = begin_process(image);
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    MUST(cuLibraryGetKernel(&library_kernel, library, "one"));
    orion_driver.cuFuncGetParamInfo = parameter_of;
    orion_driver.cuKernelGetParamInfo = parameter_of_kernel;
}

static uint64_t mark(void)
{
    orion_kernels_forget(orion_kernels(process));
    return orion_kernel_ask(orion_kernels(process), function).mark;
}

static void layout_is_known(bool of_library)
{
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = of_library ? NULL : function, .kern = of_library ? library_kernel : NULL};
    struct orion_layout *layouts = NULL;
    const struct orion_layout *layout = orion_layout_of(process, &layouts, NULL, &kernel);
    CHECK(layout != NULL && layout->count == 3 && layout->argument[2].size == 16);
    orion_layouts_free(layouts);
}

static void the_parameters_of_a_kernel_are_read_without_a_failure(void)
{
    uint64_t of_new_driver = mark();
    layout_is_known(false);
    layout_is_known(true);
    CHECK(failed == 0);
    /* Drivers before CUDA 13.2. What the hook has learnt about a kernel must not depend on the driver. */
    orion_driver.cuFuncGetParamCount = NULL;
    orion_driver.cuKernelGetParamCount = NULL;
    CHECK(mark() == of_new_driver);
    layout_is_known(false);
    layout_is_known(true);
    CHECK(failed == 3);
}

static CUresult CUDAAPI attributes_of(unsigned count, CUpointer_attribute *attributes, void **into, CUdeviceptr pointer)
{
    return noted(cuPointerGetAttributes(count, attributes, into, pointer));
}

static void the_hosts_own_memory_is_recognised_without_a_failure(void)
{
    static char host[64];
    void *pinned;
    CUdeviceptr device;
    failed = 0;
    orion_driver.cuPointerGetAttributes = attributes_of;
    MUST(cuMemAlloc(&device, 4096));
    MUST(cuMemAllocHost(&pinned, 4096));
    CHECK(orion_is_on_device(device) && orion_is_on_device(device + 100));
    CHECK(!orion_is_on_device((CUdeviceptr)(uintptr_t)host) && !orion_is_on_device((CUdeviceptr)(uintptr_t)pinned));
    CHECK(failed == 0);
}

int main(void)
{
    begin();
    the_parameters_of_a_kernel_are_read_without_a_failure();
    the_hosts_own_memory_is_recognised_without_a_failure();
    puts("own_calls: ok");
    return 0;
}
