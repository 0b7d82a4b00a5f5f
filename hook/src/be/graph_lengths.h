/* How long be's graphs and their pieces take, and which graphs run in pieces for that reason (graph_pieces.h).
 *
 * A measurement can be far too long: the thread lost its CPU between the event and the launch, the driver loaded the graph, or
 * another context had the GPU. A graph that is cut for such a measurement is not measured as a whole any more, but its pieces
 * are. If all of them have been measured and fit into the window together, the program's executable runs again. The pieces are
 * kept. They are launched again if the executable proves longer than the window.
 *
 * Rejected: cutting a graph only after several measurements. hp would wait for each of them. */
#ifndef ORION_GRAPH_LENGTHS_H
#define ORION_GRAPH_LENGTHS_H

#include <stdbool.h>
#include <stdint.h>

#include "be/graph_copies.h"

/* The time that the executable is expected to take; 0: unknown. */
uint64_t orion_length_of(struct orion_process *process, CUgraphExec exec);

/* Parts of a piece begin with estimates: their share of its nodes. A part that proves longer is cut again. Without estimates
 * each part would run alone until it is measured, which may take long beside a busy hp. */
void orion_lengths_estimate(struct orion_process *process, const struct orion_piece *part, uint32_t parts, uint64_t expected);

/* Whether the graph takes longer than the window. If it has no pieces yet, *whole_ns becomes its expected time. */
bool orion_lengths_need_pieces(struct orion_process *process, struct orion_graph_copy *copy, uint64_t *whole_ns, uint64_t limit);

#endif
