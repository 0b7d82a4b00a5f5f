/* Answers HTTP requests with the latest report, so that a Service and a probe have something to reach. */
#ifndef WORKLOAD_ANSWERS_H
#define WORKLOAD_ANSWERS_H

#include <stdbool.h>

/* Listens on all addresses; returns the listener, or -1 if the port cannot be bound, and errno says why. */
int answers_listen(int port);

/* Starts to answer in a separate thread. */
bool answers_begin(int listener);

/* Waits for a request for at most this time; returns the client that waits for the answer, or -1. */
int answers_accept(int listener, int milliseconds);

/* Answers a client, and closes the connection. */
void answers_reply(int client);

/* Sets the text of the following answers: one line of JSON, which is copied. */
void answers_say(const char *line);

#endif
