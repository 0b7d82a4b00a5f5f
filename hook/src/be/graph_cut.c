#include "be/graph_cut.h"

#include <stdlib.h>
#include <string.h>

#include "be/graph_order.h"
#include "be/graph_parameters.h"
#include "generated/driver.h"
#include "learning/graphs.h"

/* -- The nodes of pieces' graphs ------------------------------------------------------------------------------------- */

static bool settle_child(const struct orion_graph_copy *child)
{
    for (uint32_t i = 0; i < child->pieces; i++)
        if (!orion_piece_settle(child, &child->piece[i])) return false;
    return true;
}

bool orion_piece_settle(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    for (uint32_t i = piece->first; piece->behind && i < piece->first + piece->count; i++) {
        struct orion_copy_node *node = &copy->node[i];
        if (!node->behind) continue;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH ? !settle_child(node->child) : !orion_parameters_give(node)) return false;
        piece->general |= node->due; /* the executable gets it from the graph */
        node->behind = node->due = false;
    }
    piece->behind = false;
    return true;
}

/* -- Executables ----------------------------------------------------------------------------------------------------- */

void orion_piece_drop(struct orion_piece *piece)
{
    if (piece->exec == NULL) return;
    orion_graph_ending(piece->exec);
    orion_driver.cuGraphExecDestroy(piece->exec); /* the driver ends it after its last launch */
    piece->exec = NULL;
}

/* own: the piece's nodes, `stride` bytes apart. */
static bool disable(const struct orion_graph_copy *copy, const struct orion_piece *piece, const CUgraphNode *own, size_t stride)
{
    for (uint32_t i = 0; copy->disables && i < piece->count; i++) {
        const void *node = (const char *)own + i * stride;
        if (copy->node[piece->first + i].disabled &&
            orion_driver.cuGraphNodeSetEnabled(piece->exec, *(const CUgraphNode *)node, 0) != CUDA_SUCCESS)
            return false;
    }
    return true;
}

static void made(const struct orion_graph_copy *copy, const struct orion_piece *piece)
{
    orion_graph_made(piece->exec, piece->graph);
    bool branches = orion_graph_run_branches(copy->level, piece->first, piece->count);
    orion_graph_set_branches(orion_graphs(orion_the_process), piece->exec, branches);
}

static bool instantiate(const struct orion_graph_copy *copy, struct orion_piece *piece, const CUgraphNode *own, size_t stride)
{
    if (orion_driver.cuGraphInstantiateWithFlags(&piece->exec, piece->graph, copy->flags) != CUDA_SUCCESS) {
        piece->exec = NULL;
        return false;
    }
    piece->stale = piece->general = piece->reshaped = false;
    made(copy, piece);
    return disable(copy, piece, own, stride);
}

/* The executable gets the kernels that are due. One call of the driver for each is quicker than one for the node of the graph and
 * an update of all nodes (docs/results/graph-cuts.md). */
static bool give_due(const struct orion_graph_copy *copy, const struct orion_piece *piece)
{
    for (uint32_t i = piece->first; i < piece->first + piece->count; i++) {
        if (!copy->node[i].due) continue;
        if (!orion_parameters_give_exec(piece->exec, &copy->node[i])) return false;
        copy->node[i].due = false;
    }
    return true;
}

/* The executable gets the parameters of the piece's graph. The driver cannot update everything; then it is made again. */
static bool give_all(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    CUgraphExecUpdateResultInfo why;
    if (!orion_piece_settle(copy, piece)) return false;
    if (piece->exec != NULL && orion_driver.cuGraphExecUpdate_v2 != NULL &&
        orion_driver.cuGraphExecUpdate_v2(piece->exec, piece->graph, &why) == CUDA_SUCCESS) {
        if (piece->reshaped) made(copy, piece);
        piece->stale = piece->general = piece->reshaped = false;
    }
    if (piece->stale) orion_piece_drop(piece);
    return true;
}

bool orion_piece_renew(const struct orion_graph_copy *copy, struct orion_piece *piece)
{
    if (piece->exec != NULL && !piece->stale) return true;
    if (piece->exec != NULL && !piece->general && give_due(copy, piece)) piece->stale = false;
    else if (!give_all(copy, piece)) return false;
    const CUgraphNode *own = &copy->node[piece->first].own;
    /* Whether an update keeps nodes disabled is not documented. */
    return piece->exec != NULL ? disable(copy, piece, own, sizeof *copy->node) : instantiate(copy, piece, own, sizeof *copy->node);
}

/* -- Cutting --------------------------------------------------------------------------------------------------------- */

/* Makes `part` of nodes [first, first + count) of the piece, and writes their handles into `own`. */
static bool make_part(const struct orion_graph_copy *copy, const struct orion_piece *piece, struct orion_piece *part,
                      CUgraphNode *own)
{
    if (orion_driver.cuGraphClone(&part->graph, piece->graph) != CUDA_SUCCESS) return false;
    for (uint32_t i = piece->first; i < piece->first + piece->count; i++) {
        CUgraphNode node;
        if (orion_driver.cuGraphNodeFindInClone(&node, copy->node[i].own, part->graph) != CUDA_SUCCESS) return false;
        if (i >= part->first && i < part->first + part->count) own[i - piece->first] = node;
        else if (orion_driver.cuGraphDestroyNode(node) != CUDA_SUCCESS) return false;
    }
    return instantiate(copy, part, own + (part->first - piece->first), sizeof *own);
}

static void drop_parts(struct orion_piece *part, uint32_t parts)
{
    for (uint32_t i = 0; i < parts; i++) {
        orion_piece_drop(&part[i]);
        if (part[i].graph != NULL) orion_driver.cuGraphDestroy(part[i].graph);
    }
}

/* The parts take the place of the piece. Nothing can fail here. */
static void replace(struct orion_graph_copy *copy, uint32_t index, const struct orion_piece *made, uint32_t parts,
                    const CUgraphNode *own, struct orion_piece *all)
{
    struct orion_piece old = copy->piece[index];
    memcpy(all, copy->piece, index * sizeof *all);
    memcpy(all + index, made, parts * sizeof *all);
    memcpy(all + index + parts, copy->piece + index + 1, (copy->pieces - index - 1) * sizeof *all);
    for (uint32_t i = 0; i < old.count; i++) {
        struct orion_copy_node *node = &copy->node[old.first + i];
        node->own = own[i];
        if (node->child != NULL) orion_graph_copy_free(node->child), node->child = NULL; /* the part has an own child graph */
    }
    free(copy->piece);
    copy->piece = all;
    copy->pieces += parts - 1;
    for (uint32_t i = index; i < copy->pieces; i++)
        for (uint32_t j = 0; j < all[i].count; j++) copy->node[all[i].first + j].piece = i;
    orion_piece_drop(&old);
    orion_driver.cuGraphDestroy(old.graph);
}

bool orion_graph_cut(struct orion_graph_copy *copy, uint32_t index, uint32_t parts)
{
    struct orion_piece *piece = &copy->piece[index];
    struct orion_piece *made = calloc(parts, sizeof *made), *all = calloc(copy->pieces + parts, sizeof *all);
    CUgraphNode *own = calloc(piece->count, sizeof(CUgraphNode));
    bool cut = made != NULL && all != NULL && own != NULL;
    for (uint32_t i = 0; cut && i < parts; i++) {
        uint32_t begin = orion_graph_part_begin(&copy->level[piece->first], piece->count, parts, i);
        made[i].first = piece->first + begin;
        made[i].count = orion_graph_part_begin(&copy->level[piece->first], piece->count, parts, i + 1) - begin;
        cut = make_part(copy, piece, &made[i], own);
    }
    if (cut) replace(copy, index, made, parts, own, all);
    else if (made != NULL) drop_parts(made, parts);
    if (!cut) free(all);
    free(made);
    free(own);
    return cut;
}
