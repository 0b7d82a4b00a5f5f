#include "be/accounts.h"

#include "be/state.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "process/gpu.h"

void orion_account_gpu_time(struct orion_gpu *gpu, uint64_t begin_ns, uint64_t end_ns, uint64_t ran_on_ns)
{
    uint64_t took = orion_usage_add(&orion_be(gpu)->usage, begin_ns, end_ns);
    atomic_fetch_add_explicit(&gpu->record->gpu_ns, took, memory_order_relaxed);
    if (ran_on_ns > 0)
        atomic_fetch_add_explicit(&gpu->record->ran_on_ns, ran_on_ns < took ? ran_on_ns : took, memory_order_relaxed);
}

void orion_account_long_kernel(struct orion_process *process, struct orion_gpu *gpu, uint64_t identity, uint64_t measured_ns)
{
    struct orion_record_page *record = gpu->record;
    uint64_t bound = orion_gpu_policy(gpu)->long_kernel_ns;
    struct orion_kernel_facts facts;
    if (bound == 0 || measured_ns <= bound) return;
    orion_kernel_facts(orion_durations(process), identity, &facts);
    if (facts.has_pieces) return; /* hp waits for one piece only */
    if (measured_ns <= atomic_load_explicit(&record->long_kernel_ns, memory_order_relaxed)) return;
    if (!orion_kernel_name(process, identity, record->long_kernel_name, sizeof record->long_kernel_name)) return;
    atomic_store_explicit(&record->long_kernel_ns, measured_ns, memory_order_release); /* release: the name is visible first */
}
