/* A thread that is no client any more orders the legacy streams of all its contexts, unless another thread may be ending them. */
#include "check.h"
#include "fake_driver.h"

#include "streams/capture.h"
#include "streams/own_streams.h"
#include "threads/inprocess.h"
#include "threads/redirect.h"

static CUcontext current;
static unsigned pushes;
static uint64_t created;

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI push(CUcontext context)
{
    CHECK(context == FAKE_CONTEXT && atomic_load(&orion_the_process->touching) == 1);
    pushes++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI create_stream(CUstream *stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *stream = (CUstream)(uintptr_t)(0x9000 + 0x100 * created++);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI priorities(int *least, int *greatest)
{
    *least = *greatest = 0;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)event, (void)stream, (void)flags;
    return CUDA_SUCCESS;
}

static unsigned pushes_of_a_thread_that_leaves(void)
{
    current = FAKE_CONTEXT;
    CHECK(orion_set_client_idx(0) == 0 && orion_redirected(NULL) != NULL);
    current = NULL;
    pushes = 0;
    CHECK(orion_set_client_idx(-1) == 0 && atomic_load(&orion_the_process->touching) == 0);
    return pushes;
}

int main(void)
{
    orion_driver.cuCtxGetCurrent = get_current;
    orion_driver.cuCtxGetDevice = fake_get_device;
    orion_driver.cuStreamGetCtx = fake_stream_context;
    orion_driver.cuCtxPushCurrent_v2 = push;
    orion_driver.cuCtxPopCurrent_v2 = fake_get_current;
    orion_driver.cuEventCreate = fake_event_create;
    orion_driver.cuEventDestroy_v2 = fake_event_destroy;
    orion_driver.cuEventRecord = fake_event_record;
    orion_driver.cuStreamWaitEvent = wait;
    orion_driver.cuThreadExchangeStreamCaptureMode = fake_exchange;
    orion_driver.cuStreamCreateWithPriority = create_stream;
    orion_driver.cuCtxGetStreamPriorityRange = priorities;
    CHECK(orion_start_scheduler(1) == 0);
    CHECK(pushes_of_a_thread_that_leaves() == 1);
    orion_forbid_touch(orion_the_process);
    CHECK(pushes_of_a_thread_that_leaves() == 0);
    orion_allow_touch(orion_the_process);
    CHECK(pushes_of_a_thread_that_leaves() == 1);
    return 0;
}
