#include "hp/ceiling.h"

#include "hp/busy.h"
#include "process/plan.h"
#include "process/waits.h"
#include "system/system.h"

#define STEP_NS (50 * ORION_MILLISECOND)

void orion_ceiling_wait(struct orion_gpu *gpu)
{
    if (!orion_plan_holds(gpu)) return;
    uint64_t began = orion_waits_begin(gpu);
    do {
        orion_busy_end_linger(gpu);
        orion_plan_sleep(gpu, STEP_NS);
    } while (orion_plan_holds(gpu));
    orion_waits_end(gpu, began);
}
