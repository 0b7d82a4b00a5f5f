/* Collectives as a stop (stop.h): which launches are collectives, and what the stop asks for them. */
#include "be/collective.h"

#include "be/stop.h"
#include "be/work.h"
#include "learning/graphs.h"
#include "learning/kernels.h"
#include "process/process.h"
#include "streams/stream_records.h"

static bool is_collective(struct orion_process *process, const struct orion_launch *launch)
{
    if (launch->function != NULL) return orion_kernel_is_collective(orion_kernels(process), launch->function);
    if (launch->graph == NULL || atomic_load_explicit(&orion_kernels(process)->collectives, memory_order_relaxed) == 0)
        return false;
    return orion_graph_is_collective(orion_graphs(process), launch->graph);
}

static bool claims(struct orion_process *process, struct orion_gpu *gpu, struct orion_work *work)
{
    work->collective = is_collective(process, &work->launch) ? orion_collective_begin(process, gpu) : 0;
    return work->collective != 0;
}

static enum orion_go may_go(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                            uint64_t expected_ns)
{
    (void)expected_ns; /* a collective never runs beside a busy hp */
    return orion_collective_held(process, stream_record->gpu, work->collective) ? ORION_GO_NOT_NOW : ORION_GO_FREELY;
}

static void wait(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work,
                 uint64_t expected_ns)
{
    (void)expected_ns;
    orion_collective_wait(process, stream_record->gpu, work->collective);
}

/* If another GPU has already launched this collective's peer, this one does not wait for the window. */
static bool ignores_window(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work)
{
    return orion_collective_peer_launched(process, gpu, work->collective);
}

static bool arm(struct orion_process *process, struct orion_stream_record *stream_record, const struct orion_work *work, bool due)
{
    (void)due; /* each collective has a wait of its own, whether the valve's is due or not */
    return orion_collective_pass(process, stream_record, work->collective);
}

static void went_unarmed(struct orion_process *process, const struct orion_gpu *gpu, const struct orion_work *work)
{
    orion_collective_note_unarmed(process, gpu, work->collective);
}

const struct orion_stop orion_collective_stop = {
    .claims = claims,
    .may_go = may_go,
    .wait = wait,
    .ignores_window = ignores_window,
    .ready = orion_collective_ready,
    .arm = arm,
    .went_unarmed = went_unarmed,
    .update = orion_collective_update,
    .open = orion_collective_open,
    .blocks = orion_collective_blocked_by,
};
