/* The policy changes the size of the partition many times. The hook must create at most one partition for each size, at
 * most ORION_PARTITION_SIZES, and must destroy all of them when the context ends. */
#include "check.h"

#include <limits.h>

#include "be/admission.h"
#include "be/partition.h"
#include "be/state.h"
#include "be/window.h"
#include "be/work.h"
#include "core/core.h"
#include "core/lifetimes.h"
#include "fake_driver.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "process/policy.h"
#include "streams/stream_records.h"
#include "system/system.h"

static int contexts, streams, events;
static CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL; /* of this thread */
static uintptr_t handle = 0x100;

static CUresult CUDAAPI fake_resource(CUdevice device, CUdevResource *all, CUdevResourceType type)
{
    (void)device, (void)type;
    all->sm.smCount = 132;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_split(CUdevResource *part, unsigned *groups, const CUdevResource *all, CUdevResource *rest,
                                   unsigned flags, unsigned sms)
{
    (void)groups, (void)rest, (void)flags;
    *part = *all;
    part->sm.smCount = sms;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_describe(CUdevResourceDesc *description, CUdevResource *part, unsigned count)
{
    (void)description, (void)part, (void)count;
    return CUDA_SUCCESS;
}
static bool contexts_fail;
static CUresult CUDAAPI fake_green(CUgreenCtx *context, CUdevResourceDesc description, CUdevice device, unsigned flags)
{
    (void)description, (void)device, (void)flags;
    if (contexts_fail) return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (CUgreenCtx)(handle += 16);
    contexts++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_green_end(CUgreenCtx context)
{
    (void)context;
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    contexts--;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_stream(CUstream *stream, CUgreenCtx context, unsigned flags, int priority)
{
    (void)context, (void)flags, (void)priority;
    *stream = (CUstream)(handle += 16);
    streams++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_exchange_mode(CUstreamCaptureMode *other)
{
    CUstreamCaptureMode before = mode;
    mode = *other;
    *other = before;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_stream_end(CUstream stream)
{
    (void)stream;
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED); /* another thread may capture */
    streams--;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_event(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)(handle += 16);
    events++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_event_end(CUevent event)
{
    (void)event;
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    events--;
    return CUDA_SUCCESS;
}
static CUstream recorded_in[8192]; /* by the event: the stream of its last recording */
static CUstream *recording_of(CUevent event)
{
    CHECK((uintptr_t)event / 16 < sizeof recorded_in / sizeof *recorded_in);
    return &recorded_in[(uintptr_t)event / 16];
}
static void (*after_record)(void);
static unsigned records_fail;
static CUresult CUDAAPI fake_record_in(CUevent event, CUstream stream)
{
    void (*call)(void) = after_record;
    after_record = NULL;
    *recording_of(event) = stream;
    if (call != NULL) call();
    return records_fail > 0 && records_fail-- ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
static unsigned queries_until_complete; /* UINT_MAX: the stream never is */
static CUresult CUDAAPI fake_query(CUstream stream)
{
    (void)stream;
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    if (queries_until_complete == 0) return CUDA_SUCCESS;
    if (queries_until_complete != UINT_MAX) queries_until_complete--;
    return CUDA_ERROR_NOT_READY;
}
static CUstream waited, waited_for; /* the streams of the last call */
static void (*before_wait)(void);
static unsigned waits_fail;
static CUresult CUDAAPI fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    void (*call)(void) = before_wait;
    before_wait = NULL;
    if (call != NULL) call();
    waited = stream;
    waited_for = *recording_of(event);
    return waits_fail > 0 && waits_fail-- ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static struct orion_gpu *partitioned_gpu(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_BE);
    orion_driver.cuDeviceGetDevResource = fake_resource;
    orion_driver.cuDevSmResourceSplitByCount = fake_split;
    orion_driver.cuDevResourceGenerateDesc = fake_describe;
    orion_driver.cuGreenCtxCreate = fake_green;
    orion_driver.cuGreenCtxDestroy = fake_green_end;
    orion_driver.cuGreenCtxStreamCreate = fake_stream;
    orion_driver.cuStreamDestroy_v2 = fake_stream_end;
    orion_driver.cuEventCreate = fake_event;
    orion_driver.cuEventDestroy_v2 = fake_event_end;
    orion_driver.cuEventRecord = fake_record_in;
    orion_driver.cuStreamWaitEvent = fake_wait;
    orion_driver.cuStreamSynchronize = NULL; /* a launch calls nothing that may wait for ever */
    orion_driver.cuStreamQuery = fake_query;
    orion_driver.cuThreadExchangeStreamCaptureMode = fake_exchange_mode;
    fake_primary();
    return gpu;
}

static void launch_moved(struct orion_gpu *gpu, struct orion_stream_record *stream_record, uint32_t overlap_sms)
{
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    policy->copy[0].overlap_sms = overlap_sms;
    struct orion_elsewhere elsewhere = orion_partition_fork(orion_the_process, stream_record);
    CHECK(elsewhere.stream != NULL);
    orion_partition_join(orion_the_process, stream_record, elsewhere);
}

static struct orion_gpu *the_gpu;
static struct orion_stream_record *the_record;

static void move_to_another_size(void) { launch_moved(the_gpu, the_record, 96); }

/* Another thread may change the stream between the two driver calls of a fork. */
static void a_kernel_goes_into_the_stream_that_waits(struct orion_gpu *gpu, struct orion_stream_record *stream_record)
{
    the_gpu = gpu;
    the_record = stream_record;
    launch_moved(gpu, stream_record, 32);
    before_wait = move_to_another_size;
    struct orion_elsewhere elsewhere = orion_partition_fork(orion_the_process, stream_record);
    CHECK(elsewhere.stream != NULL && elsewhere.stream == waited);
    orion_partition_join(orion_the_process, stream_record, elsewhere);
}

/* Another thread may launch in a stream of another size between the two driver calls of a join. */
static void the_program_waits_for_each_kernel(struct orion_gpu *gpu, struct orion_stream_record *stream_record)
{
    launch_moved(gpu, stream_record, 32);
    struct orion_elsewhere elsewhere = orion_partition_fork(orion_the_process, stream_record);
    after_record = move_to_another_size;
    orion_partition_join(orion_the_process, stream_record, elsewhere);
    CHECK(waited == orion_stream_record_handle(stream_record) && waited_for == elsewhere.stream);
}

/* The driver refuses the event or the wait several times, as when it is short of memory. */
static void the_program_waits_although_the_driver_refuses(struct orion_gpu *gpu, struct orion_stream_record *stream_record,
                                                          unsigned *fail)
{
    launch_moved(gpu, stream_record, 32);
    struct orion_elsewhere elsewhere = orion_partition_fork(orion_the_process, stream_record);
    queries_until_complete = UINT_MAX;
    waited = waited_for = NULL;
    *fail = 3;
    orion_partition_join(orion_the_process, stream_record, elsewhere);
    CHECK(*fail == 0 && waited == orion_stream_record_handle(stream_record) && waited_for == elsewhere.stream);
    CHECK(atomic_load(&orion_be(gpu)->moving) == 0);
}

static void a_join_waits_for_the_kernel_at_most(struct orion_gpu *gpu, struct orion_stream_record *stream_record)
{
    struct orion_elsewhere elsewhere = orion_partition_fork(orion_the_process, stream_record);
    queries_until_complete = 3;
    records_fail = UINT_MAX;
    orion_partition_join(orion_the_process, stream_record, elsewhere);
    CHECK(queries_until_complete == 0 && atomic_load(&orion_be(gpu)->moving) == 0);
    records_fail = 0;
}

/* Earlier work of the stream may wait for what the thread does next. */
static void a_join_does_not_wait_for_ever(struct orion_gpu *gpu, struct orion_stream_record *stream_record)
{
    struct orion_elsewhere elsewhere = orion_partition_fork(orion_the_process, stream_record);
    queries_until_complete = records_fail = UINT_MAX;
    orion_partition_join(orion_the_process, stream_record, elsewhere);
    CHECK(atomic_load(&orion_be(gpu)->moving) == 0);
    queries_until_complete = records_fail = 0;
}

static void set_sms(struct orion_gpu *gpu, uint32_t overlap_sms)
{
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    policy->copy[0].overlap_sms = overlap_sms;
}

/* The GPU is full when the first size is made, and when another one is. */
static void a_full_gpu_refuses_partitions_for_a_while_only(struct orion_gpu *gpu, struct orion_stream_record *stream_record)
{
    contexts_fail = true;
    set_sms(gpu, 32);
    CHECK(!orion_partition_can_move(orion_the_process, stream_record));
    contexts_fail = false;
    CHECK(!orion_partition_can_move(orion_the_process, stream_record)); /* launches do not try all the time */
    uint64_t began = orion_now();
    while (!orion_partition_can_move(orion_the_process, stream_record)) {
        CHECK(orion_now() - began < 10 * ORION_SECOND);
        orion_sleep_precisely(10 * ORION_MILLISECOND);
    }
    contexts_fail = true;
    set_sms(gpu, 64);
    CHECK(orion_partition_can_move(orion_the_process, stream_record)); /* on the size that is there */
    CHECK(orion_be(gpu)->partition.now.sms == 32 && contexts == 1);
    contexts_fail = false;
    orion_primary_ending(0);
    orion_context_ended();
}

/* hp permits it on some SMs only. If the hook cannot move it just now, it must not go on all SMs. */
static void a_long_kernel_is_beside_hp_on_fewer_sms_only(struct orion_gpu *gpu, struct orion_stream_record *stream_record)
{
    const uint64_t identity = 0x12300, long_ns = 5 * ORION_MILLISECOND;
    struct orion_busy_page *hp = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    struct orion_policy *policy = (struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu);
    struct orion_grant *grant = (struct orion_grant *)(uintptr_t)orion_gpu_grant(gpu);
    policy->kind = ORION_POLICY_ORION;
    policy->max_slowdown_milli = 2000;
    grant->window_share_ns = 400 * ORION_MICROSECOND;
    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
    atomic_store(&gpu->hp_count, 1);
    atomic_store(&hp->heartbeat_ns, orion_now() + 100 * ORION_SECOND);
    atomic_store(&hp->overlap_until_ns, UINT64_MAX);
    atomic_store(&hp->state, ORION_BUSY);
    orion_duration_learn(orion_durations(orion_the_process), identity, long_ns, ORION_SAMPLE_CLEAN);
    orion_facts_set_flags(orion_duration_find(orion_durations(orion_the_process), identity),
                          ORION_FACTS_NOTED | ORION_FACTS_MAY_MOVE);
    struct orion_work work = {.identity = identity, .movable = true};
    waits_fail = 1;
    orion_admit(orion_the_process, stream_record, &work);
    CHECK(waits_fail == 0);
    CHECK((work.flags & ORION_ADMITTED_PARTITIONED) && (work.flags & ORION_ADMITTED_BESIDE_HP) && work.elsewhere.stream != NULL);
    CHECK(atomic_load(&gpu->record->overlapped_launches) == 1 && atomic_load(&gpu->record->overlapped_ns) > 0);
    orion_partition_join(orion_the_process, stream_record, work.elsewhere);
    orion_window_leave(gpu, work.expected_ns);
    CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) == 0);
}

int main(void)
{
    struct orion_gpu *gpu = partitioned_gpu();
    struct orion_stream_record *stream_record =
        orion_stream_record_of(orion_the_process, (struct orion_stream_name){(CUstream)0x5000, false});
    a_full_gpu_refuses_partitions_for_a_while_only(gpu, stream_record);
    for (uint32_t i = 0; i < 100; i++) launch_moved(gpu, stream_record, 32 + i % 2 * 32); /* 32 and 64 SMs in turn */
    CHECK(contexts == 2 && streams == 1 && events == 2);
    for (uint32_t i = 0; i < 100; i++) launch_moved(gpu, stream_record, 16 + i);
    CHECK(contexts == (int)ORION_PARTITION_SIZES && streams == 1 && events == 2);
    CHECK(atomic_load(&orion_be(gpu)->moving) == 0);
    orion_primary_ending(0);
    CHECK(contexts == 0 && streams == 0 && events == 0);
    CHECK(orion_partition_fork(orion_the_process, stream_record).stream == NULL); /* no new partition while the context ends */
    orion_context_ended();
    launch_moved(gpu, stream_record, 32);
    CHECK(contexts == 1 && streams == 1);
    a_kernel_goes_into_the_stream_that_waits(gpu, stream_record);
    the_program_waits_for_each_kernel(gpu, stream_record);
    the_program_waits_although_the_driver_refuses(gpu, stream_record, &records_fail);
    the_program_waits_although_the_driver_refuses(gpu, stream_record, &waits_fail);
    a_join_waits_for_the_kernel_at_most(gpu, stream_record);
    a_join_does_not_wait_for_ever(gpu, stream_record);
    a_long_kernel_is_beside_hp_on_fewer_sms_only(gpu, stream_record);
    puts("partition: ok");
    return 0;
}
