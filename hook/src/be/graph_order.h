/* The order in which a graph is cut: by levels. A node's level is the length of the longest path to it, so a run of this
 * order depends only on earlier runs, and nodes that may run side by side stay together. Pure functions.
 *
 * Rejected: the order of a depth-first search. Its runs contain whole branches, which then run one after the other. */
#ifndef ORION_GRAPH_ORDER_H
#define ORION_GRAPH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* Writes the `nodes` node numbers into `order`, by level, and nodes of one level by number; and into `level` the level of
 * each node in this order. Edge i leads from node from[i] to node to[i]. False: no memory, a number is out of range, or
 * the edges form a cycle. */
bool orion_graph_order(uint32_t nodes, uint32_t edges, const uint32_t *from, const uint32_t *to, uint32_t *order, uint32_t *level);

/* Whether some of the nodes in this run of the order may run side by side. */
static inline bool orion_graph_run_branches(const uint32_t *level, uint32_t first, uint32_t count)
{
    for (uint32_t i = first + 1; i < first + count; i++)
        if (level[i] == level[i - 1]) return true;
    return false;
}

/* A piece may take a quarter more than the limit, because a cut costs GPU time and durations vary. */
static inline bool orion_graph_is_long(uint64_t expected_ns, uint64_t limit_ns)
{
    return limit_ns != 0 && expected_ns > limit_ns + limit_ns / 4;
}

/* Into how many runs a piece is cut: each should take at most limit_ns. 1: the piece stays whole. */
uint32_t orion_graph_parts(uint64_t expected_ns, uint64_t limit_ns, uint32_t nodes);

/* The first node of run `part` of `parts` runs. Nodes are divided evenly, and then a run begins at the next level: nodes of
 * one level may run side by side, and a cut between them makes one wait for the other. A level that is longer than a run
 * is cut all the same. level: of each of the `nodes` nodes. */
uint32_t orion_graph_part_begin(const uint32_t *level, uint32_t nodes, uint32_t parts, uint32_t part);

#endif
