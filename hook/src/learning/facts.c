#include "learning/facts.h"

#include "learning/durations.h"
#include "learning/graphs.h"
#include "learning/kernels.h"
#include "learning/launch.h"
#include "process/process.h"
#include "streams/capture.h"

/* Copies the profile's row for a kernel into its entry. The row states the kernel's shape but not its code, so the row
 * has the plain identity. True: the entry got an expected duration. */
static bool apply_profile(struct orion_durations *durations, struct orion_duration *entry, uint64_t plain)
{
    struct orion_duration *row = orion_duration_find(durations, plain);
    if (row == NULL || row == entry) return false;
    uint32_t facts = atomic_load_explicit(&row->facts, memory_order_relaxed);
    if (!(orion_facts_flags(facts) & ORION_FACTS_PROFILE)) return false;
    atomic_store_explicit(&row->used, atomic_load_explicit(&durations->clock, memory_order_relaxed), memory_order_relaxed);
    if (orion_facts_class(facts) != ORION_CLASS_UNKNOWN) {
        orion_facts_set_class(entry, orion_facts_class(facts));
        orion_facts_set_flags(entry, ORION_FACTS_CLASS_GIVEN);
    }
    if (orion_facts_sms(atomic_load_explicit(&entry->facts, memory_order_relaxed)) == 0)
        orion_facts_set_sms(entry, orion_facts_sms(facts));
    uint32_t expected = atomic_load_explicit(&row->expected_100ns, memory_order_relaxed);
    if (expected == 0 || atomic_load_explicit(&entry->expected_100ns, memory_order_relaxed) != 0) return false;
    atomic_store_explicit(&entry->expected_100ns, expected, memory_order_relaxed);
    orion_facts_set_flags(entry, ORION_FACTS_ESTIMATE);
    return true;
}

static bool note_kernel(struct orion_process *process, struct orion_duration *entry, uint64_t identity,
                        const struct orion_launch *launch)
{
    struct orion_kernel_key key = orion_kernel_key(orion_kernels(process), launch->function);
    atomic_store_explicit(&entry->name, orion_identity_is_local(identity) ? 0 : key.name, memory_order_relaxed);
    uint64_t blocks = (uint64_t)launch->grid_x * launch->grid_y * launch->grid_z;
    uint32_t threads = launch->block_x * launch->block_y * launch->block_z;
    uint32_t need = orion_kernel_need(launch->function, blocks, threads, launch->shared_bytes);
    if (need != 0) orion_facts_set_sms(entry, need);
    if (orion_kernel_exceeds_gpu(launch->function, blocks, threads, launch->shared_bytes) &&
        !orion_kernel_has_large_clusters(launch->function))
        orion_facts_set_flags(entry, ORION_FACTS_MAY_MOVE);
    return apply_profile(orion_durations(process), entry, identity ^ key.mark);
}

static void note_graph(struct orion_process *process, struct orion_duration *entry, const struct orion_launch *launch)
{
    struct orion_graph_facts facts;
    if (!orion_graph_facts(orion_graphs(process), launch->graph, &facts)) return;
    atomic_store_explicit(&entry->name, facts.name, memory_order_relaxed);
    orion_facts_set_sms(entry, facts.sms);
    if (facts.kernel_class != ORION_CLASS_UNKNOWN) orion_facts_set_class(entry, facts.kernel_class);
}

bool orion_kernel_note(struct orion_process *process, uint64_t identity, const struct orion_launch *launch)
{
    struct orion_durations *durations = orion_durations(process);
    struct orion_duration *entry = orion_duration_find(durations, identity);
    if (entry != NULL && (orion_facts_flags(atomic_load_explicit(&entry->facts, memory_order_relaxed)) & ORION_FACTS_NOTED))
        return false;
    if (entry == NULL) entry = orion_duration_claim(durations, identity);
    orion_facts_set_flags(entry, ORION_FACTS_NOTED); /* set first, so that no other thread does the same work */
    bool expects = false;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (launch->function != NULL) expects = note_kernel(process, entry, identity, launch);
    else if (launch->graph != NULL) note_graph(process, entry, launch);
    orion_capture_unrelax(&relaxed);
    return expects;
}

bool orion_kernel_name(struct orion_process *process, uint64_t identity, char *text, size_t size)
{
    struct orion_duration *entry = orion_duration_find(orion_durations(process), identity);
    uint64_t name = entry != NULL ? atomic_load_explicit(&entry->name, memory_order_relaxed) : 0;
    return name != 0 && orion_kernel_text(orion_kernels(process), name, text, size);
}
