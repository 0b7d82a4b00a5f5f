/* Device memory that processes share by cuIpcGetMemHandle. Memory whose handle a program asks for moves to a file, at the
 * same address; other processes open the file through /proc. Not simulated: events of other processes, and processes
 * of other pid namespaces. A thread must not write to the memory while another asks for its first handle. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocation.h"
#include "checkpoint.h"

#define PIECE 65536u

/* What a CUipcMemHandle contains. */
struct shared {
    uint32_t kind;
    int process, file;
    size_t size, charged;
};
_Static_assert(sizeof(struct shared) <= sizeof(CUipcMemHandle), "handle");

static bool all_zero(const char *at, size_t size) { return !*at && !memcmp(at, at + 1, size - 1); }

/* Copy the contents to the file, without the pieces that are zero: most memory was never written to. */
static bool copy_to(int file, const char *start, size_t size)
{
    for (size_t at = 0; at < size; at += PIECE) {
        size_t piece = size - at < PIECE ? size - at : PIECE;
        if (!all_zero(start + at, piece) && pwrite(file, start + at, piece, (off_t)at) != (ssize_t)piece) return false;
    }
    return true;
}

static int move_to_file(const struct sim_allocation *allocation)
{
    void *start = (void *)allocation->start;
    int file = (int)syscall(SYS_memfd_create, "sim-shared", 1u /* MFD_CLOEXEC */);
    bool moved = file > 0 && !ftruncate(file, (off_t)allocation->charged) && copy_to(file, start, allocation->charged) &&
                 mmap(start, allocation->charged, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    if (moved && sim_allocation_share(allocation->start, file)) return file;
    if (file > 0) close(file);
    return 0;
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct sim_allocation found;
    SIM_REFUSE(sim_checkpoint_is_away(), CUDA_ERROR_OPERATING_SYSTEM);
    SIM_IN_CONTEXT();
    SIM_REFUSE(!handle || !sim_allocation_find(pointer, &found) || found.memory != SIM_DEVICE_MEMORY, CUDA_ERROR_INVALID_VALUE);
    int file = found.file ? found.file : move_to_file(&found);
    SIM_REFUSE(!file, CUDA_ERROR_OUT_OF_MEMORY);
    struct shared shared = {SIM_OPENED, getpid(), file, found.size, found.charged};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &shared, sizeof shared);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    struct shared shared;
    char path[64];
    SIM_CONTEXT(context);
    memcpy(&shared, &handle, sizeof shared);
    SIM_REFUSE(!pointer || flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(shared.kind != SIM_OPENED, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(shared.process == getpid(), CUDA_ERROR_INVALID_CONTEXT);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", shared.process, shared.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    SIM_REFUSE(file < 0, CUDA_ERROR_INVALID_VALUE);
    void *pages = mmap(NULL, shared.charged, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    struct sim_allocation opened = {.start = (uintptr_t)pages,
                                    .size = shared.size,
                                    .charged = shared.charged,
                                    .memory = SIM_OPENED,
                                    .context = context};
    SIM_REFUSE(pages == MAP_FAILED || !sim_allocation_add(&opened), CUDA_ERROR_OUT_OF_MEMORY);
    sim_checkpoint_imported();
    *pointer = opened.start;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    struct sim_allocation found;
    SIM_IN_CONTEXT();
    SIM_REFUSE(!sim_allocation_find(pointer, &found) || found.memory != SIM_OPENED, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(found.start != pointer || !sim_allocation_remove(pointer, &found), CUDA_ERROR_INVALID_VALUE);
    sim_pages_free((void *)found.start, found.charged);
    return CUDA_SUCCESS;
}
