/* Priorities of streams: hp's before be's, where work of several processes runs together. */
#ifndef ORION_PRIORITIES_H
#define ORION_PRIORITIES_H

int orion_stream_priority(int priority); /* the one that a new stream gets */

#endif
