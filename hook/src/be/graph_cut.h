/* Cuts a piece of a graph into parts, and makes the executables of pieces. When and into how many parts, graph_pieces.c
 * decides. The caller has relaxed the thread's capture mode. */
#ifndef ORION_GRAPH_CUT_H
#define ORION_GRAPH_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "be/graph_copies.h"

/* The nodes of the piece's graph get the parameters that the program has set. False: the driver refused some. */
bool orion_piece_settle(const struct orion_graph_copy *copy, struct orion_piece *piece);

/* Cuts a piece into parts with executables, which take its place. The caller has settled the piece. False: it stays as it was. */
bool orion_graph_cut(struct orion_graph_copy *copy, uint32_t index, uint32_t parts);

/* Makes the piece's executable, or gives it the parameters that the program has set. False: the driver refused it. */
bool orion_piece_renew(const struct orion_graph_copy *copy, struct orion_piece *piece);

/* Destroys the executable; the driver ends it after its last launch. */
void orion_piece_drop(struct orion_piece *piece);

#endif
