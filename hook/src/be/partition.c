#include "be/partition.h"

#include "be/chunks.h"
#include "be/order_wait.h"
#include "be/state.h"
#include "generated/driver.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define REST_TRIES 1000u      /* about a second; a launch takes microseconds */
#define RETRY_NS ORION_SECOND /* after the driver had no memory for a green context */

static bool driver_has_partitions(void)
{
    return orion_driver.cuDeviceGetDevResource != NULL && orion_driver.cuDevSmResourceSplitByCount != NULL &&
           orion_driver.cuDevResourceGenerateDesc != NULL && orion_driver.cuGreenCtxCreate != NULL &&
           orion_driver.cuGreenCtxStreamCreate != NULL && orion_driver.cuStreamWaitEvent != NULL;
}

static uint32_t wanted_sms(uint32_t setting, uint32_t all) { return setting == 0 || setting >= all ? all / 2 : setting; }

static CUresult make(struct orion_partition_size *size, CUdevice device)
{
    CUdevResource all, part, rest;
    CUdevResourceDesc description;
    unsigned groups = 1;
    if (!driver_has_partitions()) return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = orion_driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (result != CUDA_SUCCESS) return result;
    uint32_t wanted = wanted_sms(size->setting, all.sm.smCount);
    /* Rounds down to the hardware's granularity. If it rounded up, be's part could be larger than hp's. */
    unsigned grain = wanted >= 16 ? wanted / 8 * 8 : wanted;
    result = orion_driver.cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, grain);
    if (result == CUDA_SUCCESS && groups == 0) result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) result = orion_driver.cuDevResourceGenerateDesc(&description, &part, 1);
    if (result == CUDA_SUCCESS)
        result = orion_driver.cuGreenCtxCreate(&size->context, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
    if (result == CUDA_SUCCESS) size->sms = part.sm.smCount;
    return result;
}

static bool was_made(struct orion_partition *partition, uint32_t setting)
{
    for (uint32_t i = 0; i < partition->count; i++) {
        if (partition->made[i].setting != setting) continue;
        partition->now = partition->made[i];
        return true;
    }
    return false;
}

/* Makes the GPU's green context at first use, and another one when the policy wants another size. Stream records detect
 * a new size by the context's handle. Earlier contexts are kept until the primary context ends, because work may still
 * be queued in them. After ORION_PARTITION_SIZES sizes, and while the driver makes no other one, the last size stays in use. */
static bool ready(struct orion_gpu *gpu)
{
    struct orion_partition *partition = &orion_be(gpu)->partition;
    struct orion_partition_size size = {.setting = orion_gpu_policy(gpu)->overlap_sms};
    if (partition->state == ORION_PARTITION_REFUSED) return false;
    if (partition->state == ORION_PARTITION_READY && partition->now.setting == size.setting) return true;
    if (was_made(partition, size.setting) || partition->count == ORION_PARTITION_SIZES) return true;
    if (orion_now() < partition->retry_ns) return partition->state == ORION_PARTITION_READY;
    CUresult result = make(&size, gpu->device);
    if (result == CUDA_SUCCESS) {
        partition->now = partition->made[partition->count++] = size;
        partition->state = ORION_PARTITION_READY;
    } else {
        partition->retry_ns = orion_now() + RETRY_NS;
        if (result != CUDA_ERROR_OUT_OF_MEMORY && partition->count == 0) partition->state = ORION_PARTITION_REFUSED;
    }
    return partition->state == ORION_PARTITION_READY;
}

static bool event_ready(CUevent *event, const struct orion_stream_record *stream_record)
{
    if (*event == NULL) *event = orion_stream_record_event(stream_record, CU_EVENT_DISABLE_TIMING);
    return *event != NULL;
}

static bool make_stream_record(struct orion_stream_record *stream_record)
{
    struct orion_partition_stream_record *mine = &orion_be_stream_record(stream_record)->partition;
    CUgreenCtx context = orion_be(stream_record->gpu)->partition.now.context;
    /* Destroys the stream of the previous size and its event, unless another thread's launch may be using them. */
    if (atomic_load(&orion_be(stream_record->gpu)->moving) == 1) {
        if (mine->elsewhere.stream != NULL) orion_driver.cuStreamDestroy_v2(mine->elsewhere.stream);
        if (mine->elsewhere.join != NULL) orion_driver.cuEventDestroy_v2(mine->elsewhere.join);
    }
    mine->elsewhere = (struct orion_elsewhere){0};
    mine->of = NULL;
    mine->refused = stream_record->green != NULL || orion_primary_of(stream_record->gpu->device) != stream_record->context;
    if (mine->refused || !event_ready(&mine->fork, stream_record) || !event_ready(&mine->elsewhere.join, stream_record))
        return false;
    if (orion_driver.cuGreenCtxStreamCreate(&mine->elsewhere.stream, context, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
        return false;
    mine->of = context;
    return true;
}

/* Copies the stream and its events, because another thread may replace them. False: not now. */
static bool copy_stream(struct orion_process *process, struct orion_stream_record *stream_record,
                        struct orion_partition_stream_record *copy)
{
    struct orion_gpu *gpu = stream_record->gpu;
    const struct orion_partition_stream_record *mine = &orion_be_stream_record(stream_record)->partition;
    if (mine->refused || atomic_load(&process->captures) > 0 || orion_stream_record_is_shared(process, stream_record)) return false;
    if (!orion_ledger_try_lock(gpu)) return false;
    bool can = ready(gpu) && (mine->of == orion_be(gpu)->partition.now.context || make_stream_record(stream_record));
    *copy = *mine;
    orion_ledger_unlock(gpu);
    return can;
}

/* This function counts the launch in `moving` before it reads `untouchable`. A thread that ends a context sets
 * `untouchable` before it reads `moving`. */
static bool begin(struct orion_process *process, struct orion_stream_record *stream_record,
                  struct orion_partition_stream_record *copy)
{
    atomic_fetch_add(&orion_be(stream_record->gpu)->moving, 1);
    return atomic_load(&process->untouchable) == 0 && copy_stream(process, stream_record, copy);
}

bool orion_partition_can_move(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    struct orion_partition_stream_record mine;
    bool can = begin(process, stream_record, &mine);
    atomic_fetch_sub(&orion_be(stream_record->gpu)->moving, 1);
    orion_capture_unrelax(&relaxed);
    return can;
}

struct orion_elsewhere orion_partition_fork(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    struct orion_partition_stream_record mine;
    bool forked = begin(process, stream_record, &mine) &&
                  orion_driver.cuEventRecord(mine.fork, orion_stream_record_handle(stream_record)) == CUDA_SUCCESS &&
                  orion_driver.cuStreamWaitEvent(mine.elsewhere.stream, mine.fork, 0) == CUDA_SUCCESS;
    if (!forked) atomic_fetch_sub(&orion_be(stream_record->gpu)->moving, 1);
    orion_capture_unrelax(&relaxed);
    return forked ? mine.elsewhere : (struct orion_elsewhere){0};
}

static bool joins(const struct orion_stream_record *stream_record, struct orion_elsewhere elsewhere)
{
    return orion_driver.cuEventRecord(elsewhere.join, elsewhere.stream) == CUDA_SUCCESS &&
           orion_driver.cuStreamWaitEvent(orion_stream_record_handle(stream_record), elsewhere.join, 0) == CUDA_SUCCESS;
}

/* The driver may refuse a call while it is short of memory. The thread tries again until the kernel is complete, as long as order_wait.h
 * says, and not while a context ends, which waits for this thread. */
void orion_partition_join(struct orion_process *process, struct orion_stream_record *stream_record,
                          struct orion_elsewhere elsewhere)
{
    struct orion_gpu *gpu = stream_record->gpu;
    struct orion_relaxed relaxed = orion_capture_relax();
    struct orion_order_wait wait = {0};
    while (!joins(stream_record, elsewhere)) {
        if (atomic_load(&process->untouchable) != 0) break;
        if (orion_outcome_of(orion_driver.cuStreamQuery(elsewhere.stream)) != ORION_OUTCOME_UNKNOWN) break;
        if (!orion_order_waits(process, gpu, &wait)) break;
    }
    atomic_fetch_sub(&orion_be(gpu)->moving, 1);
    orion_capture_unrelax(&relaxed);
}

void orion_partition_wait(struct orion_gpu *gpu)
{
    for (unsigned tries = 0; atomic_load(&orion_be(gpu)->moving) > 0 && tries < REST_TRIES; tries++)
        orion_sleep_precisely(tries < 100 ? 10 * ORION_MICROSECOND : ORION_MILLISECOND);
}

void orion_partition_forget(struct orion_stream_record *stream_record, bool context_lives)
{
    struct orion_partition_stream_record *mine = &orion_be_stream_record(stream_record)->partition;
    if (context_lives) { /* the driver lets a destroyed stream complete its work */
        if (mine->elsewhere.stream != NULL) orion_driver.cuStreamDestroy_v2(mine->elsewhere.stream);
        if (mine->fork != NULL) orion_driver.cuEventDestroy_v2(mine->fork);
        if (mine->elsewhere.join != NULL) orion_driver.cuEventDestroy_v2(mine->elsewhere.join);
    }
    *mine = (struct orion_partition_stream_record){0};
}

void orion_partition_end(struct orion_process *process, struct orion_gpu *gpu)
{
    if (!orion_ledger_try_lock(gpu)) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) orion_partition_forget(stream_record, true);
    struct orion_partition *partition = &orion_be(gpu)->partition;
    for (uint32_t i = 0; i < partition->count && orion_driver.cuGreenCtxDestroy != NULL; i++)
        orion_driver.cuGreenCtxDestroy(partition->made[i].context);
    *partition = (struct orion_partition){0};
    orion_capture_unrelax(&relaxed);
    orion_ledger_unlock(gpu);
}
