/* Work of other threads goes before a graph in pieces or behind it, not between its pieces: the driver orders a graph as one launch, so
 * programs may let several threads launch into one stream, and let graphs share memory there. The same holds for the legacy stream and
 * a blocking stream of its context, whose work the driver orders as that of one stream.
 *
 * A launch that waits goes before graphs that came later. The wait is bounded (order_wait.h). */
#ifndef ORION_BETWEEN_PIECES_H
#define ORION_BETWEEN_PIECES_H

#include <stdbool.h>

struct orion_process;
struct orion_stream_record;

/* Around the launches of the pieces. False: other threads' work may go between them. */
bool orion_between_pieces_begin(struct orion_process *process, struct orion_stream_record *stream_record);
void orion_between_pieces_end(struct orion_stream_record *stream_record);

/* Before any other launch of be. True: from now on it is under way, and the caller calls orion_between_pieces_launched after it. */
bool orion_between_pieces_wait(struct orion_process *process, struct orion_stream_record *stream_record);
void orion_between_pieces_launched(struct orion_stream_record *stream_record);

#endif
