#include "be/graph_copies.h"

#include <stdlib.h>

#include "be/argument_layout.h"
#include "be/graph_nodes.h"
#include "be/graph_order.h"
#include "generated/driver.h"
#include "learning/durations.h"
#include "learning/graph_walk.h"
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
        if (atomic_fetch_sub(&copies->count, 1) == 1) free(atomic_exchange(&copies->room, NULL));
        return copy;
    }
    return NULL;
}

/* -- Making and freeing ---------------------------------------------------------------------------------------------- */

static void free_memory(struct orion_graph_copy *copy)
{
    for (uint32_t i = 0; i < copy->pieces; i++)
        if (copy->piece[i].inner != NULL) free_memory(copy->piece[i].inner);
    for (uint32_t i = 0; copy->node != NULL && i < copy->nodes; i++) {
        free(copy->node[i].kept);
        if (copy->node[i].child != NULL) free_memory(copy->node[i].child);
    }
    orion_layouts_free(copy->layouts);
    free(copy->node);
    free(copy->level);
    free(copy->rank);
    free(copy->by_handle);
    free(copy->piece);
    free(copy->from); /* and `to` */
    free(copy);
}

void orion_graph_copy_free(struct orion_graph_copy *copy)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    for (uint32_t i = 0; i < copy->pieces && !copy->borrowed; i++) {
        if (copy->piece[i].inner != NULL) orion_graph_copy_free(copy->piece[i].inner), copy->piece[i].inner = NULL;
        if (copy->piece[i].exec != NULL) {
            orion_graph_ending(copy->piece[i].exec);
            orion_driver.cuGraphExecDestroy(copy->piece[i].exec);
        }
        if (copy->piece[i].graph != NULL) orion_driver.cuGraphDestroy(copy->piece[i].graph);
    }
    CUevent events[] = {copy->event, copy->spare};
    struct orion_process *process = orion_the_process;
    for (unsigned i = 0; i < 2 && atomic_load(orion_ends_of(process, copy->context)) == copy->ends; i++)
        if (events[i] != NULL) orion_driver.cuEventDestroy_v2(events[i]);
    orion_capture_unrelax(&relaxed);
    free_memory(copy);
}

/* Whose nodes the copy's nodes are: those of a clone, or of the graph itself if the copy is borrowed. */
static bool find_own(struct orion_copy_node *node, CUgraph graph, bool borrowed)
{
    node->own = node->program;
    return borrowed || orion_driver.cuGraphNodeFindInClone(&node->own, node->program, graph) == CUDA_SUCCESS;
}

/* Fills the tables of a copy whose one piece is `graph`. */
static bool fill(struct orion_graph_copy *copy, const struct orion_graph_list *list, const struct orion_graph_nodes *nodes,
                 CUgraph graph)
{
    uint32_t *order = calloc(nodes->count + 1, sizeof *order);
    copy->node = calloc(nodes->count + 1, sizeof *copy->node);
    copy->level = calloc(nodes->count + 1, sizeof *copy->level);
    copy->rank = calloc(nodes->count + 1, sizeof *copy->rank);
    copy->by_handle = calloc(nodes->slots, sizeof *copy->by_handle);
    copy->piece = calloc(1, sizeof *copy->piece);
    bool filled = order != NULL && copy->node != NULL && copy->level != NULL && copy->rank != NULL && copy->by_handle != NULL &&
                  copy->piece != NULL && orion_graph_order(nodes->count, nodes->edges, nodes->from, nodes->to, order, copy->level);
    copy->nodes = nodes->count, copy->edges = nodes->edges, copy->edge_sum = nodes->edge_sum, copy->slots = nodes->slots;
    for (uint32_t i = 0; filled && i < nodes->count; i++) {
        struct orion_copy_node *node = &copy->node[i];
        copy->rank[order[i]] = i;
        node->program = list->node[order[i]];
        node->type = list->type[order[i]];
        node->part = list->part[order[i]];
        filled = find_own(node, graph, copy->borrowed);
    }
    for (uint32_t i = 0; filled && i < nodes->slots; i++)
        if (nodes->by_handle[i] != 0) copy->by_handle[i] = copy->rank[nodes->by_handle[i] - 1] + 1;
    free(order);
    if (filled) copy->piece[0] = (struct orion_piece){.graph = graph, .count = nodes->count}, copy->pieces = 1;
    return filled;
}

/* A copy of the graph `listed` whose one piece is `graph`: a clone, or the graph itself if the copy is borrowed. */
static struct orion_graph_copy *new_copy(const struct orion_graph_list *list, CUgraph listed, CUgraph graph, bool borrowed)
{
    struct orion_graph_nodes nodes = {.count = list->count, .edges = list->edges, .node = list->node};
    struct orion_graph_copy *copy = calloc(1, sizeof *copy);
    void *scratch = malloc(orion_graph_scratch(nodes.edges));
    nodes.from = malloc(2 * ((size_t)nodes.edges + 1) * sizeof *nodes.from);
    nodes.to = nodes.from != NULL ? nodes.from + nodes.edges : NULL;
    if (copy != NULL) copy->borrowed = borrowed;
    if (copy != NULL &&
        !(scratch != NULL && nodes.from != NULL && orion_graph_edges_list(listed, nodes.edges, scratch) &&
          orion_graph_edges_number(&nodes, scratch) && orion_graph_nodes_number(&nodes) && fill(copy, list, &nodes, graph)))
        free_memory(copy), copy = NULL;
    if (copy != NULL) copy->from = nodes.from, copy->to = nodes.to, copy->plain = nodes.plain, nodes.from = NULL;
    free(scratch);
    orion_graph_nodes_free(&nodes);
    return copy;
}

static bool may_be_cut(const struct orion_graph_list *list)
{
    return list->node != NULL && orion_graph_types_can_be_copied(list->types) &&
           (list->count > 1 || (list->count == 1 && list->type[0] == CU_GRAPH_NODE_TYPE_GRAPH));
}

/* Nodes that write words or wait for them may order branches that the edges leave free. A cut could put a node that waits, or a
 * kernel that spins, before the node that ends this. */
static bool words_order_branches(const struct orion_graph_copy *copy, const struct orion_graph_list *list)
{
    return (list->types & 1u << CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) != 0 && orion_graph_run_branches(copy->level, 0, copy->nodes);
}

/* list: of the graph's nodes. */
static struct orion_graph_copy *clone_of(CUgraph graph, const struct orion_graph_list *list, CUgraphExec exec,
                                         unsigned long long flags)
{
    CUgraph clone;
    if (!may_be_cut(list) || orion_driver.cuGraphClone(&clone, graph) != CUDA_SUCCESS) return NULL;
    struct orion_graph_copy *copy = new_copy(list, graph, clone, false);
    if (copy == NULL || words_order_branches(copy, list)) {
        if (copy != NULL) free_memory(copy);
        orion_driver.cuGraphDestroy(clone);
        return NULL;
    }
    copy->exec = exec, copy->flags = flags & KEPT_FLAGS;
    return copy;
}

/* A GPU has its role before it stops joining. */
bool orion_graph_copies_may_serve(struct orion_process *process)
{
    return atomic_load(&process->joining) > 0 || orion_process_has_be(process);
}

static bool driver_has_all(void)
{
    return orion_driver.cuGraphClone != NULL && orion_driver.cuGraphDestroy != NULL && orion_driver.cuGraphDestroyNode != NULL &&
           orion_driver.cuGraphNodeFindInClone != NULL && orion_driver.cuGraphInstantiateWithFlags != NULL &&
           orion_driver.cuGraphExecDestroy != NULL;
}

static struct orion_graph_copy *copy_for(struct orion_process *process, CUgraphExec exec, CUgraph graph,
                                         const struct orion_graph_list *list)
{
    struct orion_graph_facts facts;
    cuuint64_t flags = 0;
    if (!orion_graph_facts(orion_graphs(process), exec, &facts) || orion_graph_is_collective(orion_graphs(process), exec))
        return NULL;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (orion_driver.cuGraphExecGetFlags != NULL) orion_driver.cuGraphExecGetFlags(exec, &flags);
    struct orion_graph_copy *copy = clone_of(graph, list, exec, flags);
    orion_capture_unrelax(&relaxed);
    return copy;
}

static void make_copy(struct orion_process *process, CUgraphExec exec, CUgraph graph, const struct orion_graph_list *list)
{
    bool by_device = atomic_load(&orion_graph_copies(process)->some) & ORION_SOME_BY_DEVICE; /* no graph is cut: graph_pieces.c */
    struct orion_graph_copy *copy = driver_has_all() && !by_device ? copy_for(process, exec, graph, list) : NULL;
    if (copy != NULL && !enter(orion_graph_copies(process), copy)) orion_graph_copy_free(copy), copy = NULL;
    struct orion_duration *entry =
        copy != NULL ? orion_duration_claim(orion_durations(process), orion_graph_identity(orion_graphs(process), exec)) : NULL;
    if (entry != NULL) orion_facts_set_flags(entry, ORION_FACTS_HAS_PIECES);
    uint32_t some = copy != NULL ? 0 : ORION_SOME_WHOLE | (orion_graph_device_may_launch(exec) ? ORION_SOME_BY_DEVICE : 0);
    if (some != 0) atomic_fetch_or(&orion_graph_copies(process)->some, some);
    else orion_graph_set_branches(orion_graphs(process), exec, orion_graph_run_branches(copy->level, 0, copy->nodes));
}

void orion_graph_copy_made(CUgraphExec exec, CUgraph graph)
{
    struct orion_graph_list list = {0};
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    /* An executable whose end the hook has not seen had the same handle. It ended with its context, and so did its
     * pieces: their handles must not be used. */
    struct orion_graph_copy *before = take(process, exec);
    if (before != NULL) free_memory(before);
    bool copies = orion_graph_copies_may_serve(process);
    orion_graph_made_listing(exec, graph, copies ? &list : NULL);
    if (copies) make_copy(process, exec, graph, &list);
    orion_graph_list_free(&list);
}

bool orion_graph_copy_enter_child(struct orion_graph_copy *copy, struct orion_piece *piece)
{
    CUgraph child;
    struct orion_graph_walk walk;
    struct orion_graph_list list;
    struct orion_copy_node *only = &copy->node[piece->first];
    if (piece->count != 1 || only->type != CU_GRAPH_NODE_TYPE_GRAPH || !orion_graph_child(only->own, &child)) return false;
    orion_graph_walk_child(orion_the_process, child, &walk, &list);
    piece->inner = clone_of(child, &list, NULL, copy->flags);
    orion_graph_list_free(&list);
    if (piece->inner != NULL && only->child != NULL) free_memory(only->child), only->child = NULL;
    return piece->inner != NULL;
}

struct orion_graph_copy *orion_graph_copy_borrowed(CUgraphNode node)
{
    CUgraph child;
    struct orion_graph_walk walk;
    struct orion_graph_list list;
    if (!orion_graph_child(node, &child)) return NULL;
    orion_graph_walk_child(orion_the_process, child, &walk, &list);
    struct orion_graph_copy *copy = list.node != NULL ? new_copy(&list, child, child, true) : NULL;
    orion_graph_list_free(&list);
    return copy;
}

void orion_graph_copy_leave_child(struct orion_piece *piece)
{
    orion_graph_copy_free(piece->inner);
    piece->inner = NULL;
}

struct orion_graph_copy *orion_graph_copy_ending(CUgraphExec exec)
{
    struct orion_process *process = orion_process_if_managed();
    return process != NULL ? take(process, exec) : NULL;
}

void orion_graph_copy_ended(struct orion_graph_copy *copy, CUresult result)
{
    if (copy == NULL) return;
    if (result == CUDA_SUCCESS) orion_graph_copy_free(copy);
    else free_memory(copy); /* its context may have ended, and the pieces with it */
}
