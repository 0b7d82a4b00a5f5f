/* The start of the scheduler of threads. The scheduler works only if the hook interposes the process's driver calls. */
#include "interposition/lookup.h"
#include "orion/inprocess.h"
#include "system/log.h"
#include "threads/inprocess.h"

__attribute__((visibility("default"))) int orion_start_scheduler(int clients)
{
    orion_log_begin();
    if (orion_lookup_interposes != NULL && !orion_lookup_interposes())
        return orion_inprocess_fail("the hook does not see this process's CUDA calls; start it with LD_PRELOAD or `orion launch`");
    return orion_inprocess_start(clients);
}
