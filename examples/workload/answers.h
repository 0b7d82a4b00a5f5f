/* Answers HTTP requests with the latest report, so that a Service and a probe have something to reach. */
#ifndef WORKLOAD_ANSWERS_H
#define WORKLOAD_ANSWERS_H

#include <stdbool.h>

/* Starts to answer on all addresses, in a separate thread. Returns false if the port cannot be bound; errno says why.
 * */
bool answers_begin(int port);

/* Sets the text of the following answers: one line of JSON, which is copied. */
void answers_say(const char *line);

#endif
