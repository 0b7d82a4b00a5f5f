#include "be/graph_updates.h"

#include <stdlib.h>

#include "be/graph_copies.h"
#include "be/graph_nodes.h"
#include "be/graph_order.h"
#include "be/graph_parameters.h"
#include "be/kept_kernel.h"
#include "generated/driver.h"
#include "learning/graph_walk.h"
#include "learning/graphs.h"
#include "learning/identity.h"
#include "learning/kernels.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/recordings.h"

/* Programs that set nodes one by one usually do so in the order of the nodes. */
static struct orion_copy_node *node_of(struct orion_graph_copy *copy, CUgraphNode node)
{
    if (copy->last + 1 < copy->nodes && copy->node[copy->last + 1].program == node) return &copy->node[++copy->last];
    uint32_t found = orion_graph_number(copy->by_handle, copy->slots, &copy->node->program, sizeof *copy->node, node);
    if (found == UINT32_MAX) return NULL;
    copy->last = found;
    return &copy->node[found];
}

/* -- Copies ---------------------------------------------------------------------------------------------------------- */

static struct orion_setting follow(struct orion_process *process, struct orion_graph_copy *copy, CUgraph graph);

static struct orion_setting follow_child(struct orion_process *process, struct orion_graph_copy *copy, struct orion_copy_node *node,
                                         CUgraph child)
{
    struct orion_graph_walk walk;
    struct orion_graph_copy *inner = copy->piece[node->piece].inner;
    if (inner == NULL && node->child == NULL) node->child = orion_graph_copy_borrowed(node->own);
    struct orion_graph_copy *followed = inner != NULL ? inner : node->child;
    if (followed == NULL) return (struct orion_setting){.failed = true};
    struct orion_setting setting = follow(process, followed, child);
    if (inner == NULL && setting.differs) node->behind = true;
    if (setting.reshaped) {
        orion_graph_walk_child(process, child, &walk, NULL);
        node->part = walk.sum;
        setting.collective = walk.collective;
    }
    return setting;
}

static struct orion_setting follow_node(struct orion_process *process, struct orion_graph_copy *copy, struct orion_copy_node *node,
                                        CUgraphNode from)
{
    CUgraph child;
    if (node->type != CU_GRAPH_NODE_TYPE_GRAPH) return orion_parameters_follow(process, &copy->layouts, node, from);
    if (!orion_graph_child(from, &child)) return (struct orion_setting){.failed = true};
    return follow_child(process, copy, node, child);
}

static void note(struct orion_graph_copy *copy, const struct orion_copy_node *node, struct orion_setting setting)
{
    struct orion_piece *piece = &copy->piece[node->piece];
    piece->behind |= node->behind;
    piece->stale |= setting.differs;
    piece->general |= setting.reshaped || (setting.differs && !node->due);
    piece->reshaped |= setting.reshaped;
}

/* If at most the arguments of the kernel differ from those that are kept, keeps them; *differs: and one of them does. */
static inline bool keep_arguments(const struct orion_process *process, struct orion_graph_copy *copy, struct orion_copy_node *node,
                                  const CUDA_KERNEL_NODE_PARAMS *kernel, bool *differs)
{
    if (!orion_only_arguments_differ(process, node->kept, kernel)) return false;
    if (orion_keep_arguments(node->kept, kernel->kernelParams)) {
        struct orion_piece *piece = &copy->piece[node->piece];
        node->behind = node->due = piece->behind = piece->stale = *differs = true;
    }
    return true;
}

/* Whether the graph has the nodes and the edges of the copy, in the same order. Writes its nodes into `node`. */
static bool is_alike(const struct orion_graph_copy *copy, CUgraph graph, CUgraphNode *node)
{
    void *scratch = node + copy->nodes + 1;
    struct orion_graph_nodes nodes = {.count = copy->nodes, .edges = copy->edges, .node = node};
    if (!orion_graph_nodes_list(graph, copy->nodes, node) || !orion_graph_edges_list(graph, copy->edges, scratch)) return false;
    if (copy->plain && orion_graph_edges_are(copy->edges, copy->from, copy->to, node, scratch)) return true;
    bool alike = orion_graph_edges_number(&nodes, scratch) && nodes.edge_sum == copy->edge_sum;
    orion_graph_nodes_free(&nodes);
    return alike;
}

/* Without this shape there is no preferred one either. */
static bool has_clusters(CUgraphNode node)
{
    CUlaunchAttributeValue value = {0};
    return orion_driver.cuGraphKernelNodeGetAttribute != NULL &&
           orion_driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) == CUDA_SUCCESS &&
           orion_blocks_of_cluster(&value) > 1;
}

/* Follows the nodes from number `i` on, up to one of which more may differ than the arguments of a kernel. Returns its number;
 * the number of nodes if there is none. On an H200 it takes 48 ns to ask for a kernel's clusters, and 10 ns to read the kernel, so only
 * a process with clusters asks. */
static uint32_t follow_arguments(struct orion_process *process, struct orion_graph_copy *copy, const CUgraphNode *from, uint32_t i,
                                 bool *differs)
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    bool clusters = atomic_load_explicit(&orion_graph_copies(process)->clusters, memory_order_relaxed) != 0;
    for (; i < copy->nodes; i++) {
        struct orion_copy_node *node = &copy->node[copy->rank[i]];
        if (node->type != CU_GRAPH_NODE_TYPE_KERNEL || node->kept == NULL || !node->no_clusters ||
            (clusters && has_clusters(from[i])) || orion_driver.cuGraphKernelNodeGetParams_v2(from[i], &kernel) != CUDA_SUCCESS ||
            !keep_arguments(process, copy, node, &kernel, differs))
            break;
    }
    return i;
}

/* Room for what the driver lists, from the last update or new. NULL: no memory. */
static struct orion_room *take_room(struct orion_graph_copies *copies, size_t bytes)
{
    struct orion_room *room = atomic_exchange_explicit(&copies->room, NULL, memory_order_acquire);
    if (room != NULL && room->bytes >= bytes) return room;
    free(room);
    room = malloc(sizeof *room + bytes);
    if (room != NULL) room->bytes = bytes;
    return room;
}

/* The larger one stays, where an update of a child graph or of another thread has given one back meanwhile. */
static void give_back(struct orion_graph_copies *copies, struct orion_room *room)
{
    struct orion_room *none = NULL, *other = atomic_exchange_explicit(&copies->room, NULL, memory_order_acquire);
    bool stays = other != NULL && other->bytes > room->bytes;
    free(stays ? room : other);
    if (stays) room = other;
    if (!atomic_compare_exchange_strong_explicit(&copies->room, &none, room, memory_order_release, memory_order_relaxed))
        free(room);
}

/* The copy gets the parameters of `graph`, which has the same nodes in the same order. */
static struct orion_setting follow(struct orion_process *process, struct orion_graph_copy *copy, CUgraph graph)
{
    size_t bytes = ((size_t)copy->nodes + 1) * sizeof(CUgraphNode) + orion_graph_scratch(copy->edges);
    struct orion_room *room = take_room(orion_graph_copies(process), bytes);
    if (room == NULL) return (struct orion_setting){.failed = true};
    const CUgraphNode *node = room->node;
    struct orion_setting all = {.failed = !is_alike(copy, graph, room->node)};
    for (uint32_t i = 0; !all.failed && (i = follow_arguments(process, copy, node, i, &all.differs)) < copy->nodes; i++) {
        struct orion_copy_node *own = &copy->node[copy->rank[i]];
        struct orion_setting setting = follow_node(process, copy, own, node[i]);
        note(copy, own, setting);
        all.failed = setting.failed;
        all.differs |= setting.differs;
        all.reshaped |= setting.reshaped;
        all.local |= setting.local;
    }
    give_back(orion_graph_copies(process), room);
    return all;
}

/* -- The program's calls --------------------------------------------------------------------------------------------- */

/* The copy that follows; NULL: none. A process that has no be client any more launches no pieces. */
static struct orion_graph_copy *following(struct orion_process *process, CUgraphExec exec)
{
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    if (__builtin_expect(copy == NULL, 0) || orion_graph_copies_may_serve(process)) return copy;
    copy->refused = true;
    return NULL;
}

/* The node's part of the identity was `before`. A node that is disabled has no part. */
static void changed(struct orion_process *process, struct orion_graph_copy *copy, const struct orion_copy_node *node,
                    struct orion_setting setting, uint64_t before)
{
    note(copy, node, setting);
    if (setting.collective) orion_graph_gets_collective(process, copy->exec);
    if (setting.failed || setting.collective) copy->refused = true; /* a graph with collectives has no pieces: see graph_copies.h */
    if (setting.reshaped && !node->disabled) orion_graph_part_changed(process, copy->exec, before, node->part, setting.local);
}

void orion_graph_set(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, const void *parameters)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || parameters == NULL) return;
    if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        orion_recordings_elsewhere(orion_recordings(process), *(const CUevent *)parameters);
    struct orion_graph_copy *copy = following(process, exec);
    struct orion_copy_node *found = copy != NULL ? node_of(copy, node) : NULL;
    if (found != NULL && found->type == type) {
        copy->is_set = true;
        bool differs;
        if (type == CU_GRAPH_NODE_TYPE_KERNEL && keep_arguments(process, copy, found, parameters, &differs)) return;
        uint64_t before = found->part;
        changed(process, copy, found, orion_parameters_set(process, &copy->layouts, found, parameters), before);
        return;
    }
    if (copy != NULL) copy->refused = true; /* perhaps a node of a child graph */
    bool collective = false;
    uint64_t identity = ORION_IDENTITY_UNREAD;
    if (orion_graphs_are_read(process)) identity = orion_parameters_identity(process, type, parameters, &collective);
    orion_graph_node_set(exec, node, identity);
    if (collective) orion_graph_gets_collective(process, exec);
}

void orion_graph_clusters_begin(void)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) atomic_store_explicit(&orion_graph_copies(process)->clusters, 1, memory_order_relaxed);
}

void orion_graph_device_updates_begin(void)
{
    struct orion_process *process = orion_process_if_managed();
    if (process != NULL) atomic_fetch_or(&orion_graph_copies(process)->some, ORION_SOME_BY_DEVICE);
}

void orion_graph_set_any(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *parameters)
{
    if (parameters == NULL) return;
    switch ((int)parameters->type) { /* the newer structures begin with the older ones */
    case CU_GRAPH_NODE_TYPE_KERNEL: orion_graph_set(exec, node, parameters->type, &parameters->kernel); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: orion_graph_set(exec, node, parameters->type, &parameters->memcpy.copyParams); break;
    case CU_GRAPH_NODE_TYPE_MEMSET: orion_graph_set(exec, node, parameters->type, &parameters->memset); break;
    case CU_GRAPH_NODE_TYPE_HOST: orion_graph_set(exec, node, parameters->type, &parameters->host); break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: orion_graph_set(exec, node, parameters->type, &parameters->memOp); break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: orion_graph_set(exec, node, parameters->type, &parameters->eventRecord.event); break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: orion_graph_set(exec, node, parameters->type, &parameters->eventWait.event); break;
    case CU_GRAPH_NODE_TYPE_GRAPH: orion_graph_set_child(exec, node, parameters->graph.graph); break;
    }
}

void orion_graph_set_child(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_graph_copy *copy = following(process, exec);
    struct orion_copy_node *found = copy != NULL ? node_of(copy, node) : NULL;
    if (found == NULL || found->type != CU_GRAPH_NODE_TYPE_GRAPH) {
        if (copy != NULL) copy->refused = true;
        orion_graph_child_set(exec, node, child);
        return;
    }
    copy->is_set = true;
    uint64_t before = found->part;
    struct orion_relaxed relaxed = orion_capture_relax();
    struct orion_setting setting = follow_child(process, copy, found, child);
    changed(process, copy, found, setting, before);
    orion_capture_unrelax(&relaxed);
    if (setting.failed) orion_graph_child_set(exec, node, child); /* the copy does not know what is in it, such as a collective */
}

void orion_graph_copy_enabled(CUgraphExec exec, CUgraphNode node, bool enabled)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    /* Also in a process that has no be client now: an update of the whole graph does not say which nodes are disabled. */
    struct orion_graph_copy *copy = orion_graph_copy_of(process, exec);
    struct orion_copy_node *found = copy != NULL ? node_of(copy, node) : NULL;
    if (found == NULL) {
        if (copy != NULL) copy->refused = copy->disables_others = true;
        orion_graph_node_enabled(exec, node, enabled);
        return;
    }
    if (found->disabled == !enabled) return;
    orion_graph_part_changed(process, exec, enabled ? 0 : found->part, enabled ? found->part : 0, false);
    found->disabled = !enabled;
    copy->disables = true;
    CUgraphExec piece = copy->piece[found->piece].exec;
    if (piece != NULL && orion_driver.cuGraphNodeSetEnabled(piece, found->own, enabled) != CUDA_SUCCESS) copy->refused = true;
}

/* Makes the identity of the graph again, from nodes that count as enabled. */
static void identify(struct orion_process *process, const struct orion_graph_copy *copy, CUgraph graph)
{
    orion_graph_made(copy->exec, graph);
    orion_graph_set_branches(orion_graphs(process), copy->exec, orion_graph_run_branches(copy->level, 0, copy->nodes));
    for (uint32_t i = 0; copy->disables && i < copy->nodes; i++)
        if (copy->node[i].disabled) orion_graph_part_changed(process, copy->exec, copy->node[i].part, 0, false);
}

void orion_graph_updated(CUgraphExec exec, CUgraph graph)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    struct orion_graph_copy *copy = following(process, exec);
    if (copy == NULL) {
        orion_graph_made(exec, graph);
        return;
    }
    struct orion_relaxed relaxed = orion_capture_relax();
    struct orion_setting setting = follow(process, copy, graph);
    if (setting.failed || setting.reshaped || !orion_graph_is_known(orion_graphs(process), exec)) identify(process, copy, graph);
    /* A graph with collectives stays one piece of work: see graph_copies.h. */
    copy->refused = setting.failed || copy->disables_others || orion_graph_is_collective(orion_graphs(process), exec);
    orion_capture_unrelax(&relaxed);
}
