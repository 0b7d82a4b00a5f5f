#include "core/graph_launch.h"

#include "be/between_pieces.h"
#include "be/graph_pieces.h"
#include "be/lone_kernel.h"
#include "be/window.h"
#include "core/core.h"
#include "generated/driver.h"
#include "learning/identity.h"
#include "memory/graph_memory.h"
#include "process/process.h"
#include "streams/stream_records.h"

struct pieces_launch {
    struct orion_process *process;
    struct orion_stream_name stream;
    struct orion_stream_record *stream_record;
    uint32_t stuck; /* orion_window_stuck() before the first piece */
    bool kernels;   /* pieces that are one kernel are launched as kernels */
};

static CUresult launch(orion_graph_launcher *real, CUgraphExec exec, struct orion_stream_name stream)
{
    struct orion_work work = {.stream = stream, .identity = ORION_IDENTITY_UNREAD, .launch = {.graph = exec}};
    orion_work_begin(&work);
    CUresult result = real(exec, stream.handle);
    orion_work_end(&work, result);
    return result;
}

static CUresult launch_kernel(const CUDA_KERNEL_NODE_PARAMS *kernel, struct orion_stream_name stream)
{
    struct orion_work work = {.stream = stream,
                              .identity = ORION_IDENTITY_UNREAD,
                              .launch = orion_launch_of_node(kernel),
                              .movable = true};
    orion_work_begin(&work);
    CUstream elsewhere = work.elsewhere.stream;
    CUresult (*CUDAAPI call)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                             void **) =
        stream.per_thread && elsewhere == NULL ? orion_driver.cuLaunchKernel_ptsz : orion_driver.cuLaunchKernel;
    CUresult result = call((CUfunction)(uintptr_t)work.launch.function, kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ,
                           kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ, kernel->sharedMemBytes,
                           elsewhere != NULL ? elsewhere : stream.handle, kernel->kernelParams, kernel->extra);
    orion_work_end(&work, result);
    return result;
}

static CUresult launch_piece(orion_graph_launcher *real, struct orion_graph_copy *copy, struct orion_piece *piece,
                             const struct pieces_launch *how)
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    bool is_stuck = orion_window_stuck() != how->stuck;
    if (how->kernels && !is_stuck && orion_lone_kernel_of(how->process, how->stream_record, copy, piece, &kernel)) {
        if (launch_kernel(&kernel, how->stream) == CUDA_SUCCESS) return CUDA_SUCCESS;
        orion_lone_kernel_refused(piece);
    }
    if (!orion_pieces_renewed(copy, piece)) return CUDA_ERROR_OUT_OF_MEMORY;
    return is_stuck ? real(piece->exec, how->stream.handle) : launch(real, piece->exec, how->stream);
}

/* Once a piece waits for the program, the pieces behind it go without waiting for the window: each would wait again. Adds the
 * number of launched pieces to *launched. */
static CUresult launch_pieces(orion_graph_launcher *real, struct orion_graph_copy *copy, const struct pieces_launch *how,
                              uint32_t *launched)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < copy->pieces && result == CUDA_SUCCESS; i++) {
        struct orion_piece *piece = &copy->piece[i];
        if (piece->inner != NULL) {
            result = launch_pieces(real, piece->inner, how, launched);
            continue;
        }
        result = launch_piece(real, copy, piece, how);
        *launched += result == CUDA_SUCCESS;
    }
    return result;
}

/* If the driver refuses the first piece, the program's executable decides what the program sees. If it refuses a later one,
 * the launch fails, although some nodes have run. */
static CUresult launch_in_pieces(struct orion_process *process, orion_graph_launcher *real, struct orion_graph_copy *copy,
                                 CUgraphExec exec, struct orion_stream_name stream)
{
    uint32_t launched = 0;
    struct pieces_launch how = {process, stream, orion_stream_record_of(process, stream), orion_window_stuck(), false};
    how.kernels = orion_lone_kernels_matter(process, how.stream_record);
    bool alone = orion_between_pieces_begin(process, how.stream_record);
    CUresult result = launch_pieces(real, copy, &how, &launched);
    if (alone) orion_between_pieces_end(how.stream_record);
    if (orion_window_stuck() != how.stuck) orion_pieces_stuck(process, copy);
    if (result != CUDA_SUCCESS) {
        orion_pieces_failed(process, copy);
        if (launched == 0) result = launch(real, exec, stream);
    }
    orion_pieces_launched(process, copy, stream);
    return result;
}

void orion_graph_launch_made(CUgraphExec exec, CUgraph graph)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL && orion_graph_memory_made(process, exec, graph))
        atomic_fetch_or(&orion_graph_copies(process)->some, ORION_SOME_ALLOCATE);
}

/* In a process with unusual graphs. */
static CUresult launch_unusual(struct orion_process *process, orion_graph_launcher *real, struct orion_graph_copy *copy,
                               CUgraphExec exec, struct orion_stream_name stream)
{
    uint32_t some = atomic_load_explicit(&orion_graph_copies(process)->some, memory_order_relaxed);
    if (some & ORION_SOME_WHOLE && (copy == NULL || copy->refused)) orion_pieces_say_whole(process, exec, stream);
    CUresult result = launch(real, exec, stream);
    if (copy != NULL) orion_pieces_not_launched(process, copy, stream);
    if (some & ORION_SOME_ALLOCATE) orion_graph_memory_launched(exec, stream, result);
    return result;
}

CUresult orion_graph_launch(orion_graph_launcher *real, CUgraphExec exec, struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return real(exec, stream.handle);
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    if (copy != NULL && orion_pieces_begin(process, copy, stream)) return launch_in_pieces(process, real, copy, exec, stream);
    if (atomic_load_explicit(&orion_graph_copies(process)->some, memory_order_relaxed) != 0)
        return launch_unusual(process, real, copy, exec, stream);
    CUresult result = launch(real, exec, stream);
    if (copy != NULL) orion_pieces_not_launched(process, copy, stream);
    return result;
}
