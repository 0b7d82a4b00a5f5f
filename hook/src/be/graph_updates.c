#include "be/graph_updates.h"

#include "be/graph_copies.h"
#include "be/graph_nodes.h"
#include "generated/driver.h"
#include "learning/graphs.h"
#include "process/process.h"
#include "streams/capture.h"

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
    if (copy != NULL && (found == NULL || copy->piece[found->piece].inner != NULL)) copy->refused = true;
    if (found == NULL || copy->piece[found->piece].inner != NULL) return NULL;
    copy->piece[found->piece].stale = true;
    return found->own;
}

void orion_graph_copy_node_set(CUgraphExec exec, CUresult result)
{
    struct orion_graph_copy *copy = copy_if_managed(exec);
    if (copy != NULL && result != CUDA_SUCCESS) copy->refused = true;
}

/* Gives the nodes of the copy the parameters of `graph`, which has the same nodes in the same order. */
static bool follow(struct orion_graph_copy *copy, CUgraph graph);

static bool follow_child(struct orion_graph_copy *copy, struct orion_copy_node *node, CUgraph child)
{
    CUgraph own;
    struct orion_piece *piece = &copy->piece[node->piece];
    piece->stale = true;
    if (piece->inner != NULL) return follow(piece->inner, child);
    return orion_driver.cuGraphChildGraphNodeGetGraph != NULL &&
           orion_driver.cuGraphChildGraphNodeGetGraph(node->own, &own) == CUDA_SUCCESS && orion_graph_copy_parameters(child, own);
}

static bool follow_node(struct orion_graph_copy *copy, struct orion_copy_node *node, CUgraphNode from)
{
    CUgraph child;
    if (copy->piece[node->piece].inner == NULL) return orion_graph_node_copy(node->type, from, node->own);
    return orion_driver.cuGraphChildGraphNodeGetGraph(from, &child) == CUDA_SUCCESS && follow_child(copy, node, child);
}

static bool follow(struct orion_graph_copy *copy, CUgraph graph)
{
    struct orion_graph_nodes nodes;
    bool same = orion_graph_nodes_read(graph, &nodes) && nodes.count == copy->nodes && nodes.edge_sum == copy->edge_sum;
    for (uint32_t i = 0; i < copy->pieces; i++) copy->piece[i].stale = true;
    for (uint32_t i = 0; same && i < nodes.count; i++) {
        struct orion_copy_node *node = &copy->node[copy->rank[i]];
        same = nodes.type[i] == node->type && follow_node(copy, node, nodes.node[i]);
    }
    orion_graph_nodes_free(&nodes);
    return same;
}

void orion_graph_copy_child_set(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    struct orion_graph_copy *copy = copy_if_managed(exec);
    struct orion_copy_node *found = node_of(copy, node);
    if (copy == NULL) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (found == NULL || !follow_child(copy, found, child)) copy->refused = true;
    orion_capture_unrelax(&relaxed);
}

void orion_graph_copy_enabled(CUgraphExec exec, CUgraphNode node, bool enabled)
{
    struct orion_graph_copy *copy = copy_if_managed(exec);
    struct orion_copy_node *found = node_of(copy, node);
    if (copy != NULL && found == NULL) copy->refused = true;
    if (found == NULL) return;
    CUgraphExec piece = copy->piece[found->piece].exec;
    found->disabled = !enabled;
    copy->disables = true;
    if (piece != NULL && orion_driver.cuGraphNodeSetEnabled(piece, found->own, enabled) != CUDA_SUCCESS) copy->refused = true;
}

void orion_graph_copy_updated(CUgraphExec exec, CUgraph graph)
{
    struct orion_graph_copy *copy = copy_if_managed(exec);
    if (copy == NULL) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    /* A graph with collectives stays one piece of work: see graph_copies.h. */
    copy->refused = !follow(copy, graph) || orion_graph_is_collective(orion_graphs(orion_the_process), exec);
    orion_capture_unrelax(&relaxed);
}
