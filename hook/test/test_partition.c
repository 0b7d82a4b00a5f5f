/* The policy changes the size of the partition many times. The hook must create at most one partition for each size, at
 * most ORION_PARTITION_SIZES, and must destroy all of them when the context ends. */
#include "check.h"

#include "be/partition.h"
#include "be/state.h"
#include "core/core.h"
#include "core/lifetimes.h"
#include "fake_driver.h"
#include "streams/stream_records.h"

static int contexts, streams;
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
static CUresult CUDAAPI fake_green(CUgreenCtx *context, CUdevResourceDesc description, CUdevice device, unsigned flags)
{
    (void)description, (void)device, (void)flags;
    *context = (CUgreenCtx)(handle += 16);
    contexts++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_green_end(CUgreenCtx context)
{
    (void)context;
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
static CUresult CUDAAPI fake_stream_end(CUstream stream)
{
    (void)stream;
    streams--;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_record_in(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = 1;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    return fake_get_current(context);
}
static CUresult CUDAAPI fake_release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
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
    orion_driver.cuEventRecord = fake_record_in;
    orion_driver.cuStreamWaitEvent = fake_wait;
    orion_driver.cuDevicePrimaryCtxGetState = fake_state;
    orion_driver.cuDevicePrimaryCtxRetain = fake_retain;
    orion_driver.cuDevicePrimaryCtxRelease_v2 = fake_release;
    return gpu;
}

static void launch_moved(struct orion_gpu *gpu, struct orion_stream_record *stream_record, uint32_t overlap_sms)
{
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    policy->copy[0].overlap_sms = overlap_sms;
    CUstream stream = orion_partition_fork(orion_the_process, stream_record);
    CHECK(stream != NULL);
    orion_partition_join(stream_record, stream);
}

int main(void)
{
    struct orion_gpu *gpu = partitioned_gpu();
    struct orion_stream_record *stream_record =
        orion_stream_record_of(orion_the_process, (struct orion_stream_name){(CUstream)0x5000, false});
    for (uint32_t i = 0; i < 100; i++) launch_moved(gpu, stream_record, 32 + i % 2 * 32); /* 32 and 64 SMs in turn */
    CHECK(contexts == 2 && streams == 1);
    for (uint32_t i = 0; i < 100; i++) launch_moved(gpu, stream_record, 16 + i);
    CHECK(contexts == (int)ORION_PARTITION_SIZES && streams == 1);
    CHECK(atomic_load(&orion_be(gpu)->moving) == 0);
    orion_primary_ending(0);
    CHECK(contexts == 0 && streams == 0);
    CHECK(orion_partition_fork(orion_the_process, stream_record) == NULL); /* no new partition while the context ends */
    orion_context_ended();
    launch_moved(gpu, stream_record, 32);
    CHECK(contexts == 1 && streams == 1);
    puts("partition: ok");
    return 0;
}
