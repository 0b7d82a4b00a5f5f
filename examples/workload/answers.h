/* Answers HTTP requests with the latest report, so that a Service and a probe have something to reach. */
#ifndef WORKLOAD_ANSWERS_H
#define WORKLOAD_ANSWERS_H

#include <stdbool.h>

/* Begins to answer on all addresses, in a thread of its own; false where the port cannot be had (errno says why). */
bool answers_begin(int port);

/* What answers say from now on: one line of JSON, which is copied. */
void answers_say(const char *line);

#endif
