/* Each wait for earlier work that a launch must follow ends: after two seconds in which that work could go on, and after ten minutes beside
 * an hp that pauses for moments only. Then the process says that it has given the order up. The wait for a small copy that hp has held ends,
 * too, much sooner and without a word. The time is this test's. */
#include "check.h"

#include "be/between_pieces.h"
#include "be/graph_follow.h"
#include "be/order_wait.h"
#include "be/partition.h"
#include "be/state.h"
#include "core/core.h"
#include "fake_driver.h"
#include "process/report.h"
#include "streams/stream_records.h"

#define SLACK_NS (50 * ORION_MILLISECOND)
#define SETTLING_NS (50 * ORION_MILLISECOND)

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_stream_record *own, *other;
static struct orion_gpu *gpu_of_hp;
static uint64_t now = 1000 * ORION_SECOND, busy_until, away_until;

static struct orion_busy_page *hp_of(const struct orion_gpu *which)
{
    return (struct orion_busy_page *)(uintptr_t)which->neighbours;
}

static void pass(uint64_t ns)
{
    now += ns;
    if (now >= busy_until) atomic_store(&hp_of(gpu_of_hp)->state, ORION_IDLE);
    if (now >= away_until) atomic_store(&process->errands, 0);
}

/* The clock of this test. The linker takes these functions instead of those of system.c. */
uint64_t orion_now(void) { return now; }
void orion_sleep_precisely(uint64_t nanoseconds) { pass(nanoseconds); }
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared) { (void)word, (void)shared; }
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    (void)word, (void)value, (void)shared;
    pass(timeout_ns);
}

/* -- Waits that nothing else ends ------------------------------------------------------------------------------------- */

static void wait_itself(void)
{
    struct orion_order_wait wait = {0};
    while (orion_order_waits(process, gpu, &wait)) {}
}

static CUresult CUDAAPI refuse_record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult CUDAAPI never_complete(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_NOT_READY;
}

static void join_of_a_moved_kernel(void)
{
    struct orion_elsewhere elsewhere = {(CUstream)0x900, (CUevent)0x910};
    atomic_fetch_add(&orion_be(gpu)->moving, 1);
    orion_partition_join(process, own, elsewhere);
    CHECK(atomic_load(&orion_be(gpu)->moving) == 0);
}

/* The last launch was in pieces, in the other stream, and has no event. */
static void launch_behind_a_graph(void)
{
    struct orion_graph_copy copy = {.in_pieces = true, .stream_record = other, .returned = atomic_load(&other->drained) + 1};
    CHECK(!orion_graph_follow(process, &copy, own, (struct orion_stream_name){orion_stream_record_handle(own), false}));
}

/* Another thread launches pieces into the same stream. */
static void set_in_pieces(uintptr_t thread)
{
    atomic_store(&orion_be_stream_record(own)->in_pieces, thread);
    atomic_store(&orion_be(gpu)->in_pieces, thread != 0);
}

static void launch_between_pieces(void)
{
    set_in_pieces(1);
    CHECK(orion_between_pieces_wait(process, own));
    orion_between_pieces_launched(own);
    set_in_pieces(0);
}

static void graph_between_pieces(void)
{
    set_in_pieces(1);
    CHECK(!orion_between_pieces_begin(process, own));
    set_in_pieces(0);
}

/* Other launches into the stream do not return. */
static void graph_behind_launches(void)
{
    CHECK(orion_between_pieces_wait(process, own));
    CHECK(orion_between_pieces_begin(process, own));
    orion_between_pieces_end(own);
    orion_between_pieces_launched(own);
}

static void (*const waits[])(void) = {wait_itself,           join_of_a_moved_kernel, launch_behind_a_graph,
                                      launch_between_pieces, graph_between_pieces,   graph_behind_launches};

/* A copy that the driver has taken, behind work that may wait for this thread. */
static void copy_behind_waiting_work(void)
{
    struct orion_work work = {.stream = {orion_stream_record_handle(own), false}, .stream_record = own};
    orion_work_settles(&work);
}

/* -- How long each takes ---------------------------------------------------------------------------------------------- */

/* hp is busy on that GPU for so long. */
static void takes_and_says(void (*wait)(void), struct orion_gpu *on, uint64_t busy_ns, uint64_t away_ns, uint64_t expected_ns,
                           uint32_t said)
{
    uint64_t began = now;
    gpu_of_hp = on;
    busy_until = now + busy_ns, away_until = now + away_ns;
    atomic_store(&process->said, 0);
    if (away_ns > 0) atomic_store(&process->errands, ORION_ERRAND_STAY);
    if (busy_ns > 0) atomic_store(&hp_of(on)->state, ORION_BUSY);
    wait();
    atomic_store(&hp_of(on)->state, ORION_IDLE);
    CHECK(now - began >= expected_ns && now - began <= expected_ns + SLACK_NS);
    CHECK(atomic_load(&process->said) == said);
}

static void takes(void (*wait)(void), struct orion_gpu *on, uint64_t busy_ns, uint64_t away_ns, uint64_t expected_ns)
{
    takes_and_says(wait, on, busy_ns, away_ns, expected_ns, UINT32_C(1) << ORION_SAY_ORDER);
}

/* hp works for 90 ms of each 100. */
static void time_in_which_hp_holds_the_gpu_does_not_count(void)
{
    uint64_t began = now;
    struct orion_order_wait wait = {0};
    for (bool goes_on = true; goes_on;) {
        bool busy = now / (10 * ORION_MILLISECOND) % 10 != 0;
        atomic_store(&hp_of(gpu)->state, busy ? ORION_BUSY : ORION_IDLE);
        goes_on = orion_order_waits(process, gpu, &wait);
    }
    CHECK(now - began >= 10 * ORION_ORDER_FREE_NS && now - began < 25 * ORION_ORDER_FREE_NS);
    atomic_store(&hp_of(gpu)->state, ORION_IDLE);
}

/* No step of the wait sees a whole pause. */
static void pauses_of_hp_for_moments_only_end_it(void)
{
    uint64_t began = now;
    struct orion_order_wait wait = {0};
    for (bool busy = true, goes_on = true; goes_on; busy = !busy) {
        atomic_store(&hp_of(gpu)->state, busy ? ORION_BUSY : ORION_IDLE);
        goes_on = orion_order_waits(process, gpu, &wait);
    }
    CHECK(wait.free_ns == 0 && now - began >= ORION_ORDER_ALL_NS && now - began < ORION_ORDER_ALL_NS + SLACK_NS);
    atomic_store(&hp_of(gpu)->state, ORION_IDLE);
}

/* As by SIGSTOP, or where there is no CPU. */
static void the_time_of_a_stopped_thread_does_not_count(void)
{
    struct orion_order_wait wait = {0};
    CHECK(orion_order_waits(process, gpu, &wait));
    now += 3600 * ORION_SECOND;
    CHECK(orion_order_waits(process, gpu, &wait));
}

static struct orion_gpu *be_gpu(struct orion_gpu *made)
{
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(made))->kind = ORION_POLICY_GATE;
    atomic_store(&((struct orion_policy_page *)(uintptr_t)made->policy)->hp_clients, 1);
    atomic_store(&made->hp_count, 1);
    atomic_store(&hp_of(made)->heartbeat_ns, UINT64_MAX); /* it does not seem to hang */
    return made;
}

int main(void)
{
    gpu_of_hp = gpu = be_gpu(fake_gpu(ORION_ROLE_BE));
    struct orion_gpu *second = be_gpu(fake_gpu_of(1, ORION_ROLE_BE));
    process = orion_process_started();
    orion_driver.cuEventRecord = refuse_record;
    orion_driver.cuStreamQuery = never_complete;
    own = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x500, false});
    other = orion_stream_record_of(process, (struct orion_stream_name){(CUstream)0x600, false});
    for (unsigned i = 0; i < sizeof waits / sizeof *waits; i++) {
        takes(waits[i], gpu, 0, 0, ORION_ORDER_FREE_NS);
        takes(waits[i], gpu, 60 * ORION_SECOND, 0, 60 * ORION_SECOND + ORION_ORDER_FREE_NS);
        takes(waits[i], second, 60 * ORION_SECOND, 0, 60 * ORION_SECOND + ORION_ORDER_FREE_NS);
        takes(waits[i], gpu, 3600 * ORION_SECOND, 0, 3600 * ORION_SECOND + ORION_ORDER_FREE_NS);
        takes(waits[i], gpu, 0, 3600 * ORION_SECOND, 3600 * ORION_SECOND + ORION_ORDER_FREE_NS);
    }
    takes_and_says(copy_behind_waiting_work, gpu, 0, 0, SETTLING_NS, 0);
    takes_and_says(copy_behind_waiting_work, gpu, 60 * ORION_SECOND, 0, 60 * ORION_SECOND + SETTLING_NS, 0);
    takes_and_says(copy_behind_waiting_work, gpu, 0, 60 * ORION_SECOND, 60 * ORION_SECOND + SETTLING_NS, 0);
    time_in_which_hp_holds_the_gpu_does_not_count();
    pauses_of_hp_for_moments_only_end_it();
    the_time_of_a_stopped_thread_does_not_count();
    puts("order_wait: ok");
    return 0;
}
