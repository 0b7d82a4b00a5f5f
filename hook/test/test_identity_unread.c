/* If no policy reads the identity of hp's launches, the hook does not compute it and queries no kernel's name. */
#include "check.h"

#include <stdlib.h>

#include "core/core.h"
#include "fake_driver.h"
#include "process/policy.h"

static unsigned asked;

static CUresult CUDAAPI count_names(const char **name, CUfunction function)
{
    (void)function;
    asked++;
    *name = "kernel";
    return CUDA_SUCCESS;
}

static void launch(const void *function)
{
    const struct orion_launch launched = {.function = function, .grid_x = 8, .grid_y = 1, .grid_z = 1, .block_x = 32};
    struct orion_work work = {.stream = {(CUstream)0x20, false}, .identity = ORION_IDENTITY_UNREAD, .launch = launched};
    orion_work_begin(&work);
    CHECK(work.stream_record != NULL);
    orion_work_end(&work, CUDA_SUCCESS);
}

int main(void)
{
    static const char functions[8];
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_HP);
    struct orion_policy_page *page = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    orion_driver.cuFuncGetName = count_names;

    static const uint32_t unread[] = {ORION_POLICY_NONE, ORION_POLICY_GATE, ORION_POLICY_ORION};
    for (unsigned i = 0; i < 3; i++) { /* under ORION without a slowdown, be does not read hp's launches */
        page->copy[0].kind = unread[i];
        page->copy[0].max_slowdown_milli = 1000;
        launch(&functions[i]);
        CHECK(asked == 0);
    }

    atomic_store(&gpu->sharing, ORION_SHARING_TOGETHER);
    page->copy[0].max_slowdown_milli = 1300; /* be runs beside hp, so hp's launch decides which be launches may run */
    launch(&functions[4]);
    CHECK(asked > 0);
    uint64_t now = atomic_load(&gpu->busy->current);
    CHECK(orion_current_launch(now) == 1);
    puts("identity unread: ok");
    return 0;
}
