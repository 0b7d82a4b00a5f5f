/* Priorities of streams: hp's are higher than be's on a GPU where work of several processes runs together. */
#ifndef ORION_PRIORITIES_H
#define ORION_PRIORITIES_H

int orion_stream_priority(int priority); /* the priority of a new stream for which the program asked for `priority` */

#endif
