/* be's graphs in pieces. A graph that takes longer than the window cannot be stopped once it is launched. While the GPU
 * has hp clients, the hook launches such a graph as several executables, one after the other, in the program's stream.
 * Each piece is a launch like any other: it waits for its stop, counts in the window, and is timed.
 *
 * A piece is a run of the graph's nodes in the order of graph_order.h. How long the nodes take is not known, so a piece
 * that takes longer than the window is cut evenly. Its parts begin with their share of the piece's duration as an
 * estimate, and are cut again when their measured durations ask for it. Each part is a clone from which the other
 * parts' nodes were removed: this keeps all attributes of all types of nodes. What the hook has learnt of pieces it knows
 * again in a later process, because their identities come from their nodes. Pieces never become longer again: a piece
 * that is too short costs about 3 us. But if all of them together prove to fit into the window, the graph runs whole
 * again (graph_lengths.h).
 *
 * A child graph is one node. If it takes longer than the window, its own nodes are cut in the same way.
 *
 * Cutting and updating happen in the launching thread. They happen rarely, and only while the GPU has hp clients. */
#ifndef ORION_GRAPH_PIECES_H
#define ORION_GRAPH_PIECES_H

#include <stdbool.h>

#include "be/graph_copies.h"
#include "streams/stream_name.h"

/* Whether this launch must be in pieces. True: copy->piece has executables that are to be renewed and launched in order, and
 * the caller calls orion_pieces_launched after the last launch. False: the caller launches the program's executable. */
bool orion_pieces_begin(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream);
void orion_pieces_launched(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream);

/* Before the launch of each piece: its executable gets the parameters that the program has set. The earlier pieces run meanwhile.
 * False: the driver has no memory for another executable. */
bool orion_pieces_renewed(const struct orion_graph_copy *copy, struct orion_piece *piece);

/* After a launch of the program's executable. */
void orion_pieces_not_launched(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_name stream);

/* A piece could not be launched because an earlier one did not end: one of its nodes may wait for what the program does
 * after the launch. From now on the graph runs whole. The caller still launches the other pieces. */
void orion_pieces_stuck(struct orion_process *process, struct orion_graph_copy *copy);

/* The driver refused to launch a piece. Until the next update, the graph runs whole. */
void orion_pieces_failed(struct orion_process *process, struct orion_graph_copy *copy);

/* For graphs without pieces: says once that hp may have to wait for this graph, if it takes longer than the window. A graph
 * of one kernel is not named: it is as any kernel. */
void orion_pieces_say_whole(struct orion_process *process, CUgraphExec exec, struct orion_stream_name stream);

#endif
