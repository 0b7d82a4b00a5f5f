#include "core/graph_launch.h"

#include "be/graph_pieces.h"
#include "core/core.h"
#include "learning/identity.h"
#include "process/process.h"

static CUresult launch(orion_graph_launcher *real, CUgraphExec exec, struct orion_stream_name stream)
{
    struct orion_work work = {.stream = stream, .identity = ORION_IDENTITY_UNREAD, .launch = {.graph = exec}, .movable = true};
    orion_work_begin(&work);
    CUresult result = real(exec, work.elsewhere ? work.elsewhere : stream.handle);
    orion_work_end(&work, result);
    return result;
}

static CUresult launch_pieces(orion_graph_launcher *real, const struct orion_graph_copy *copy, struct orion_stream_name stream)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < copy->pieces && result == CUDA_SUCCESS; i++) {
        const struct orion_piece *piece = &copy->piece[i];
        result = piece->inner != NULL ? launch_pieces(real, piece->inner, stream) : launch(real, piece->exec, stream);
    }
    return result;
}

CUresult orion_graph_launch(orion_graph_launcher *real, CUgraphExec exec, struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return real(exec, stream.handle);
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    if (copy != NULL && orion_pieces_begin(process, copy, stream)) {
        CUresult result = launch_pieces(real, copy, stream);
        orion_pieces_launched(process, copy, stream);
        return result;
    }
    if (atomic_load_explicit(&orion_graph_copies(process)->some_whole, memory_order_relaxed) && (copy == NULL || copy->refused))
        orion_pieces_say_whole(process, exec, stream);
    return launch(real, exec, stream);
}
