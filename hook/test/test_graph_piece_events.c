/* A graph's last launch was in pieces, and the event behind them cannot be used at once: a launch in another stream still begins when
 * the last one is over. */
#include "graph_chain.h"

#include "../sim/orion_sim.h"
#include "be/order_wait.h"
#include "core/lifetimes.h"
#include "system/system.h"

static void (*at_first_wait)(void);
static unsigned waits;

static void note_wait(void)
{
    if (waits++ == 0 && at_first_wait != NULL) at_first_wait();
}

static bool enter_noted(struct orion_process *of, struct orion_stream_record *stream_record, uint64_t expected_ns,
                        uint64_t limit_ns)
{
    note_wait();
    return orion_window_enter(of, stream_record, expected_ns, limit_ns);
}

static bool wait_noted(struct orion_process *of, struct orion_gpu *on, struct orion_order_wait *wait)
{
    note_wait();
    return orion_order_waits(of, on, wait);
}

#define orion_window_enter enter_noted
#define orion_order_waits wait_noted
#include "be/graph_follow.c"
#undef orion_order_waits
#undef orion_window_enter

static CUstream other;
static _Atomic bool may_go_on;
static uint32_t stuck_before;

static void CUDA_CB wait_for_the_test(void *none)
{
    (void)none;
    for (uint64_t until = orion_now() + 60 * ORION_SECOND; !atomic_load(&may_go_on);) {
        CHECK(orion_now() < until);
        orion_sleep_precisely(ORION_MILLISECOND);
    }
}

static void let_it_run(void) { atomic_store(&may_go_on, true); }

/* The last launch cannot begin before let_it_run. */
static void hold_stream(void (*at_wait)(void))
{
    atomic_store(&may_go_on, false);
    at_first_wait = at_wait, waits = 0, log_count = 0, stuck_before = orion_window_stuck();
    MUST(cuLaunchHostFunc(stream, wait_for_the_test, NULL));
}

/* In pieces, or whole if the first launch had to wait for the window, whose work was held. On a slow machine the first launch may wait for a
 * second in this way; then the held work counts as complete (window.c), and only an event keeps the order. */
static void ran_in_turn(CUgraphExec exec)
{
    let_it_run();
    MUST(cuCtxSynchronize());
    if (orion_window_stuck() == stuck_before) never_mixed(2);
    end(exec);
}

static CUresult CUDAAPI refuse_create(CUevent *event, unsigned flags)
{
    (void)event, (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static const struct orion_graph_copy *refused; /* the driver does not record its event */
static CUresult CUDAAPI refuse_record(CUevent event, CUstream where)
{
    return event == refused->event || event == refused->spare ? CUDA_ERROR_OUT_OF_MEMORY : cuEventRecord(event, where);
}

static CUresult CUDAAPI refuse_wait(CUstream where, CUevent event, unsigned flags)
{
    (void)where, (void)event, (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void without_an_event_the_graph_runs_whole(void)
{
    CUresult (*CUDAAPI create)(CUevent *, unsigned) = orion_driver.cuEventCreate;
    CUgraphExec exec = instantiated(chain(0, NULL));
    hold_stream(NULL);
    orion_driver.cuEventCreate = refuse_create;
    MUST(cuGraphLaunch(exec, stream));
    orion_driver.cuEventCreate = create;
    MUST(cuGraphLaunch(exec, other));
    CHECK(orion_sim_graph_launches(exec) == 2 && waits == 0);
    ran_in_turn(exec);
}

static void launch_both_without_recording(CUgraphExec exec, bool again)
{
    CUresult (*CUDAAPI record)(CUevent, CUstream) = orion_driver.cuEventRecord;
    refused = orion_graph_copy_of(process, exec);
    orion_driver.cuEventRecord = refuse_record;
    MUST(cuGraphLaunch(exec, stream));
    CHECK(refused->event == NULL && refused->in_pieces);
    if (!again) orion_driver.cuEventRecord = record;
    MUST(cuGraphLaunch(exec, other));
    orion_driver.cuEventRecord = record;
}

static void a_refused_event_is_recorded_later(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    hold_stream(NULL);
    launch_both_without_recording(exec, false);
    CHECK(waits == 0);
    ran_in_turn(exec);
}

static void a_launch_waits_if_the_event_is_refused_again(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    hold_stream(let_it_run);
    launch_both_without_recording(exec, true);
    CHECK(waits > 0);
    ran_in_turn(exec);
}

static void a_launch_waits_if_the_wait_is_refused(void)
{
    CUresult (*CUDAAPI wait)(CUstream, CUevent, unsigned) = orion_driver.cuStreamWaitEvent;
    CUgraphExec exec = instantiated(chain(0, NULL));
    hold_stream(let_it_run);
    MUST(cuGraphLaunch(exec, stream));
    orion_driver.cuStreamWaitEvent = refuse_wait;
    MUST(cuGraphLaunch(exec, other));
    orion_driver.cuStreamWaitEvent = wait;
    CHECK(waits > 0);
    ran_in_turn(exec);
}

/* Of the place of the current one. No stream is in it. */
static CUcontext another_context(void)
{
    CUcontext before;
    uintptr_t handle = 16;
    MUST(cuCtxGetCurrent(&before));
    while (orion_ends_of(process, (CUcontext)handle) != orion_ends_of(process, before)) handle += 16;
    return (CUcontext)handle;
}

/* Meanwhile it is not known whether the event's context is the one that ends. */
static void a_launch_waits_while_another_context_ends(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    hold_stream(orion_context_ended);
    MUST(cuGraphLaunch(exec, stream));
    orion_context_ending(another_context());
    MUST(cuGraphLaunch(exec, other));
    CHECK(waits > 0);
    ran_in_turn(exec);
}

/* No context ends while the process keeps its stops open to park. */
static void a_launch_does_not_wait_while_the_process_parks(void)
{
    CUgraphExec exec = instantiated(chain(0, NULL));
    hold_stream(NULL);
    MUST(cuGraphLaunch(exec, stream));
    orion_context_ending(another_context());
    orion_context_ended();
    orion_forbid_touch(process);
    atomic_store(&process->kept_open, 1);
    MUST(cuGraphLaunch(exec, other));
    atomic_store(&process->kept_open, 0);
    orion_allow_touch(process);
    CHECK(waits == 0);
    ran_in_turn(exec);
}

int main(void)
{
    begin();
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    without_an_event_the_graph_runs_whole();
    a_refused_event_is_recorded_later();
    a_launch_waits_if_the_event_is_refused_again();
    a_launch_waits_if_the_wait_is_refused();
    a_launch_waits_while_another_context_ends();
    a_launch_does_not_wait_while_the_process_parks();
    puts("graph_piece_events: ok");
    return 0;
}
