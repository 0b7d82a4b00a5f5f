#include "be/graph_order.h"

#include <stdlib.h>

/* Kahn's algorithm, level after level: `ready` are the nodes of the current level. `waits` counts a node's edges from
 * nodes that are not in the order yet; `next` chains the edges of one source. */
struct kahn { uint32_t *waits, *first, *next; };

static bool link_edges(struct kahn *kahn, uint32_t nodes, uint32_t edges, const uint32_t *from, const uint32_t *to)
{
    for (uint32_t i = 0; i < nodes; i++) kahn->first[i] = UINT32_MAX;
    for (uint32_t i = 0; i < edges; i++) {
        if (from[i] >= nodes || to[i] >= nodes) return false;
        kahn->next[i] = kahn->first[from[i]];
        kahn->first[from[i]] = i;
        kahn->waits[to[i]]++;
    }
    return true;
}

static int by_number(const void *one, const void *other)
{
    uint32_t first = *(const uint32_t *)one, second = *(const uint32_t *)other;
    return first < second ? -1 : first > second;
}

static uint32_t run_levels(struct kahn *kahn, uint32_t nodes, const uint32_t *to, uint32_t *order, uint32_t *level)
{
    uint32_t begin = 0, end = 0, number = 0;
    for (uint32_t i = 0; i < nodes; i++)
        if (kahn->waits[i] == 0) order[end++] = i;
    while (begin < end) {
        uint32_t level_end = end;
        for (uint32_t i = begin; i < level_end; i++)
            for (uint32_t edge = kahn->first[order[i]]; edge != UINT32_MAX; edge = kahn->next[edge])
                if (--kahn->waits[to[edge]] == 0) order[end++] = to[edge];
        qsort(order + level_end, end - level_end, sizeof *order, by_number);
        for (; begin < level_end; begin++) level[begin] = number;
        number++;
    }
    return end;
}

bool orion_graph_order(uint32_t nodes, uint32_t edges, const uint32_t *from, const uint32_t *to, uint32_t *order, uint32_t *level)
{
    struct kahn kahn = {calloc(nodes + 1u, sizeof(uint32_t)), calloc(nodes + 1u, sizeof(uint32_t)),
                        calloc(edges + 1u, sizeof(uint32_t))};
    bool ordered = kahn.waits != NULL && kahn.first != NULL && kahn.next != NULL && link_edges(&kahn, nodes, edges, from, to) &&
                   run_levels(&kahn, nodes, to, order, level) == nodes;
    free(kahn.waits);
    free(kahn.first);
    free(kahn.next);
    return ordered;
}

uint32_t orion_graph_parts(uint64_t expected_ns, uint64_t limit_ns, uint32_t nodes)
{
    if (!orion_graph_is_long(expected_ns, limit_ns)) return 1;
    uint64_t parts = (expected_ns + limit_ns - 1) / limit_ns;
    return parts < nodes ? (uint32_t)parts : nodes > 0 ? nodes : 1;
}

uint32_t orion_graph_part_begin(const uint32_t *level, uint32_t nodes, uint32_t parts, uint32_t part)
{
    uint32_t even = (uint32_t)((uint64_t)nodes * part / parts), next = (uint32_t)((uint64_t)nodes * (part + 1) / parts);
    if (part == 0 || part >= parts) return even;
    for (uint32_t i = even; i < next && i < nodes; i++)
        if (level[i] != level[i - 1]) return i;
    return even;
}
