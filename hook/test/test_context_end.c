/* cuCtxDestroy waits for the context's work, and the driver may refuse it. Until it has succeeded, hp is busy and be's work is in flight. */
#include "simulated_process.h"

#include <pthread.h>

#include "be/state.h"
#include "until.h"

static struct orion_policy_page policy;
static struct orion_grant_page grant;
static CUcontext mine;
static CUstream stream;
static CUfunction function;
static _Atomic bool destroyed;

static void make_context(void)
{
    CUmodule module;
    MUST(cuCtxCreate(&mine, NULL, 0, 0));
    MUST(cuModuleLoadData(&module, "orion-sim 1\nkernel one duration_us=300000\n"));
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static bool works(enum orion_role role)
{
    if (role == ORION_ROLE_HP) return atomic_load(&gpu->busy->state) == ORION_BUSY;
    return atomic_load(&orion_be(gpu)->in_flight_ns) > 0;
}

static void *destroy(void *unused)
{
    (void)unused;
    MUST(cuCtxDestroy(mine));
    atomic_store(&destroyed, true);
    return NULL;
}

static void work_goes_on_while_the_driver_waits_for_it(enum orion_role role)
{
    pthread_t thread;
    CUcontext popped;
    atomic_store(&gpu->role, role);
    atomic_store(&destroyed, false);
    make_context();
    MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
    MUST(cuCtxPopCurrent(&popped));
    uint32_t epoch = atomic_load(&process->stream_record_epoch);
    CHECK(pthread_create(&thread, NULL, destroy, NULL) == 0);
    UNTIL(atomic_load(&process->stream_record_epoch) != epoch); /* the driver's call comes next */
    bool worked = works(role);
    CHECK(worked || atomic_load(&destroyed));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!works(role));
}

static void a_refusal_ends_nothing(enum orion_role role)
{
    CUcontext primary;
    CUevent behind;
    atomic_store(&gpu->role, role);
    MUST(cuCtxGetCurrent(&primary));
    MUST(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
    MUST(cuEventRecord(behind, stream));
    CHECK(cuCtxDestroy(primary) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuEventQuery(behind) == CUDA_ERROR_NOT_READY && works(role));
    MUST(cuStreamSynchronize(stream));
    CHECK(!works(role));
    MUST(cuEventDestroy(behind));
}

int main(void)
{
    CUmodule module = begin_process("orion-sim 1\nkernel one duration_us=300000\n");
    policy.copy[0] = (struct orion_policy){.kind = ORION_POLICY_GATE, .window_ns = 1000000};
    grant.copy[0].window_share_ns = 1000000;
    atomic_store(&policy.hp_clients, 1);
    gpu->policy = &policy;
    gpu->grant = &grant;
    MUST(cuModuleGetFunction(&function, module, "one"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    a_refusal_ends_nothing(ORION_ROLE_HP);
    a_refusal_ends_nothing(ORION_ROLE_BE);
    work_goes_on_while_the_driver_waits_for_it(ORION_ROLE_HP);
    work_goes_on_while_the_driver_waits_for_it(ORION_ROLE_BE);
    puts("context_end: ok");
    return 0;
}
