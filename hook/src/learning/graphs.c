#include "learning/graphs.h"

#include <sched.h>

#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/graph_walk.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/capture.h"
#include "system/system.h"

#define NEIGHBOURHOOD 8u
#define LOCK_TRIES 100000u
#define DEVICE_LAUNCHES 4u /* CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH */

static uint64_t word_of(const void *handle) { return (uint64_t)(uintptr_t)handle; }

static uint64_t identity_by_handle(uint64_t exec)
{
    return orion_identity_of_hash(orion_mix(exec * UINT64_C(0x9e3779b97f4a7c15) + ORION_WORK_GRAPH), true);
}

static struct orion_graph *find(struct orion_graphs *graphs, uint64_t exec)
{
    uint64_t home = orion_mix(exec) >> 20;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_graph *entry = &graphs->entry[(home + i) & (ORION_GRAPHS - 1)];
        if (atomic_load_explicit(&entry->exec, memory_order_acquire) == exec) return entry;
    }
    return NULL;
}

uint64_t orion_graph_identity(struct orion_graphs *graphs, const void *exec)
{
    struct orion_graph *entry = find(graphs, word_of(exec));
    if (entry == NULL) return identity_by_handle(word_of(exec));
    uint64_t identity = atomic_load_explicit(&entry->identity, memory_order_acquire);
    bool same = atomic_load_explicit(&entry->exec, memory_order_relaxed) == word_of(exec);
    return __builtin_expect(same, 1) ? identity : identity_by_handle(word_of(exec));
}

bool orion_graph_is_known(struct orion_graphs *graphs, const void *exec) { return find(graphs, word_of(exec)) != NULL; }

bool orion_graph_is_collective(struct orion_graphs *graphs, const void *exec)
{
    struct orion_graph *entry = find(graphs, word_of(exec));
    return entry != NULL && atomic_load_explicit(&entry->collective, memory_order_relaxed);
}

bool orion_graph_has_branches(struct orion_graphs *graphs, const void *exec)
{
    struct orion_graph *entry = find(graphs, word_of(exec));
    return entry != NULL && atomic_load_explicit(&entry->branches, memory_order_relaxed);
}

uint32_t orion_graph_gpus(struct orion_graphs *graphs, const void *exec)
{
    struct orion_graph *entry = find(graphs, word_of(exec));
    return entry != NULL ? atomic_load_explicit(&entry->gpus, memory_order_relaxed) : 0;
}

/* -- Changes, under the lock ----------------------------------------------------------------------------------------- */

static bool take_lock(struct orion_graphs *graphs)
{
    for (uint32_t i = 0; i < LOCK_TRIES; i++) {
        if (!atomic_exchange_explicit(&graphs->lock, 1, memory_order_acquire)) return true;
        if (i % 64 == 63) sched_yield();
        else orion_pause();
    }
    return false;
}

static void release_lock(struct orion_graphs *graphs) { atomic_store_explicit(&graphs->lock, 0, memory_order_release); }

bool orion_graph_facts(struct orion_graphs *graphs, const void *exec, struct orion_graph_facts *facts)
{
    if (!take_lock(graphs)) return false;
    struct orion_graph *entry = find(graphs, word_of(exec));
    bool known = entry != NULL && entry->whole;
    if (known) *facts = (struct orion_graph_facts){entry->name, entry->sms, entry->kernel_class, entry->kernels};
    release_lock(graphs);
    return known;
}

/* Whether one entry is replaced rather than another one. The hook learns durations again, but not which graphs have collectives
 * or run on which GPUs: these go last. Else the older one goes. */
static bool goes_before(const struct orion_graphs *graphs, const struct orion_graph *one, const struct orion_graph *other)
{
    bool keeps_one = one->collective || one->gpus != 0, keeps_other = other->collective || other->gpus != 0;
    return keeps_one == keeps_other ? graphs->clock - one->made > graphs->clock - other->made : keeps_other;
}

/* The graph's own entry; else a free entry; else one of the entries where the graph may be. */
static struct orion_graph *entry_for(struct orion_graphs *graphs, uint64_t exec)
{
    struct orion_graph *found = find(graphs, exec);
    uint64_t home = orion_mix(exec) >> 20;
    for (uint32_t i = 0; i < NEIGHBOURHOOD && found == NULL; i++) {
        struct orion_graph *entry = &graphs->entry[(home + i) & (ORION_GRAPHS - 1)];
        if (atomic_load_explicit(&entry->exec, memory_order_relaxed) == 0) found = entry;
    }
    if (found != NULL) return found;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_graph *entry = &graphs->entry[(home + i) & (ORION_GRAPHS - 1)];
        if (found == NULL || goes_before(graphs, entry, found)) found = entry;
    }
    return found;
}

static void renew_identity(struct orion_graph *entry, uint64_t exec)
{
    uint64_t hash = orion_mix(entry->sum + ORION_WORK_GRAPH);
    uint64_t identity = entry->whole ? orion_identity_of_hash(hash, entry->local) : identity_by_handle(exec);
    atomic_store_explicit(&entry->identity, identity, memory_order_release);
}

static void enter(struct orion_graphs *graphs, uint64_t exec, const struct orion_graph_walk *walk)
{
    struct orion_graph *entry = entry_for(graphs, exec);
    atomic_store_explicit(&entry->exec, 0, memory_order_relaxed); /* visible before the new identity */
    entry->sum = walk->sum;
    entry->whole = walk->whole;
    entry->local = walk->local;
    entry->collective = walk->collective;
    entry->branches = walk->branches || walk->child_branches;
    entry->child_branches = walk->child_branches;
    entry->gpus = walk->gpus;
    entry->name = walk->name;
    entry->kernels = (uint32_t)walk->kernels;
    entry->sms = walk->kernels > 0 ? (uint32_t)((walk->needs + walk->kernels / 2) / walk->kernels) : 0;
    entry->kernel_class = walk->of_class[ORION_CLASS_COMPUTE] * 2 > walk->kernels  ? ORION_CLASS_COMPUTE
                          : walk->of_class[ORION_CLASS_MEMORY] * 2 > walk->kernels ? ORION_CLASS_MEMORY
                                                                                   : ORION_CLASS_UNKNOWN;
    entry->made = ++graphs->clock;
    renew_identity(entry, exec);
    atomic_store_explicit(&entry->exec, exec, memory_order_release);
}

void orion_graph_gets_collective(struct orion_process *process, CUgraphExec exec)
{
    struct orion_graphs *graphs = orion_graphs(process);
    if (!take_lock(graphs)) return;
    struct orion_graph *entry = find(graphs, word_of(exec));
    if (entry != NULL) entry->collective = true;
    release_lock(graphs);
}

void orion_graph_set_branches(struct orion_graphs *graphs, const void *exec, bool own)
{
    if (!take_lock(graphs)) return;
    struct orion_graph *entry = find(graphs, word_of(exec));
    if (entry != NULL) entry->branches = own || entry->child_branches;
    release_lock(graphs);
}

/* -- Calls of the wrappers ------------------------------------------------------------------------------------------- */

bool orion_graph_device_may_launch(CUgraphExec exec)
{
    cuuint64_t flags = 0;
    return orion_driver.cuGraphExecGetFlags != NULL && orion_driver.cuGraphExecGetFlags(exec, &flags) == CUDA_SUCCESS &&
           (flags & DEVICE_LAUNCHES) != 0;
}

/* A GPU has its role before it stops joining, so this reads `joining` first. */
bool orion_graphs_are_read(const struct orion_process *process)
{
    if (atomic_load(&process->joining) > 0) return true;
    ORION_EACH_GPU(gpu, process) {
        uint32_t role = atomic_load(&gpu->role);
        if (role == ORION_ROLE_BE || (role == ORION_ROLE_HP && orion_policy_asks(gpu))) return true;
    }
    return false;
}

/* Drops what an earlier walk found. From now on the graph's identity is made from its handle. */
static void forget(struct orion_process *process, CUgraphExec exec)
{
    struct orion_graphs *graphs = orion_graphs(process);
    orion_duration_forget(orion_durations(process), identity_by_handle(word_of(exec)));
    if (find(graphs, word_of(exec)) == NULL || !take_lock(graphs)) return;
    struct orion_graph *entry = find(graphs, word_of(exec));
    if (entry != NULL) atomic_store_explicit(&entry->exec, 0, memory_order_release);
    release_lock(graphs);
}

void orion_graph_made_listing(CUgraphExec exec, CUgraph graph, struct orion_graph_list *list)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    if (!orion_graphs_are_read(process)) {
        forget(process, exec);
        return;
    }
    struct orion_graph_walk walk;
    struct orion_relaxed relaxed = orion_capture_relax();
    orion_graph_walk(process, graph, &walk, list);
    if (orion_graph_device_may_launch(exec)) walk.whole = false, walk.branches = true;
    orion_capture_unrelax(&relaxed);
    orion_duration_forget(orion_durations(process), identity_by_handle(word_of(exec)));
    if (!take_lock(orion_graphs(process))) return;
    enter(orion_graphs(process), word_of(exec), &walk);
    release_lock(orion_graphs(process));
}

void orion_graph_ending(CUgraphExec exec)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) forget(process, exec);
}

static struct orion_graph_node *place_of(struct orion_graphs *graphs, uint64_t exec, uint64_t node)
{
    return &graphs->changed[(orion_mix(exec * 3 + node) >> 20) & (ORION_GRAPH_NODES - 1)];
}

static bool is_record_of(const struct orion_graph_node *record, const struct orion_graph *entry, uint64_t exec, uint64_t node)
{
    return record->exec == exec && record->node == node && record->made == entry->made;
}

/* Whether the node has changed since its graph was made, and still has its record. */
static bool has_record(struct orion_graphs *graphs, uint64_t exec, uint64_t node)
{
    if (!take_lock(graphs)) return false;
    struct orion_graph *entry = find(graphs, exec);
    bool has = entry != NULL && is_record_of(place_of(graphs, exec, node), entry, exec, node);
    release_lock(graphs);
    return has;
}

/* The node's record. If there is none, this makes one with the part of the node from which it was instantiated. A new
 * record replaces another node's record in the same place. That node then counts as unchanged again; the graph gets
 * another identity, and the hook learns its duration again. */
static struct orion_graph_node *record_of(struct orion_graphs *graphs, const struct orion_graph *entry, uint64_t exec,
                                          uint64_t node, uint64_t original)
{
    struct orion_graph_node *record = place_of(graphs, exec, node);
    if (!is_record_of(record, entry, exec, node)) *record = (struct orion_graph_node){exec, node, original, entry->made, true};
    return record;
}

/* `part`: what the node adds to the sum from now on; NULL: the node's part stays, and only `enabled` changes. Only the
 * first change of a node reads the node from which it was instantiated: that takes several driver calls. */
static void change_node(struct orion_process *process, CUgraphExec exec, CUgraphNode node, const uint64_t *part, bool enabled,
                        bool local)
{
    struct orion_graphs *graphs = orion_graphs(process);
    if (!orion_graphs_are_read(process)) {
        forget(process, exec);
        return;
    }
    struct orion_graph_walk walk = {.whole = true};
    if (!has_record(graphs, word_of(exec), word_of(node))) {
        struct orion_relaxed relaxed = orion_capture_relax();
        orion_graph_walk_node(process, node, &walk);
        orion_capture_unrelax(&relaxed);
    }
    if (!take_lock(graphs)) return;
    struct orion_graph *entry = find(graphs, word_of(exec));
    if (entry != NULL) {
        struct orion_graph_node *record = record_of(graphs, entry, word_of(exec), word_of(node), walk.sum);
        entry->sum -= record->enabled ? record->part : 0;
        if (part != NULL) record->part = *part;
        else record->enabled = enabled;
        entry->sum += record->enabled ? record->part : 0;
        entry->local |= local;
        entry->whole &= walk.whole;
        renew_identity(entry, word_of(exec));
    }
    release_lock(graphs);
    orion_duration_forget(orion_durations(process), identity_by_handle(word_of(exec)));
}

void orion_graph_node_set(CUgraphExec exec, CUgraphNode node, uint64_t identity)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || identity == ORION_IDENTITY_NONE) return;
    uint64_t part = orion_graph_part(identity);
    change_node(process, exec, node, &part, true, orion_identity_is_local(identity));
}

void orion_graph_child_set(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_graph_walk walk = {0};
    if (orion_graphs_are_read(process)) orion_graph_walk_child(process, child, &walk, NULL);
    change_node(process, exec, node, &walk.sum, true, walk.local);
    if (walk.collective) orion_graph_gets_collective(process, exec);
}

void orion_graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) change_node(process, exec, node, NULL, enabled, false);
}

void orion_graph_part_changed(struct orion_process *process, CUgraphExec exec, uint64_t before, uint64_t after, bool local)
{
    struct orion_graphs *graphs = orion_graphs(process);
    if (!take_lock(graphs)) return;
    struct orion_graph *entry = find(graphs, word_of(exec));
    if (entry != NULL) {
        entry->sum += after - before;
        entry->local |= local;
        renew_identity(entry, word_of(exec));
    }
    release_lock(graphs);
}
