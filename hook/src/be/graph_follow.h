/* A launch of an executable waits for the executable's earlier launches, also in other streams. Pieces must wait for the whole earlier
 * launch, so a launch in another stream first waits for an event behind it. If the earlier launch was of the program's executable,
 * there is no such event; the next launch is of the program's executable, too, and gets one.
 *
 * If the driver makes no event, the graph runs whole. If it does not record one, the next launch tries again. If an event cannot be
 * used although the earlier launch was in pieces, the thread waits on the CPU until those are complete (order_wait.h). */
#ifndef ORION_GRAPH_FOLLOW_H
#define ORION_GRAPH_FOLLOW_H

#include <stdbool.h>

#include "be/graph_copies.h"
#include "streams/stream_name.h"

struct orion_stream_record;

/* The launch waits for the last one, if that was in another stream and in pieces, or has an event. False: only the next launch of the
 * program's executable follows the last one. */
bool orion_graph_follow(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_record *stream_record,
                        struct orion_stream_name stream);

/* An event of the stream's context, to be put behind the launch. NULL: the driver makes none. */
CUevent orion_graph_event_behind(struct orion_process *process, struct orion_graph_copy *copy,
                                 const struct orion_stream_record *stream_record);

/* Notes the stream of the last launch. */
void orion_graph_note_stream(struct orion_process *process, struct orion_graph_copy *copy,
                             const struct orion_stream_record *stream_record);

#endif
