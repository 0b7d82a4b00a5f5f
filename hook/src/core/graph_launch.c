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

CUresult orion_graph_launch(orion_graph_launcher *real, CUgraphExec exec, struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_graph_copy *copy = process != NULL ? orion_graph_copy_of(process, exec) : NULL;
    if (copy == NULL || !orion_pieces_begin(process, copy, stream)) return launch(real, exec, stream);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < copy->pieces && result == CUDA_SUCCESS; i++) result = launch(real, copy->piece[i].exec, stream);
    orion_pieces_launched(process, copy, stream);
    return result;
}
