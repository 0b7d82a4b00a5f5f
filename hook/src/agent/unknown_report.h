/* Tells the agent which driver functions the program looked up that the hook does not know (process/unknown.h). Users see
 * this as a condition of the client. */
#ifndef ORION_UNKNOWN_REPORT_H
#define ORION_UNKNOWN_REPORT_H

#include <stdint.h>

struct orion_process;
struct orion_gpu;

/* Sends one message if there are more such functions than the agent knows of. Never blocks. Called by the GPU's thread
 * while it is connected; `reported` is 0 for a new agent. */
void orion_unknown_report(struct orion_process *process, struct orion_gpu *gpu, int socket, uint32_t *reported);

#endif
