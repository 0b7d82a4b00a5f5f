/* The end of the primary context ends no work of another context of the device: hp stays busy with it, and be has it in flight. */
#include "simulated_process.h"

#include "be/state.h"
#include "streams/place.h"

static struct orion_policy_page policy;
static struct orion_grant_page grant;
static CUstream stream;
static CUfunction function;

static void make_another_context(void)
{
    CUcontext mine;
    CUmodule module;
    MUST(cuCtxCreate(&mine, NULL, 0, 0));
    MUST(cuModuleLoadData(&module, "orion-sim 1\nkernel one duration_us=300000\n"));
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static unsigned retains;
static CUresult CUDAAPI counted_retain(CUcontext *primary, CUdevice device)
{
    retains++;
    return cuDevicePrimaryCtxRetain(primary, device);
}

/* A reference of the hook's own would keep the context beyond the program's last release, if only for a moment. */
static void the_hook_takes_no_reference_of_its_own(void)
{
    CUcontext primary;
    CHECK(orion_primary_of(0) != NULL);
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    orion_driver.cuDevicePrimaryCtxRetain = counted_retain;
    CHECK(orion_primary_of(0) == primary && retains == 0);
    MUST(cuDevicePrimaryCtxRelease(0));
}

static void work_in_it_goes_on(enum orion_role role, CUresult (*end)(CUdevice))
{
    CUcontext primary;
    CUevent behind;
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    atomic_store(&gpu->role, role);
    MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
    MUST(cuEventRecord(behind, stream));
    MUST(end(0));
    CHECK(cuEventQuery(behind) == CUDA_ERROR_NOT_READY);
    if (role == ORION_ROLE_HP) CHECK(atomic_load(&gpu->busy->state) == ORION_BUSY);
    else CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) > 0);
    MUST(cuStreamSynchronize(stream));
    CHECK(atomic_load(&gpu->busy->state) != ORION_BUSY && atomic_load(&orion_be(gpu)->in_flight_ns) == 0);
    MUST(cuEventDestroy(behind));
}

int main(void)
{
    begin_process("orion-sim 1\nkernel one duration_us=20\n");
    policy.copy[0] = (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = 1000000};
    grant.copy[0].window_share_ns = 1000000;
    atomic_store(&policy.hp_clients, 1);
    gpu->policy = &policy;
    gpu->grant = &grant;
    the_hook_takes_no_reference_of_its_own();
    make_another_context();
    work_in_it_goes_on(ORION_ROLE_HP, cuDevicePrimaryCtxReset);
    work_in_it_goes_on(ORION_ROLE_BE, cuDevicePrimaryCtxRelease);
    puts("primary_end: ok");
    return 0;
}
