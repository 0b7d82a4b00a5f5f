/* Connects to the slot's socket: $ORION_ROOT/slots/<GPU uuid>/agent.sock, with ORION_ROOT as it was when the
 * hook was loaded. */
#ifndef ORION_AGENT_SOCKET_H
#define ORION_AGENT_SOCKET_H

/* Returns a non-blocking SEQPACKET connection, or -1 with errno. The path may be longer than sun_path. */
int orion_agent_connect(const char *gpu);

#endif
