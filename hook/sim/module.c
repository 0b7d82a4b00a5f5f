/* Modules and libraries: two ways to reach the kernels of an image. A kernel and its function are one handle. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "context.h"
#include "image.h"

struct CUmod_st {
    uint32_t kind;
    struct sim_image *image;
    struct CUctx_st *context;
    struct CUlib_st *library;
};
struct CUlib_st {
    uint32_t kind;
    struct sim_image *image;
    struct CUmod_st *module;
};

#define OF(handle, kind, pointer) \
    SIM_READY(); \
    SIM_REFUSE(!(pointer), CUDA_ERROR_INVALID_VALUE); \
    SIM_REFUSE(!sim_handle_is(handle, kind), CUDA_ERROR_INVALID_HANDLE)

struct sim_kernel *sim_kernel(const void *handle)
{
    return sim_handle_is(handle, SIM_FUNCTION) ? (struct sim_kernel *)(uintptr_t)handle : NULL;
}

static CUresult read_file(const char *path, char **text)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    SIM_REFUSE(file < 0, CUDA_ERROR_FILE_NOT_FOUND);
    *text = fstat(file, &status) == 0 && status.st_size < (1 << 26) ? calloc(1, (size_t)status.st_size + 1) : NULL;
    bool whole = *text && read(file, *text, (size_t)status.st_size) == status.st_size;
    close(file);
    if (!whole) free(*text);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult module_of(struct sim_image *image, struct CUctx_st *context, CUmodule *made)
{
    struct CUmod_st *module = sim_handle_new(SIM_MODULE, sizeof *module);
    SIM_REFUSE(!module, CUDA_ERROR_OUT_OF_MEMORY);
    module->image = image;
    image->module = module;
    module->context = context;
    *made = module;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *text)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!module || !text, CUDA_ERROR_INVALID_VALUE);
    struct sim_image *image;
    SIM_TRY(sim_image_parse(text, &image));
    sim_context_settle(context);
    CUresult result = module_of(image, context, module);
    if (result) sim_image_free(image);
    return result;
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *text, unsigned count, CUjit_option *options, void **values)
{
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, text);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *module, const void *text) { return cuModuleLoadData(module, text); }

CUresult CUDAAPI cuModuleLoad(CUmodule *module, const char *path)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(!module || !path, CUDA_ERROR_INVALID_VALUE);
    char *text;
    SIM_TRY(read_file(path, &text));
    CUresult result = cuModuleLoadData(module, text);
    free(text);
    return result;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    sim_checkpoint_read();
    OF(module, SIM_MODULE, true);
    SIM_REFUSE(module->library, CUDA_ERROR_NOT_PERMITTED);
    sim_image_free(module->image);
    sim_handle_free(module);
    return CUDA_SUCCESS;
}

static CUresult enumerate(const struct sim_image *image, void **into, unsigned count)
{
    SIM_REFUSE(!into && count, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count && i < image->count; i++) into[i] = image->kernels[i];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(!function || !name, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_handle_is(module, SIM_MODULE), CUDA_ERROR_INVALID_HANDLE);
    *function = (CUfunction)sim_image_find(module->image, name);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned *count, CUmodule module)
{
    OF(module, SIM_MODULE, count);
    *count = module->image->count;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module)
{
    OF(module, SIM_MODULE, true);
    return enumerate(module->image, (void **)functions, count);
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)
{
    (void)pointer, (void)bytes;
    OF(module, SIM_MODULE, name);
    return CUDA_ERROR_NOT_FOUND; /* images have no variables */
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_REFUSE(!mode, CUDA_ERROR_INVALID_VALUE);
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *made, const void *text, CUjit_option *jit, void **jit_values, unsigned jit_count,
                                   CUlibraryOption *options, void **values, unsigned count)
{
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    SIM_READY();
    SIM_REFUSE(!made || !text, CUDA_ERROR_INVALID_VALUE);
    struct sim_image *image;
    SIM_TRY(sim_image_parse(text, &image));
    struct CUlib_st *library = sim_handle_new(SIM_LIBRARY, sizeof *library);
    CUresult result = library ? module_of(image, NULL, &library->module) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        if (library) sim_handle_free(library);
        sim_image_free(image);
        return result;
    }
    library->image = image;
    library->module->library = library;
    *made = library;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values,
                                       unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
{
    SIM_READY();
    SIM_REFUSE(!library || !path, CUDA_ERROR_INVALID_VALUE);
    char *text;
    SIM_TRY(read_file(path, &text));
    CUresult result = cuLibraryLoadData(library, text, jit, jit_values, jit_count, options, values, count);
    free(text);
    return result;
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
    OF(library, SIM_LIBRARY, library);
    sim_handle_free(library->module);
    sim_image_free(library->image);
    sim_handle_free(library);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    OF(library, SIM_LIBRARY, kernel && name ? kernel : NULL);
    *kernel = (CUkernel)sim_image_find(library->image, name);
    return *kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
    OF(library, SIM_LIBRARY, count);
    *count = library->image->count;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library)
{
    OF(library, SIM_LIBRARY, library);
    return enumerate(library->image, (void **)kernels, count);
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    OF(library, SIM_LIBRARY, module);
    *module = library->module;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
    (void)pointer, (void)bytes;
    OF(library, SIM_LIBRARY, name);
    return CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
    return cuLibraryGetGlobal(pointer, bytes, library, name);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(!function, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_kernel(kernel), CUDA_ERROR_INVALID_HANDLE);
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_KERNEL_CALL(function, !module);
    *module = sim_kernel(function)->image->module;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    SIM_KERNEL_CALL(kernel, !library);
    *library = sim_kernel(kernel)->image->module->library;
    return CUDA_SUCCESS;
}
