/* Whether a blocking copy proves the work before it, on the simulated driver, through the hook's wrappers: only if the driver waits. The
 * simulated driver waits always, so these tests look at what the hook counts. */
#include "simulated_process.h"

#include "streams/stream_records.h"

static CUfunction function;
static CUdeviceptr device;
static char host[256];

static void copy_out(size_t bytes) { MUST(cuMemcpyDtoH(host, device, bytes)); }
static void copy_box(CUmemorytype from, size_t width, size_t height)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = from, .srcDevice = device, .srcHost = host, .srcPitch = 64, .dstPitch = 64};
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = host + 128, copy.WidthInBytes = width, copy.Height = height;
    MUST(cuMemcpy2D(&copy));
}
static void copy_nothing(void) { copy_out(0); }
static void copy_something(void) { copy_out(16); }
static void copy_no_rows(void) { copy_box(CU_MEMORYTYPE_DEVICE, 16, 0); }
static void copy_empty_rows(void) { copy_box(CU_MEMORYTYPE_DEVICE, 0, 2); }
static void copy_rows_of_the_host(void) { copy_box(CU_MEMORYTYPE_HOST, 16, 2); }
static void copy_rows(void) { copy_box(CU_MEMORYTYPE_DEVICE, 16, 2); }

static bool proves(void (*copy)(void))
{
    const struct orion_stream_record *stream_record = orion_stream_record_of(process, (struct orion_stream_name){NULL, false});
    MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
    uint64_t launched = atomic_load(&stream_record->begun);
    copy();
    bool proven = atomic_load(&stream_record->drained) >= launched;
    MUST(cuStreamSynchronize(NULL));
    return proven;
}

int main(void)
{
    function = begin_hp_process();
    MUST(cuMemAlloc(&device, 4096));
    CHECK(proves(copy_something) && proves(copy_rows));
    CHECK(!proves(copy_nothing));
    CHECK(!proves(copy_no_rows) && !proves(copy_empty_rows));
    CHECK(!proves(copy_rows_of_the_host));
    puts("copy_proofs: ok");
    return 0;
}
