#include "be/graph_copies.h"

#include <stdlib.h>

#include "be/graph_nodes.h"
#include "be/graph_order.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/graphs.h"
#include "process/process.h"
#include "streams/capture.h"

#define NEIGHBOURHOOD 8u
#define KEPT_FLAGS 8u /* CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY; the other flags are about allocations, upload, device */

static uint64_t word_of(CUgraphExec exec) { return (uint64_t)(uintptr_t)exec; }

/* -- The table ------------------------------------------------------------------------------------------------------- */

static uint32_t place_of(CUgraphExec exec, uint32_t step)
{
    return (uint32_t)((orion_mix(word_of(exec)) >> 20) + step) & (ORION_GRAPH_COPIES - 1);
}

struct orion_graph_copy *orion_graph_copy_of(struct orion_process *process, CUgraphExec exec)
{
    struct orion_graph_copies *copies = orion_graph_copies(process);
    if (__builtin_expect(atomic_load_explicit(&copies->count, memory_order_relaxed) == 0, 1)) return NULL;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        uint32_t place = place_of(exec, i);
        if (atomic_load_explicit(&copies->entry[place].exec, memory_order_acquire) == word_of(exec))
            return atomic_load_explicit(&copies->entry[place].copy, memory_order_acquire);
    }
    return NULL;
}

static bool enter(struct orion_graph_copies *copies, struct orion_graph_copy *copy)
{
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        uint32_t place = place_of(copy->exec, i);
        uint64_t free_word = 0;
        if (!atomic_compare_exchange_strong(&copies->entry[place].exec, &free_word, word_of(copy->exec))) continue;
        atomic_store_explicit(&copies->entry[place].copy, copy, memory_order_release);
        atomic_fetch_add(&copies->count, 1);
        return true;
    }
    return false;
}

static struct orion_graph_copy *take(struct orion_process *process, CUgraphExec exec)
{
    struct orion_graph_copies *copies = orion_graph_copies(process);
    if (orion_graph_copy_of(process, exec) == NULL) return NULL;
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        uint32_t place = place_of(exec, i);
        if (atomic_load(&copies->entry[place].exec) != word_of(exec)) continue;
        struct orion_graph_copy *copy = atomic_exchange(&copies->entry[place].copy, NULL);
        if (copy == NULL) continue;
        atomic_store(&copies->entry[place].exec, 0);
        atomic_fetch_sub(&copies->count, 1);
        return copy;
    }
    return NULL;
}

/* -- Making and freeing ---------------------------------------------------------------------------------------------- */

static void free_memory(struct orion_graph_copy *copy)
{
    free(copy->node);
    free(copy->rank);
    free(copy->by_handle);
    free(copy->piece);
    free(copy);
}

static void free_copy(struct orion_graph_copy *copy)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    for (uint32_t i = 0; i < copy->pieces; i++) {
        if (copy->piece[i].exec != NULL) {
            orion_graph_ending(copy->piece[i].exec);
            orion_driver.cuGraphExecDestroy(copy->piece[i].exec);
        }
        if (copy->piece[i].graph != NULL) orion_driver.cuGraphDestroy(copy->piece[i].graph);
    }
    CUevent events[] = {copy->event, copy->spare};
    struct orion_process *process = orion_the_process;
    for (unsigned i = 0; i < 2 && atomic_load(&process->context_epoch) == copy->context_epoch; i++)
        if (events[i] != NULL) orion_driver.cuEventDestroy_v2(events[i]);
    orion_capture_unrelax(&relaxed);
    free_memory(copy);
}

/* Fills the tables of a copy whose one piece is the clone. */
static bool fill(struct orion_graph_copy *copy, const struct orion_graph_nodes *nodes, CUgraph clone)
{
    uint32_t *order = calloc(nodes->count, sizeof *order);
    copy->node = calloc(nodes->count, sizeof *copy->node);
    copy->rank = calloc(nodes->count, sizeof *copy->rank);
    copy->by_handle = calloc(nodes->slots, sizeof *copy->by_handle);
    copy->piece = calloc(1, sizeof *copy->piece);
    bool filled = order != NULL && copy->node != NULL && copy->rank != NULL && copy->by_handle != NULL && copy->piece != NULL &&
                  orion_graph_order(nodes->count, nodes->edges, nodes->from, nodes->to, order);
    copy->nodes = nodes->count, copy->edges = nodes->edges, copy->edge_sum = nodes->edge_sum, copy->slots = nodes->slots;
    for (uint32_t i = 0; filled && i < nodes->count; i++) {
        copy->rank[order[i]] = i;
        copy->node[i].program = nodes->node[order[i]];
        filled = orion_driver.cuGraphNodeFindInClone(&copy->node[i].own, copy->node[i].program, clone) == CUDA_SUCCESS;
    }
    for (uint32_t i = 0; filled && i < nodes->slots; i++)
        if (nodes->by_handle[i] != 0) copy->by_handle[i] = copy->rank[nodes->by_handle[i] - 1] + 1;
    free(order);
    if (filled) copy->piece[0] = (struct orion_piece){.graph = clone, .count = nodes->count}, copy->pieces = 1;
    return filled;
}

static struct orion_graph_copy *clone_of(CUgraphExec exec, CUgraph graph)
{
    struct orion_graph_nodes nodes;
    CUgraph clone = NULL;
    struct orion_graph_copy *copy = NULL;
    if (orion_graph_nodes_read(graph, &nodes) && nodes.count > 1 && orion_driver.cuGraphClone(&clone, graph) == CUDA_SUCCESS)
        copy = calloc(1, sizeof *copy);
    if (copy != NULL) {
        cuuint64_t flags = 0;
        if (orion_driver.cuGraphExecGetFlags != NULL) orion_driver.cuGraphExecGetFlags(exec, &flags);
        copy->exec = exec, copy->flags = flags & KEPT_FLAGS;
    }
    if (copy != NULL && !fill(copy, &nodes, clone)) free_memory(copy), copy = NULL;
    if (copy == NULL && clone != NULL) orion_driver.cuGraphDestroy(clone);
    orion_graph_nodes_free(&nodes);
    return copy;
}

/* Whether a client of this process is a be client, or may become one. A GPU has its role before it stops joining. */
static bool may_serve_be(struct orion_process *process)
{
    if (atomic_load(&process->joining) > 0) return true;
    for (uint32_t i = 0; i < atomic_load(&process->gpu_count) && i < ORION_GPUS; i++)
        if (atomic_load(&process->gpus[i].role) == ORION_ROLE_BE) return true;
    return false;
}

static bool driver_has_all(void)
{
    return orion_driver.cuGraphClone != NULL && orion_driver.cuGraphDestroy != NULL && orion_driver.cuGraphDestroyNode != NULL &&
           orion_driver.cuGraphNodeFindInClone != NULL && orion_driver.cuGraphInstantiateWithFlags != NULL &&
           orion_driver.cuGraphExecDestroy != NULL;
}

void orion_graph_copy_made(CUgraphExec exec, CUgraph graph)
{
    struct orion_graph_facts facts;
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    /* An executable whose end the hook has not seen had the same handle. It ended with its context, and so did its
     * pieces: their handles must not be used. */
    struct orion_graph_copy *before = take(process, exec);
    if (before != NULL) free_memory(before);
    if (!driver_has_all() || !may_serve_be(process) || !orion_graph_facts(orion_graphs(process), exec, &facts) ||
        orion_graph_is_collective(orion_graphs(process), exec))
        return;
    struct orion_relaxed relaxed = orion_capture_relax();
    struct orion_graph_copy *copy = clone_of(exec, graph);
    orion_capture_unrelax(&relaxed);
    if (copy != NULL && !enter(orion_graph_copies(process), copy)) free_copy(copy), copy = NULL;
    if (copy == NULL) return;
    struct orion_duration *entry =
        orion_duration_claim(orion_durations(process), orion_graph_identity(orion_graphs(process), exec));
    if (entry != NULL) orion_facts_set_flags(entry, ORION_FACTS_HAS_PIECES);
}

struct orion_graph_copy *orion_graph_copy_ending(CUgraphExec exec)
{
    struct orion_process *process = orion_process_if_managed();
    return process != NULL ? take(process, exec) : NULL;
}

void orion_graph_copy_ended(struct orion_graph_copy *copy, CUresult result)
{
    if (copy == NULL) return;
    if (result == CUDA_SUCCESS) free_copy(copy);
    else free_memory(copy); /* its context may have ended, and the pieces with it */
}

/* -- Updates --------------------------------------------------------------------------------------------------------- */

static struct orion_copy_node *node_of(struct orion_graph_copy *copy, CUgraphNode node)
{
    uint32_t found = copy == NULL
                         ? UINT32_MAX
                         : orion_graph_number(copy->by_handle, copy->slots, &copy->node->program, sizeof *copy->node, node);
    return found != UINT32_MAX ? &copy->node[found] : NULL;
}

static struct orion_graph_copy *copy_if_managed(CUgraphExec exec)
{
    struct orion_process *process = orion_process_if_managed();
    return process != NULL ? orion_graph_copy_of(process, exec) : NULL;
}

CUgraphNode orion_graph_copy_node(CUgraphExec exec, CUgraphNode node)
{
    struct orion_graph_copy *copy = copy_if_managed(exec);
    struct orion_copy_node *found = node_of(copy, node);
    if (copy != NULL && found == NULL) copy->refused = true;
    if (found == NULL) return NULL;
    copy->piece[found->piece].stale = true;
    return found->own;
}

void orion_graph_copy_node_set(CUgraphExec exec, CUresult result)
{
    struct orion_graph_copy *copy = copy_if_managed(exec);
    if (copy != NULL && result != CUDA_SUCCESS) copy->refused = true;
}

void orion_graph_copy_child_set(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CUgraph own;
    CUgraphNode found = orion_graph_copy_node(exec, node);
    if (found == NULL) return;
    bool copied = orion_driver.cuGraphChildGraphNodeGetGraph != NULL &&
                  orion_driver.cuGraphChildGraphNodeGetGraph(found, &own) == CUDA_SUCCESS &&
                  orion_graph_copy_parameters(child, own);
    orion_graph_copy_node_set(exec, copied ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
}

void orion_graph_copy_enabled(CUgraphExec exec, CUgraphNode node, bool enabled)
{
    struct orion_graph_copy *copy = copy_if_managed(exec);
    struct orion_copy_node *found = node_of(copy, node);
    if (found == NULL) return;
    CUgraphExec piece = copy->piece[found->piece].exec;
    found->disabled = !enabled;
    copy->disables = true;
    if (piece != NULL && orion_driver.cuGraphNodeSetEnabled(piece, found->own, enabled) != CUDA_SUCCESS) copy->refused = true;
}

void orion_graph_copy_updated(CUgraphExec exec, CUgraph graph)
{
    struct orion_graph_nodes nodes;
    struct orion_graph_copy *copy = copy_if_managed(exec);
    if (copy == NULL) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    bool same = orion_graph_nodes_read(graph, &nodes) && nodes.count == copy->nodes && nodes.edge_sum == copy->edge_sum;
    for (uint32_t i = 0; same && i < nodes.count; i++) same = orion_graph_node_copy(nodes.node[i], copy->node[copy->rank[i]].own);
    for (uint32_t i = 0; i < copy->pieces; i++) copy->piece[i].stale = true;
    copy->refused = !same;
    orion_graph_nodes_free(&nodes);
    orion_capture_unrelax(&relaxed);
}
