/* Virtual memory management: address ranges, physical memory, and mappings of physical memory into ranges. Physical
 * memory is a memfd, so it can be mapped twice. Its contents live until the program has released the handle and all
 * mappings. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocation.h"
#include "capture.h"
#include "checkpoint.h"
#include "client.h"

#define GRANULARITY (UINT64_C(2) << 20)

/* The value of a CUmemGenericAllocationHandle is the address of this structure. */
struct physical {
    uint32_t kind;
    int file, references; /* references: one of the handle itself, one of each mapping */
    size_t size;
    struct CUctx_st *context;
    CUmemAllocationProp properties;
    bool imported; /* its account is the process's that made it */
};

struct reservation {
    struct reservation *next;
    uintptr_t start;
    size_t size;
};

static struct reservation *reservations;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool reserved(uintptr_t start, size_t size)
{
    for (const struct reservation *at = reservations; at; at = at->next)
        if (start >= at->start && size <= at->size && start - at->start <= at->size - size) return true;
    return false;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                               CUmemAllocationGranularity_flags option)
{
    (void)option;
    SIM_READY();
    SIM_REFUSE(!granularity || !properties, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !sim_device_valid(properties->location.id),
               CUDA_ERROR_INVALID_DEVICE);
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr wish,
                                     unsigned long long flags)
{
    (void)wish;
    SIM_READY();
    SIM_REFUSE(!pointer || !size || size % GRANULARITY || flags || (alignment & (alignment - 1)), CUDA_ERROR_INVALID_VALUE);
    size_t unit = alignment > GRANULARITY ? alignment : GRANULARITY;
    struct reservation *made = malloc(sizeof *made);
    char *space = mmap(NULL, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!made || space == MAP_FAILED) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uintptr_t start = ((uintptr_t)space + unit - 1) / unit * unit;
    if (start > (uintptr_t)space) munmap(space, start - (uintptr_t)space);
    munmap((void *)(start + size), (uintptr_t)space + unit - start);
    pthread_mutex_lock(&mutex);
    *made = (struct reservation){reservations, start, size};
    reservations = made;
    pthread_mutex_unlock(&mutex);
    *pointer = start;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr pointer, size_t size)
{
    SIM_READY();
    pthread_mutex_lock(&mutex);
    struct reservation **link = &reservations, *found;
    while (*link && ((*link)->start != pointer || (*link)->size != size)) link = &(*link)->next;
    found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&mutex);
    SIM_REFUSE(!found, CUDA_ERROR_INVALID_VALUE);
    munmap((void *)found->start, found->size);
    free(found);
    return CUDA_SUCCESS;
}

/* Physical memory belongs to a device, not to a context. It is charged to the current context if that context is on the
 * device, else to the device's primary context. This function makes the primary context if needed, because memory may
 * be created before any context is current. */
static CUresult account(CUdevice device, struct CUctx_st **context)
{
    *context = sim_current();
    if (*context && (*context)->device == device) return CUDA_SUCCESS;
    SIM_TRY(sim_primary(device, context));
    return *context ? CUDA_SUCCESS : cuDevicePrimaryCtxRetain(context, device);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                             unsigned long long flags)
{
    struct CUctx_st *context;
    SIM_READY();
    SIM_REFUSE(!handle || !properties || flags || !size || size % GRANULARITY, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(properties->type != CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    SIM_REFUSE(!sim_device_valid(properties->location.id), CUDA_ERROR_INVALID_DEVICE);
    SIM_TRY(sim_capture_unsafe());
    SIM_TRY(account(properties->location.id, &context));
    SIM_REFUSE(!sim_memory_take(context, size), CUDA_ERROR_OUT_OF_MEMORY);
    struct physical *made = sim_handle_new(SIM_PHYSICAL, sizeof *made);
    int file = (int)syscall(SYS_memfd_create, "sim-memory", 1u /* MFD_CLOEXEC */); /* glibc has the function since 2.27 only */
    if (!made || file < 0 || ftruncate(file, (off_t)size)) {
        if (file >= 0) close(file);
        if (made) sim_handle_free(made);
        sim_memory_return(context, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->file = file;
    made->references = 1;
    made->size = size;
    made->context = context;
    made->properties = *properties;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}

static struct physical *physical(CUmemGenericAllocationHandle handle)
{
    void *address = (void *)(uintptr_t)handle;
    return sim_handle_is(address, SIM_PHYSICAL) ? address : NULL;
}

/* Drops one reference. The caller holds the mutex. */
static void drop(struct physical *of)
{
    if (--of->references) return;
    if (!of->imported && sim_handle_is(of->context, SIM_CONTEXT) && !of->context->dead) sim_memory_return(of->context, of->size);
    close(of->file);
    sim_handle_free(of);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_READY();
    SIM_REFUSE(!physical(handle), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&mutex);
    drop(physical(handle));
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    struct physical *of = physical(handle);
    struct sim_allocation already;
    SIM_READY();
    SIM_REFUSE(!of || !size || size % GRANULARITY || offset % GRANULARITY || flags, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(pointer % GRANULARITY || offset > of->size || size > of->size - offset, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&mutex);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (reserved(pointer, size) && !sim_allocation_find(pointer, &already)) {
        struct sim_allocation mapping = {.start = pointer, .size = size, .memory = SIM_MAPPED, .context = of->context, .pool = of};
        void *at = mmap((void *)(uintptr_t)pointer, size, PROT_NONE, MAP_SHARED | MAP_FIXED, of->file, (off_t)offset);
        result = at != MAP_FAILED && sim_allocation_add(&mapping) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        of->references += !result;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, size_t size)
{
    struct sim_allocation mapping;
    SIM_READY();
    pthread_mutex_lock(&mutex);
    CUresult result = reserved(pointer, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (uintptr_t at = pointer; !result && at < pointer + size;) {
        if (!sim_allocation_find(at, &mapping) || mapping.memory != SIM_MAPPED || mapping.start != at ||
            mapping.size > pointer + size - at) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        sim_allocation_remove(at, &mapping);
        mmap((void *)at, mapping.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        drop(mapping.pool);
        at += mapping.size;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *access, size_t count)
{
    SIM_READY();
    SIM_REFUSE(!access || !count || !reserved(pointer, size), CUDA_ERROR_INVALID_VALUE);
    int protection = access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                     : access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                           : PROT_NONE;
    struct sim_allocation mapping;
    SIM_REFUSE(!sim_allocation_find(pointer, &mapping) || mapping.memory != SIM_MAPPED, CUDA_ERROR_INVALID_VALUE);
    return mprotect((void *)(uintptr_t)pointer, size, protection) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)
{
    struct sim_allocation mapping;
    SIM_READY();
    SIM_REFUSE(!flags || !location || !sim_allocation_find(pointer, &mapping) || mapping.memory != SIM_MAPPED,
               CUDA_ERROR_INVALID_VALUE);
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct sim_allocation mapping;
    SIM_READY();
    SIM_REFUSE(!handle || !sim_allocation_find((uintptr_t)address, &mapping) || mapping.memory != SIM_MAPPED,
               CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&mutex);
    ((struct physical *)mapping.pool)->references++;
    pthread_mutex_unlock(&mutex);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)mapping.pool;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    SIM_READY();
    SIM_REFUSE(!properties || !physical(handle), CUDA_ERROR_INVALID_VALUE);
    *properties = physical(handle)->properties;
    return CUDA_SUCCESS;
}

/* -- Memory that processes share by a descriptor --------------------------------------------------------------------- */

CUresult CUDAAPI cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                              unsigned long long flags)
{
    SIM_READY();
    SIM_REFUSE(!shared || !physical(handle) || flags, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    SIM_REFUSE(!(physical(handle)->properties.requestedHandleTypes & type), CUDA_ERROR_INVALID_VALUE);
    int file = fcntl(physical(handle)->file, F_DUPFD_CLOEXEC, 0);
    SIM_REFUSE(file < 0, CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)shared = file;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type)
{
    struct stat status;
    CUdevice device;
    SIM_READY();
    SIM_REFUSE(!handle, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    SIM_TRY(cuCtxGetDevice(&device));
    int file = fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 0);
    SIM_REFUSE(file < 0, CUDA_ERROR_INVALID_VALUE);
    struct physical *made = fstat(file, &status) ? NULL : sim_handle_new(SIM_PHYSICAL, sizeof *made);
    if (!made) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->file = file;
    made->references = 1;
    made->size = (size_t)status.st_size;
    made->context = sim_current();
    made->imported = true;
    made->properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .requestedHandleTypes = type,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    sim_checkpoint_imported();
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}
