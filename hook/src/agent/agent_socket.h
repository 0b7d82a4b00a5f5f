/* Reaches the slot's sockets: $ORION_ROOT/slots/<GPU uuid>/agent.sock and notices.sock, with ORION_ROOT as it was when the
 * hook was loaded. */
#ifndef ORION_AGENT_SOCKET_H
#define ORION_AGENT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the path of the slot's directory, which has space for ORION_PATH_LONGEST bytes. False: it is too long. */
bool orion_agent_directory(const char *gpu, char *directory);

/* Whether the process has a slot on any GPU. An agent need not run. */
bool orion_agent_gave_slots(void);

/* Returns a non-blocking SEQPACKET connection, or -1 with errno. The path may be longer than sun_path. */
int orion_agent_connect(const char *gpu);

/* Sends one message that needs no answer: a datagram, or where that fails, as with an older agent, on a new connection. For the
 * program's threads and the watcher, which cannot use the connection of the hook's thread: its descriptor table is separate.
 * Never blocks; changes no errno. */
void orion_agent_tell(const char *gpu, const void *message, size_t size);

#endif
