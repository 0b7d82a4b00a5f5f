/* The order of a graph's nodes, and where it is cut: pure functions, with random graphs. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "be/graph_order.h"

static void the_order_is_by_levels(void)
{
    /* 0 -> 1 -> 4, 0 -> 2 -> 4, 3 alone, 5 -> 2 */
    const uint32_t from[] = {0, 1, 0, 2, 5}, to[] = {1, 4, 2, 4, 2}, expected[] = {0, 3, 5, 1, 2, 4};
    const uint32_t levels[] = {0, 0, 0, 1, 1, 2};
    uint32_t order[6], level[6];
    CHECK(orion_graph_order(6, 5, from, to, order, level) && memcmp(order, expected, sizeof order) == 0);
    CHECK(memcmp(level, levels, sizeof level) == 0);
    const uint32_t back[] = {1, 4, 2, 4, 0}, cycle[] = {0, 1, 0, 2, 4};
    CHECK(!orion_graph_order(6, 5, cycle, back, order, level)); /* 0 -> 1 -> 4 -> 0 */
    CHECK(!orion_graph_order(3, 1, (uint32_t[]){0}, (uint32_t[]){3}, order, level));
    CHECK(orion_graph_order(1, 0, NULL, NULL, order, level) && order[0] == 0);
}

/* Random graphs whose edges lead to higher numbers under a random renaming: each edge leads forward in the order. */
static void edges_lead_forward(void)
{
    srand(7);
    for (unsigned round = 0; round < 200; round++) {
        uint32_t count = 1 + (uint32_t)rand() % 60, edges = (uint32_t)rand() % 150, name[60], order[60], level[60], place[60];
        uint32_t from[150], to[150], used = 0;
        for (uint32_t i = 0; i < count; i++) name[i] = i;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t other = (uint32_t)rand() % count, kept = name[i];
            name[i] = name[other], name[other] = kept;
        }
        for (uint32_t i = 0; i < edges; i++) {
            uint32_t first = (uint32_t)rand() % count, second = (uint32_t)rand() % count;
            if (first < second) from[used] = name[first], to[used++] = name[second];
        }
        CHECK(orion_graph_order(count, used, from, to, order, level));
        memset(place, 0xff, sizeof place);
        for (uint32_t i = 0; i < count; i++) {
            CHECK(order[i] < count && place[order[i]] == UINT32_MAX);
            place[order[i]] = i;
        }
        for (uint32_t i = 0; i < used; i++) CHECK(place[from[i]] < place[to[i]]);
    }
}

/* Any levels: the parts are not empty and follow each other; a cut inside a level is one that the even division has. */
static void parts_begin_at_levels(void)
{
    const uint32_t four[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    CHECK(orion_graph_part_begin(four, 12, 3, 1) == 4 && orion_graph_part_begin(four, 12, 2, 1) == 8);
    CHECK(orion_graph_part_begin(four, 12, 12, 5) == 5); /* a level has more nodes than a part */
    srand(11);
    for (unsigned round = 0; round < 500; round++) {
        uint32_t level[60], nodes = 1 + (uint32_t)rand() % 60, parts = 1 + (uint32_t)rand() % nodes;
        for (uint32_t i = 0, at = 0; i < nodes; i++) level[i] = at += rand() % 3 == 0;
        CHECK(orion_graph_part_begin(level, nodes, parts, 0) == 0 && orion_graph_part_begin(level, nodes, parts, parts) == nodes);
        for (uint32_t i = 0; i < parts; i++) {
            uint32_t begin = orion_graph_part_begin(level, nodes, parts, i);
            CHECK(begin < orion_graph_part_begin(level, nodes, parts, i + 1));
            CHECK(begin == 0 || level[begin] != level[begin - 1] || begin == nodes * i / parts);
        }
    }
}

static void a_run_with_two_nodes_of_a_level_has_branches(void)
{
    const uint32_t level[] = {0, 1, 1, 2, 3};
    CHECK(orion_graph_run_branches(level, 0, 5) && orion_graph_run_branches(level, 1, 2));
    CHECK(!orion_graph_run_branches(level, 0, 2) && !orion_graph_run_branches(level, 2, 3));
    CHECK(!orion_graph_run_branches(level, 2, 1) && !orion_graph_run_branches(NULL, 0, 0));
}

static void parts_fit_the_window(void)
{
    CHECK(orion_graph_parts(500, 400, 10) == 1 && orion_graph_parts(501, 400, 10) == 2);
    CHECK(orion_graph_parts(30000, 400, 200) == 75 && orion_graph_parts(30000, 400, 8) == 8);
    CHECK(orion_graph_parts(1000, 0, 8) == 1 && orion_graph_parts(1000, 400, 1) == 1);
}

int main(void)
{
    the_order_is_by_levels();
    edges_lead_forward();
    parts_begin_at_levels();
    a_run_with_two_nodes_of_a_level_has_branches();
    parts_fit_the_window();
    puts("graph order: ok");
    return 0;
}
