/* Collectives as a stop (stop.h): which launches are collectives, and what the stop asks for them. */
#include "be/collective.h"

#include "be/admission.h"
#include "be/meetings.h"
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

static bool claims(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work)
{
    struct orion_gpu *gpu = stream_record->gpu;
    work->collective = 0;
    if (!is_collective(process, &work->launch)) return false;
    orion_meeting_number(process, stream_record, work);
    work->collective = orion_collective_begin(process, gpu);
    if (work->collective == 0) orion_meeting_arrive(process, stream_record, work, 0); /* later peers do not wait for it */
    if (work->collective == 0 || !orion_meeting_waits(process, gpu, work)) work->flags |= ORION_ADMITTED_SPINS;
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
    return orion_collective_pass(process, stream_record, work);
}

const struct orion_stop orion_collective_stop = {
    .claims = claims,
    .may_go = may_go,
    .wait = wait,
    .ignores_window = ignores_window,
    .ready = orion_collective_ready,
    .arm = arm,
    .went_unarmed = orion_collective_note_unarmed,
    .update = orion_collective_update,
    .open = orion_collective_open,
    .blocks = orion_collective_blocked_by,
};
